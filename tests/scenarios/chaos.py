"""Random scenarios from a seed, and the invariants that hold after any of them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.storage.interface import Item, Key, Span
from restow.storageversion.identity import SERVERS_PREFIX, ServerRecord, decode_record
from restow.storageversion.object_codec import (
    LEASES_PREFIX,
    decode_report,
    decode_state,
    report_key,
    state_key,
)
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    SELECTED_PREFIX,
    decode_epoch,
    epoch_key,
    parse_encoder_key,
)
from restow.storageversion.rules import Agreement, agreement_of
from tests.scenarios.cluster import PREFERRED, WIDGETS, Cluster
from tests.unit.storageversion.named_keys import open_any
from tests.unit.storageversion.world import GROUP

WIDGETS_ROOT = f"/registry/{GROUP}/widgets/"
FAULTS = (
    "watch_delay_seconds=0.5",
    "watch_delay_seconds=3",
    "delay_seconds=0.3",
    "reply_lost=0.2",
    "lost=0.2",
    "late=0.2",
    "error=0.2",
    "reply_lost=0.1 late=0.1 error=0.1 delay_seconds=0.2 watch_delay_seconds=1",
)


COMPATIBLE_RELEASES = ("x+1", "x+2")
"""Releases that can run together, and be upgraded and downgraded."""


KEY_FILES = ("k1", "k1,identity", "identity,k1", "k2,k1", "k2,k1,identity", "k1,k2", "k2")
"""Possible configuration files of servers during a key rotation."""


def random_scenario(
    seed: int,
    *,
    mode: str,
    steps: int,
    releases: Sequence[str] = COMPATIBLE_RELEASES,
    with_keys: bool = False,
) -> str:
    """Returns a scenario: servers of some releases start, stop, fail, and write; `with_keys`: they
    encrypt,
    and their keys change while they run."""
    random = Random(f"{mode}/{seed}{'/keys' if with_keys else ''}")
    size = random.randint(2, 4)
    state: dict[str, str] = {}
    lines: list[str] = []
    for number in range(steps):
        name = f"s{random.randint(1, size)}"
        match state.get(name, "ended"):
            case "ended":
                release = random.choice(releases)
                verb = random.choice(("start", "begin"))
                if random.random() < 0.4:
                    lines.append(f"faults {name} {random.choice(FAULTS)}")
                keys = f" keys={random.choice(KEY_FILES)}" if with_keys else ""
                lines.append(f"{verb} {name} {release} mode={mode}{keys}")
                state[name] = "running"
            case "paused":
                verb = random.choice(("wake", "wake", "kill", "advance"))
                if verb == "advance":
                    lines.append(f"advance {random.choice((3, 10, 16, 20))}s")
                else:
                    lines.append(f"{verb} {name}")
                    state[name] = "running" if verb == "wake" else "ended"
            case _:
                verb = random.choice(
                    ("stop", "kill", "pause", "cut", "restore", "faults", "faults", "hang-up")
                    + ("send",) * 6 + ("advance",) * 5 + ("keys",) * 5 * with_keys
                )  # fmt: skip
                if verb in ("stop", "kill", "pause"):
                    state[name] = "paused" if verb == "pause" else "ended"
                if verb == "advance":
                    seconds = random.choice((0.01, 0.06, 0.5, 2, 5, 11, 18))
                    lines.append(f"advance {seconds}s")
                elif verb == "send":
                    lines.append(f"send {name} o{number}")
                elif verb == "keys":
                    lines.append(f"keys {name} {random.choice(KEY_FILES)}")
                elif verb == "faults":
                    lines.append(f"faults {name} {random.choice(FAULTS)}")
                else:
                    lines.append(verb if verb == "hang-up" else f"{verb} {name}")
    return "\n".join(lines) + "\n"


async def check_healed(cluster: Cluster) -> None:
    """All running servers are registered, agree as their entries say, and write; no entry of an
    expired
    server remains."""
    running = {node.id: node for node in cluster.running().values()}
    if not running:
        return  # no server remains to run the garbage collection
    stuck = {
        name: node.server.coordinator.pending(node.server.resource())
        for name, node in cluster.running().items()
        if not node.server.coordinator.completed
    }
    assert not stuck, f"not registered two minutes after all faults have ended: {stuck}"
    expect = {"members": await _tails(cluster, SERVERS_PREFIX)}
    expect["leases"] = await _tails(cluster, LEASES_PREFIX)
    encoders = (await cluster.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    expect["encoder keys"] = {parse_encoder_key(item.key)[0] for item in encoders}
    report = await cluster.report()
    entries = () if report is None else report.entries
    expect["entries"] = {entry.server_id for entry in entries}
    for what, found in expect.items():
        names = sorted(map(cluster.name_of, found))
        wanted = sorted(map(cluster.name_of, running))
        assert names == wanted, f"{what} of {names}, while {wanted} run"
    assert (await cluster.epoch()).agreement == agreement_of(entries, None)
    await _check_versions(cluster)
    await _check_writes(cluster)
    for node in running.values():
        table = node.server.coordinator.table
        assert table.find(node.server.resource()) is not None, f"{node.server.name} is closed"


async def check_keys_agree(cluster: Cluster) -> None:
    """Servers that have all read the same file write with its first key."""
    report = await cluster.report()
    if report is not None and cluster.running():
        assert len({entry.key_id for entry in report.entries}) == 1, report.entries
        assert all(entry.preferred_key is None for entry in report.entries), report.entries


async def _tails(cluster: Cluster, prefix: str) -> set[str]:
    found = (await cluster.storage.range(Span.of_prefix(prefix))).items
    return {item.key.rpartition("/")[2] for item in found}


async def _check_versions(cluster: Cluster) -> None:
    report = await cluster.report()
    assert report is not None
    written = {entry.server_id: entry.encoding_version for entry in report.entries}
    preferred = {node.id: PREFERRED[node.release] for node in cluster.running().values()}
    if next(iter(cluster.running().values())).mode == "report":
        assert written == preferred
        return
    votes = await cluster.votes()
    assert len(votes) == 1, f"{len(votes)} ballots for one resource"
    (vote,) = votes
    assert dict(vote.candidates) == preferred
    assert await cluster.selected() == vote.selected
    assert set(written.values()) == {vote.selected}
    if len(set(preferred.values())) == 1:
        assert {vote.selected} == set(preferred.values()), "all want the same, and do not get it"


async def _check_writes(cluster: Cluster) -> None:
    for name, node in cluster.running().items():
        await cluster.run(node.server.write(f"healed-{name}", by=name))
        report = await cluster.report()
        assert report is not None
        (entry,) = [entry for entry in report.entries if entry.server_id == node.id]
        version = entry.encoding_version.rpartition("/")[2]
        assert await cluster.stored(f"healed-{name}") == version


def check_history(cluster: Cluster, *, is_fenced: bool) -> None:
    """At every revision: each written version is reported, agreed on and listed; server IDs are
    never
    reused, lists only grow, and each server keeps its identity unless it was disturbed."""
    now: dict[Key, Item] = {}
    past: set[Key] = set()
    incarnations: dict[str, set[str]] = {}
    epoch, persisted = 0, frozenset[str]()
    for entry in cluster.storage._log:
        before = dict(now)
        for event in entry.events:
            if event.value is None:
                now.pop(event.key, None)
                past.add(event.key)
            else:
                if event.key.startswith(SERVERS_PREFIX):
                    assert event.key not in past, f"{event.key} has come back"
                    _note_incarnation(incarnations, event.key, event.value)
                now[event.key] = Item(event.key, event.value, event.revision, event.created)
        for event in entry.events:
            if event.key.startswith(WIDGETS_ROOT) and event.value is not None:
                _check_write(before, event.value, is_fenced=is_fenced)
        if report_key(WIDGETS) in now:
            _check_entries(now)
        if epoch_key(WIDGETS) in now:
            found = decode_epoch(now[epoch_key(WIDGETS)].value).epoch
            assert found >= epoch, "the epoch went back"
            epoch = found
        if state_key(WIDGETS) in now:
            hashes = frozenset(decode_state(now[state_key(WIDGETS)]).state.persisted)
            assert hashes >= persisted, f"{persisted - hashes} are listed no more"
            persisted = hashes
    for node in (*cluster.nodes.values(), *cluster.ended):
        if not node.was_disturbed:
            count = len(incarnations.get(node.server.name, ()))
            assert count <= 1, f"{node.server.name} had {count} identities, undisturbed"


def _note_incarnation(incarnations: dict[str, set[str]], key: str, value: bytes) -> None:
    record = decode_record(value)
    assert isinstance(record, ServerRecord)
    incarnations.setdefault(record.host, set()).add(key)


def _check_entries(now: dict[Key, Item]) -> None:
    """Each server has one entry, and can decode all stored objects."""
    entries = decode_report(now[report_key(WIDGETS)]).report.entries
    ids = [entry.server_id for entry in entries]
    assert len(ids) == len(set(ids)), "a server has two entries"
    found = [open_any(i.value) for key, i in now.items() if key.startswith(WIDGETS_ROOT)]
    stored = {version_of(each.value) for each in found}
    for entry in entries:
        if Key(SERVERS_PREFIX + entry.server_id) in now:
            unread = stored - set(entry.decodable_versions)
            assert not unread, f"{entry.server_id} cannot read {unread}, which is stored"
            sealed = [e.key_id for e in found if not is_readable(e.key_id, entry.readable_keys)]
            assert not sealed, f"{entry.server_id} cannot read {sealed}, which is stored"


def _check_write(before: dict[Key, Item], value: bytes, *, is_fenced: bool) -> None:
    opened = open_any(value)
    version, key_id = version_of(opened.value), opened.key_id
    state = decode_state(before[state_key(WIDGETS)]).state
    assert (key_id or IDENTITY) in state.keys, f"{key_id} is stored, and not listed"
    assert storage_version_hash(GroupVersionKind.of(version, "Widget")) in state.persisted, (
        f"{version} is stored, and not listed"
    )
    if not is_fenced:
        return
    report = decode_report(before[report_key(WIDGETS)]).report
    reported = {entry.encoding_version for entry in report.entries}
    assert version in reported, f"{version} is written, and reported by nobody"
    agreed = decode_epoch(before[epoch_key(WIDGETS)].value).agreement
    written = Agreement(version, key_id)
    assert agreed in (None, written), f"{written} is written, {agreed} agreed"
    assert key_id in {entry.key_id for entry in report.entries}, f"{key_id} is reported by nobody"
    selected = before.get(Key(SELECTED_PREFIX + WIDGETS))
    assert selected is None or selected.value.decode() == version, f"{version} is not selected"
