"""Encryption keys of a resource: those it is written with, and what blocks a rotation.

    all write with one key                       no problem
    servers write with different keys            no migration starts until they agree
    all write with one, some wait for another    the rotation continues when all can read that one

Pure. Not here: how it is printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from restow.apis.encryption_keys import IDENTITY
from restow.migration.encryption_keys import PLAIN, ReportedKeys, labels_of


class KeyProblem(NamedTuple):
    """A problem that blocks the use of a key, and its remedy."""

    what: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysSeen:
    """The encryption keys of one resource, by their ids."""

    agreed: str
    """The key with which all servers write; empty if they differ, or do not report."""
    servers: tuple[tuple[str, str], ...] = ()
    """Each server that reports, and the key with which it writes."""
    waiting: tuple[tuple[str, str], ...] = ()
    """The servers that wait for permission to write with another key, each with that key."""
    blind: tuple[tuple[str, str], ...] = ()
    """The servers that cannot read one of those keys, each with that key."""
    persisted: tuple[str, ...] = PLAIN
    """The keys under which objects may be stored."""

    @property
    def differ(self) -> bool:
        return bool(self.servers) and not self.agreed

    @property
    def is_left(self) -> bool:
        """Whether objects may be stored under other keys than the current one."""
        return bool(self.agreed) and self.persisted != (self.agreed,)

    @property
    def all_ids(self) -> frozenset[str]:
        pairs = (*self.servers, *self.waiting)
        return frozenset((*self.persisted, *(key for _, key in pairs)))

    @property
    def problem(self) -> KeyProblem | None:
        names = labels_of(self.all_ids)
        if self.differ:
            return _differing(self.servers, names)
        if self.waiting:
            return _pending(self.waiting, self.blind, names)
        return None


def keys_seen(said: ReportedKeys, persisted: tuple[str, ...]) -> KeysSeen | None:
    """Return the keys of a resource; None if no server encrypts it."""
    if not said.is_encrypted and persisted == PLAIN:
        return None
    wanted = sorted(set(said.prefers.values()))
    return KeysSeen(
        agreed=said.agreed,
        servers=tuple(said.writes.items()),
        waiting=tuple(said.prefers.items()),
        blind=tuple((server, key) for key in wanted for server in said.servers_unable_to_read(key)),
        persisted=persisted,
    )


def key_problems(found: Iterable[tuple[str, KeysSeen | None]]) -> list[tuple[str, KeyProblem]]:
    """Each problem once, with the resources that have it: `secrets, configmaps`."""
    problems: dict[KeyProblem, list[str]] = {}
    for resource, keys in found:
        problem = None if keys is None else keys.problem
        if problem is not None:
            problems.setdefault(problem, []).append(resource)
    return [(", ".join(resources), problem) for problem, resources in problems.items()]


def _differing(servers: Iterable[tuple[str, str]], names: dict[str, str]) -> KeyProblem:
    return KeyProblem(
        f"servers write with different encryption keys: {_who(servers, names)}",
        "no rotation ends until they agree: give all servers the same encryption configuration,"
        " whose first key is the one that is written with",
    )


def _pending(
    waiting: Iterable[tuple[str, str]], blind: Iterable[tuple[str, str]], names: dict[str, str]
) -> KeyProblem:
    wanted = _who(waiting, names, verb="would write with")
    blind = list(blind)
    if not blind:
        return KeyProblem(
            f"{wanted}, which all servers can read",
            "wait: the servers change to it by themselves",
        )
    by_key: dict[str, list[str]] = {}
    for server, key in blind:
        by_key.setdefault(names.get(key, key), []).append(server)
    unread = "; ".join(f"{', '.join(who)} cannot read {key}" for key, who in by_key.items())
    keys = " and ".join("plain values" if key == IDENTITY else key for key in by_key)
    return KeyProblem(
        f"{wanted}, but {unread}",
        f"add {keys} to the encryption configuration of those servers; it need not be first",
    )


def _who(
    pairs: Iterable[tuple[str, str]], names: dict[str, str], *, verb: str = "writes with"
) -> str:
    """Group servers by key: `a, b write with aesgcm:key1; c writes with aesgcm:key2`."""
    by_key: dict[str, list[str]] = {}
    for server, key in pairs:
        by_key.setdefault(names.get(key, key), []).append(server)
    return "; ".join(
        f"{', '.join(sorted(who))} {verb if len(who) == 1 else _plural(verb)} {key}"
        for key, who in sorted(by_key.items())
    )


def _plural(verb: str) -> str:
    return "write with" if verb == "writes with" else verb
