"""Whether an encryption key can be removed from the servers' configurations. Pure.

    no server writes with it, or waits to do so       StorageVersions
    no object may be stored under it                  StorageStates, none of them "Unknown"
    no value is stored under it                       a census of the raw store
    the name of the key is known                      any of these

All of them are checked, since each can miss something: a server that is just starting, a state that
was edited, a value that was restored from a backup. Whatever could not be checked is a blocker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY
from restow.migration.encryption_keys import (
    PLAIN,
    UNKNOWN_KEY,
    ReportedKeys,
    is_called,
    is_known,
    labels_of,
)
from restow.migration.preflight.values import (
    UNKNOWN,
    PreflightFinding,
    PreflightReport,
    Reason,
    not_seen,
)

NOT_COUNTED: Final = (
    "older revisions, until they are compacted, and backups that were made before may still need it"
)
KNOWN_SHOWN_MAX: Final = 10
_KMS: Final = "kms"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedResource:
    """The encryption keys of one resource."""

    resource: GroupResource
    said: ReportedKeys
    persisted: tuple[str, ...] | None = None
    """The persisted hashes of its StorageState; None: there is no state."""
    keys: tuple[str, ...] = PLAIN
    """The persisted keys of its StorageState."""

    @property
    def may_be_encrypted(self) -> bool:
        return self.said.is_encrypted or self.keys != PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedView:
    """The encryption keys of a cluster."""

    server: str = ""
    version: str = ""
    resources: tuple[KeyedResource, ...] = ()
    says_keys: bool = True
    """Whether its servers report encryption keys."""
    unseen: tuple[str, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The ids of all keys that servers use, or that StorageStates list."""
        found = {key for each in self.resources for key in each.keys}
        for said in (each.said for each in self.resources):
            found.update(said.writes.values(), said.prefers.values(), *said.reads.values())
        return frozenset(found - {IDENTITY, UNKNOWN_KEY})

    @property
    def servers(self) -> frozenset[str]:
        """All servers that report and that write to the cluster's own store."""
        return frozenset(
            server
            for each in self.resources
            for server in each.said.writes
            if server not in each.said.stores
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCount:
    """The result of a census of the raw store."""

    address: str
    problem: str = ""
    """The reason why the count is no evidence: the store could not be read, or is that of another
    cluster. Empty: it is."""
    left: tuple[tuple[str, int], ...] = ()
    """Resources, and the number of their objects under the key."""
    undecided: tuple[tuple[str, int], ...] = ()
    """Resources, and the number of encrypted objects that do not name their key."""


def judge_key_removal(name: str, view: KeyedView, store: StoreCount) -> PreflightReport:
    """Return the blockers and warnings for removing the key of this name."""
    found = [*_whole(view)]
    warnings: list[PreflightFinding] = []
    for each in sorted(view.resources, key=lambda each: str(each.resource)):
        if name == IDENTITY and not each.may_be_encrypted:
            continue  # an unencrypted resource is readable without any configuration
        found += _of_servers(name, each)
        found += _of_state(name, each)
        warnings += _elsewhere(name, each)
    found += _unknown_name(name, view, store)
    found += _counted(name, view, store)
    return PreflightReport(
        target=f"without the key {name}",
        blockers=tuple(found),
        warnings=tuple(warnings),
        checked=len(view.resources),
        notes=(NOT_COUNTED,),
    )


def _whole(view: KeyedView) -> Iterator[PreflightFinding]:
    yield from not_seen(view.unseen)
    if not view.says_keys:
        yield PreflightFinding(
            reason=Reason.UNSEEN,
            what="the servers do not report with which encryption keys they write",
            why="only restow servers do",
            advice="check that no configuration lists the key first; restow census --key counts"
            " the values that are stored under it",
        )


def _of_servers(name: str, view: KeyedResource) -> Iterator[PreflightFinding]:
    writing = _who(name, view.said.writes)
    if writing:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.KEY_WRITTEN,
            what=f"is written with {name}",
            why=f"by {', '.join(writing)}",
            advice="put another key first in the encryption configuration of all servers",
        )
    waiting = _who(name, view.said.prefers)
    if waiting:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.KEY_PREFERRED,
            what=f"will be written with {name} as soon as all servers can read it",
            why=f"the configuration of {', '.join(waiting)} lists it first",
            advice="put another key first in the encryption configuration of"
            f" {', '.join(waiting)}; the running server reloads it",
        )


def _who(name: str, said: Mapping[str, str]) -> list[str]:
    return sorted(
        server for server, key in said.items() if key == UNKNOWN_KEY or is_called(key, name)
    )


