"""Findings of `restow doctor`: one for each check, with severity and advice.

The rules are pure: facts in, findings out, the time is an argument. Not here: collecting facts
(`doctor_cluster`, `doctor_files`, `restow.storage.checkup`), and printing findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from restow.cli.store_arguments import DAMAGED_ADVICE, size_text
from restow.storage.checkup import EtcdFacts, FileFacts
from restow.storage.identity import ACCEPT_ADVICE, Mark, Seen, difference
from restow.storage.private_files import links_problem
from restow.storage.store_mark import place_of

if TYPE_CHECKING:
    from restow.storage.etcd.checkup import MemberFacts

LOG_BYTES_WARNED: Final = 256 * 1024 * 1024
"""Checkpoints keep the log near 16 MiB; a far larger one means that a process blocks them."""
FREE_BYTES_ERROR: Final = 64 * 1024 * 1024
FREE_BYTES_WARNED: Final = 1024 * 1024 * 1024
QUOTA_PART_WARNED: Final = 0.8
QUOTA_BYTES_DEFAULT: Final = 2 * 1024 * 1024 * 1024
"""The default of etcd, where the quota is neither configured nor reported."""
WASTE_PART_WARNED: Final = 0.5
WASTE_BYTES_WARNED: Final = 256 * 1024 * 1024
LAG_REVISIONS_WARNED: Final = 1000
OTHERS: Final = 0o077
NAMES_SHOWN_MAX: Final = 8


class Severity(IntEnum):
    """The severity of a finding; the worst one decides the exit code."""

    OK = 0
    UNSEEN = 1
    """The check could not be run."""
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    level: Severity
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check=check, level=Severity.OK, text=text)


def unseen(check: str, text: str, advice: str = "") -> Finding:
    return Finding(check=check, level=Severity.UNSEEN, text=text, advice=advice)


def warning(check: str, text: str, advice: str) -> Finding:
    return Finding(check=check, level=Severity.WARNING, text=text, advice=advice)


def error(check: str, text: str, advice: str) -> Finding:
    return Finding(check=check, level=Severity.ERROR, text=text, advice=advice)


def some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN_MAX])
    more = len(names) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


# Store.


IDENTITY: Final = "store identity"


def judge_store(facts: FileFacts | EtcdFacts) -> Iterator[Finding]:
    match facts:
        case FileFacts():
            yield from _judge_file(facts)
        case EtcdFacts():
            yield from _judge_etcd(facts)


def judge_identity(mark: Mark, seen: Seen, *, name: str) -> Finding:
    """Check that the store is the one that the mark in the data directory describes."""
    why = difference(mark, seen, address=name)
    if why is not None:
        return error(
            IDENTITY, f"{name} is not the store that the servers used: {why}", ACCEPT_ADVICE
        )
    scheme, _, rest = name.partition(":")
    if scheme == "sqlite" and mark.file is not None and place_of(Path(rest)) != mark.file:
        return warning(
            IDENTITY,
            f"{rest} is not the file that the servers used last: it was copied or replaced",
            "if servers run, restart them: they refuse reads and writes; otherwise start them",
        )
    return ok(IDENTITY, f"{name} is the store that the servers used, at revision {seen.revision}")


def _judge_file(facts: FileFacts) -> Iterator[Finding]:
    check = "store"
    if facts.problem:
        advice = f"check that it exists and is readable by this user; otherwise {DAMAGED_ADVICE}"
        yield error(check, facts.problem, advice)
        return
    if facts.damages:
        yield error(
            check,
            f"{facts.path} is damaged: {some(facts.damages)}",
            DAMAGED_ADVICE,
        )
    else:
        yield ok(
            check,
            f"{facts.path} is intact: {facts.keys:,} keys at revision {facts.revision},"
            f" {size_text(facts.size)}",
        )
    if facts.log_size > LOG_BYTES_WARNED:
        yield warning(
            "write-ahead log",
            f"{size_text(facts.log_size)}",
            "find a process that is suspended, or reads the file for a long time: it blocks the"
            " checkpoints",
        )
    else:
        yield ok("write-ahead log", f"{size_text(facts.log_size)}")
    yield _judge_disk(facts)
    if (problem := links_problem(facts.path, facts.links)) is not None:
        text, _, advice = problem.partition(". ")
        yield error(IDENTITY, text, advice)
    for exposure in facts.exposures:
        text, _, advice = exposure.partition(": ")
        yield error("store permissions", text, advice)
    if facts.mode & OTHERS and not facts.exposures:
        yield warning(
            "store permissions",
            f"{facts.path} and its Secrets can be read by other users (mode {facts.mode:o})",
            f"chmod 600 {facts.path}",
        )


def _judge_disk(facts: FileFacts) -> Finding:
    text = f"{size_text(facts.free)} free on the file system of {facts.path}"
    if facts.free < FREE_BYTES_ERROR:
        return error("disk", text, "free some space: writes are refused when the disk is full")
    if facts.free < max(FREE_BYTES_WARNED, facts.size):
        return warning("disk", text, "free some space: a backup and the log need it")
    return ok("disk", text)


def _judge_etcd(facts: EtcdFacts) -> Iterator[Finding]:
    up = [each for each in facts.members if not each.problem]
    down = [each for each in facts.members if each.problem]
    for each in down:
        advice = "start it, and check its log"
        text = f"{each.endpoint} does not respond: {each.problem}"
        many = len(up) * 2 > len(facts.members)
        yield warning("etcd", text, advice) if many else error("etcd", text, advice)
    newest = max((each.revision for each in up), default=0)
    for each in up:
        yield from _judge_member(each, newest)


def _judge_member(member: MemberFacts, newest: int) -> Iterator[Finding]:
    from restow.storage.etcd.releases import known_fault

    check, name = "etcd", member.endpoint
    if not member.has_leader:
        yield error(
            check, f"{name} has no leader", "start the other members, or repair the network"
        )
    elif member.is_learner:
        yield warning(
            check,
            f"{name} is a learner, which rejects reads and writes",
            "promote it, or remove it from the address",
        )
    elif newest - member.revision > LAG_REVISIONS_WARNED:
        yield warning(
            check,
            f"{name} is {newest - member.revision:,} revisions behind",
            "check its disk and its network",
        )
    else:
        yield ok(check, f"{name} is healthy: etcd {member.version}, revision {member.revision}")
    if fault := known_fault(member.version):
        text, _, advice = fault.partition("; ")
        yield warning("etcd release", f"{name}: {text}", advice)
    for alarm in member.alarms:
        advice = "compact and defragment it, then run: etcdctl alarm disarm"
        if alarm != "NOSPACE":
            advice = "replace the member: its data differs from that of the others"
        yield error("etcd alarm", f"{name} raised the alarm {alarm}", advice)
    for text in member.errors:
        if not any(alarm in text for alarm in member.alarms):
            yield warning(check, f"{name} reports: {text}", "check its log")
    yield _judge_size(member)


def _judge_size(member: MemberFacts) -> Finding:
    check = "etcd size"
    quota = member.bytes_max or QUOTA_BYTES_DEFAULT
    text = f"{member.endpoint} uses {size_text(member.bytes_held)} of {size_text(quota)}" + (
        "" if member.bytes_max else " (the default quota)"
    )
    waste = member.bytes_held - member.bytes_used
    if member.bytes_held > quota * QUOTA_PART_WARNED:
        return warning(check, text, "compact and defragment it, or raise its quota")
    if waste > max(WASTE_BYTES_WARNED, member.bytes_held * WASTE_PART_WARNED):
        return warning(check, f"{text}, of which {size_text(waste)} are unused", "defragment it")
    return ok(check, text)