def _of_state(name: str, view: KeyedResource) -> Iterator[PreflightFinding]:
    if not view.may_be_encrypted:
        return
    migrate = f"rewrite them first: restow migrate {view.resource}"
    if why := _why_unknown(view):
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNKNOWN,
            what="it is not known under which keys objects are stored",
            why=why,
            advice=migrate,
        )
        return
    listed = [each for each in view.keys if each == UNKNOWN_KEY or is_called(each, name)]
    if listed:
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.KEY_STORED,
            what=f"objects may be stored under {', '.join(listed)}",
            why="its StorageState lists it",
            advice=f"wait for the migration to the new key, or {migrate}",
        )


def _why_unknown(view: KeyedResource) -> str:
    """The reason why its StorageState is unreliable; empty if it is reliable."""
    if view.persisted is None:
        return "it has no StorageState"
    if UNKNOWN in (view.persisted or (UNKNOWN,)):
        return 'its StorageState says "Unknown"'
    # Servers list a key before they write with it: a client has edited the state.
    unlisted = sorted(set(view.said.writes.values()).difference(view.keys))
    if unlisted:
        return f"its StorageState does not list {', '.join(unlisted)}, which servers write with"
    return ""


def _elsewhere(name: str, view: KeyedResource) -> Iterator[PreflightFinding]:
    """Report aggregated servers with their own store, which the census has not counted."""
    if not view.said.stores or not view.may_be_encrypted:
        return
    if any(is_called(key, name) for keys in view.said.reads.values() for key in keys):
        yield PreflightFinding(
            resource=view.resource,
            reason=Reason.UNSEEN,
            what=f"is stored by {', '.join(sorted(view.said.stores))} in another store",
            why=f"those servers have a key {name} too, and their store was not counted",
            advice=f"to remove it there as well: restow census --store ADDRESS --key {name}",
        )


def _unknown_name(name: str, view: KeyedView, store: StoreCount) -> Iterator[PreflightFinding]:
    """Block unknown names: no other rule would find anything about a misspelt name."""
    if store.problem or store.left or not view.says_keys or is_known(name, view.keys):
        return
    known = sorted(labels_of(view.keys).values())
    listed = ", ".join([*known[:KNOWN_SHOWN_MAX], *["…"][: len(known) > KNOWN_SHOWN_MAX]])
    yield PreflightFinding(
        reason=Reason.KEY_UNKNOWN,
        what=f"no server, no StorageState and no value knows a key {name}",
        why="it is misspelt, or was taken out of all configurations before",
        advice=f"use the name in the configuration; known keys: {listed or 'none'}",
    )


def _namesakes(name: str, view: KeyedView) -> list[str]:
    """The keys with another secret under the same name, for a name with a fingerprint."""
    provider, _, rest = name.partition(":")
    if provider == _KMS or ":" not in rest:
        return []
    short = name.rpartition(":")[0]
    return sorted(each for each in view.keys if each != name and is_called(each, short))


def _counted(name: str, view: KeyedView, store: StoreCount) -> Iterator[PreflightFinding]:
    if store.problem:
        yield PreflightFinding(
            reason=Reason.UNSEEN,
            what=f"the store {store.address} was not counted",
            why=store.problem,
            advice="give the store of this cluster with --store or --data-dir, and run it where the"
            " store can be read",
        )
    namesakes = _namesakes(name, view)
    for resource, objects in store.left:
        many = f"{objects:,} object{'s' * (objects != 1)}"
        kind = "not encrypted" if name == IDENTITY else f"under {name}"
        if namesakes:
            yield _ambiguous(name, resource, many, namesakes)
            continue
        yield PreflightFinding(
            resource=_resource(resource),
            reason=Reason.KEY_FOUND,
            what=f"{many} {'is' if objects == 1 else 'are'} stored {kind}",
            why=f"found in {store.address}",
            advice=f"rewrite them first: restow migrate {resource} --force",
        )
    for resource, objects in store.undecided:
        yield PreflightFinding(
            resource=_resource(resource),
            reason=Reason.UNSEEN,
            what=f"{objects:,} encrypted values do not name their key",
            why=f"found in {store.address}",
            advice=f"list them: restow census --key {name} --list-stale",
        )


def _ambiguous(name: str, resource: str, many: str, namesakes: list[str]) -> PreflightFinding:
    short = name.rpartition(":")[0]
    return PreflightFinding(
        resource=_resource(resource),
        reason=Reason.KEY_FOUND,
        what=f"{many} stored under {short}, with this secret or another one",
        why="a value contains the name of its key but not the secret, and there is another secret"
        f" of that name: {', '.join(namesakes)}",
        advice=f"rotate once more, to a key with a name that no other has had; then check {short}",
    )


def _resource(name: str) -> GroupResource:
    resource, _, group = name.partition(".")
    return GroupResource(group, resource)
