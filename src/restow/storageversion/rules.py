"""The rules of agreement as pure functions: values in, values out; time is an argument.

A *report* holds the state of one resource: an entry for each server that may write it, their common
version, conditions, and the *agreement* with its *epoch*. The epoch increases with each change of
the agreement, to or from "none" included; adding or removing an entry that equals the agreement
does not change it. Two reads of the same epoch prove that everything written in between is in the
agreed version.

Not here: where a report is stored (`object_codec`), in which transaction it changes (`changes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from restow.apis import migration_v1alpha1
from restow.apis.encryption_keys import IDENTITY, is_readable
from restow.apis.names import VERIFIED_BY_MIGRATOR, VERIFIED_BY_SERVERS
from restow.storageversion.identity import Mode, ServerId

# KEP-2339 3.13: the type of the condition
VERSIONS_EQUAL: Final = "AllEncodingVersionsEqual"
KEYS_EQUAL: Final = "AllEncryptionKeysEqual"
UNKNOWN_HASH: Final = migration_v1alpha1.UNKNOWN_HASH
UNFENCED: Final = "UnfencedServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionEntry:
    """The entry of one server: the version and key that it writes a resource with, and those that
    it can read."""

    server_id: ServerId
    encoding_version: str
    decodable_versions: tuple[str, ...]
    served_versions: tuple[str, ...] = ()
    key_id: str = ""
    """The encryption key that the server writes with; empty: none."""
    readable_keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys that the server can read, in the form of
    `restow.apis.encryption_keys`."""
    preferred_key: str | None = None
    """The key that the server would write with if all others could read it. None: `key_id`."""
    store: str = ""
    """The id of the store that holds the server's keys; empty: the store of this StorageVersion."""
    sequence: int = 0
    """For an entry with a store: the revision of that store at which it was reported. An entry with
    a higher one is newer, and replaces this one."""
    other_versions: tuple[str, ...] = ()
    """Further versions that the server may write at present: a server without a fence is switching
    to another version, and earlier writes may still commit."""
    loose_seconds: float = 0.0
    """How long after a change the server may go on writing the previous version; 0: it is
    fenced."""
    location: str = ""
    """The form of the keys under which the server stores objects (`Resource.location`); empty:
    unknown, because the server did not report it."""
    definition: str = ""
    """The uid of the CRD that a custom resource comes from."""
    is_closing: bool = False
    """Whether the CRD is being deleted, so that the server creates no more objects."""

    @property
    def written(self) -> tuple[str, ...]:
        """All versions that the server may write."""
        return (self.encoding_version, *self.other_versions)


class Agreement(NamedTuple):
    """The version and encryption key that all servers write with."""

    version: str
    key_id: str = ""


class Obstacle(NamedTuple):
    """A reason against any agreement, whatever the entries are."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementCondition:
    type: str
    status: str
    reason: str
    message: str
    since: str
    """The time at which the status or the agreed value last changed."""
    # KEP-2339 3.14: the generation that another writer has set
    observed_generation: int | None = None
    """Set by other writers, and kept: StorageVersions have no generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionEntries:
    """The entries of all servers for one resource, and the agreement that follows from them."""

    entries: tuple[StorageVersionEntry, ...] = ()
    common_version: str | None = None
    conditions: tuple[AgreementCondition, ...] = ()
    agreement: Agreement | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedVersions:
    """The hashes of the versions, and the encryption keys, in which a resource may be stored."""

    persisted: tuple[str, ...] = (UNKNOWN_HASH,)
    """Never empty: without a record, objects may be stored in any version."""
    current: str = ""
    epoch: int = 0
    keys: tuple[str, ...] = (IDENTITY,)
    """If a version is unknown, the keys are unknown too."""
    unreported: str = ""
    """The last server that wrote without reporting and that this state accounts for."""
    verifier: str = ""
    """The verifier whose evidence allows the removal of hashes (`restow.apis.names`); empty: none
    is recorded."""


# Entries.


def with_entry(
    entries: tuple[StorageVersionEntry, ...], entry: StorageVersionEntry
) -> tuple[StorageVersionEntry, ...]:
    """Return the entries with this one in place of its server's earlier one, or at the end."""
    if any(other.server_id == entry.server_id for other in entries):
        return tuple(entry if other.server_id == entry.server_id else other for other in entries)
    return (*entries, entry)


def without(
    entries: tuple[StorageVersionEntry, ...], gone: Collection[ServerId]
) -> tuple[StorageVersionEntry, ...]:
    return tuple(entry for entry in entries if entry.server_id not in gone)


def are_remote(entries: Collection[StorageVersionEntry]) -> bool:
    """Return whether a resource is stored in another store, whose servers have their keys there."""
    return bool(entries) and all(entry.store for entry in entries)


def common_version(entries: Iterable[StorageVersionEntry]) -> str | None:
    """Return the version that all servers write; None when they differ or there are no entries."""
    versions = {version for entry in entries for version in entry.written}
    # KEP-2339 3.8: set when all servers write one version, otherwise empty
    return versions.pop() if len(versions) == 1 else None


def agreement_of(
    entries: Iterable[StorageVersionEntry], obstacle: Obstacle | None
) -> Agreement | None:
    # KEP-2339 3.71: servers agree on a version and an encryption key
    found = {Agreement(version, e.key_id) for e in entries for version in e.written}
    return found.pop() if obstacle is None and len(found) == 1 else None


def obstacle_to(
    entries: Iterable[StorageVersionEntry],
    modes: Mapping[ServerId, Mode],
    unfenced: Collection[str],
) -> Obstacle | None:
    """Return the reason against an agreement; None: there is none.

    `modes` lists all participating servers, `unfenced` the ids of servers that write without a
    fence. None of them writes to another store.
    """
    entries = tuple(entries)
    if are_remote(entries):
        return None
    without_fence = {*unfenced, *(server for server, mode in modes.items() if mode == "off")}
    if without_fence:
        return Obstacle(
            UNFENCED,
            f"these servers write without a fence: {', '.join(sorted(without_fence))}",
        )
    found = {modes[entry.server_id] for entry in entries if entry.server_id in modes}
    if len(found) > 1:
        return Obstacle(
            "MixedCoordinationModes",
            f"servers that coordinate in different modes report: {', '.join(sorted(found))}",
        )
    return None


# Reports.


def report_after(
    before: StorageVersionEntries,
    entries: tuple[StorageVersionEntry, ...],
    *,
    obstacle: Obstacle | None,
    now: str,
) -> StorageVersionEntries:
    """Return the report with other entries, and the agreement and conditions that follow."""
    # KEP-2339 3.21: the common version if all entries agree, otherwise none
    common = None if obstacle is not None else common_version(entries)
    # KEP-2339 3.36: compute the agreement again after every change of the entries
    agreement = agreement_of(entries, obstacle)
    return StorageVersionEntries(
        entries=entries,
        common_version=common,
        conditions=_conditions_after(before, entries, common, obstacle, now),
        agreement=agreement,
        # KEP-1201 0.30: count changes of the agreement, so that none is missed between two reads
        epoch=before.epoch + (agreement != before.agreement),
    )


def _conditions_after(
    before: StorageVersionEntries,
    entries: tuple[StorageVersionEntry, ...],
    common: str | None,
    obstacle: Obstacle | None,
    now: str,
) -> tuple[AgreementCondition, ...]:
    versions = _versions_condition(common, obstacle, now)
    moved = None not in (before.common_version, common) and before.common_version != common
    conditions = {condition.type: condition for condition in before.conditions}
    # KEP-2339 3.10: the condition follows from the entries
    conditions[VERSIONS_EQUAL] = _transition(conditions.get(VERSIONS_EQUAL), versions, moved=moved)
    if any(entry.key_id or entry.preferred_key for entry in entries):
        keys = {entry.key_id for entry in entries}
        old = {entry.key_id for entry in before.entries}
        conditions[KEYS_EQUAL] = _transition(
            conditions.get(KEYS_EQUAL),
            _keys_condition(entries, now),
            moved=len(keys) == len(old) == 1 and keys != old,
        )
    else:
        conditions.pop(KEYS_EQUAL, None)
    return tuple(conditions.values())


def _versions_condition(
    common: str | None, obstacle: Obstacle | None, now: str
) -> AgreementCondition:
    if common is not None:
        # KEP-2339 3.13: status, reason and message are those of Kubernetes
        status, reason, message = "True", "CommonEncodingVersionSet", "Common encoding version set"
    else:
        # KEP-35 1.11: servers that disagree say so in a condition
        status, reason = "False", "CommonEncodingVersionUnset"
        message = "Common encoding version unset"
        if obstacle is not None:
            reason, message = obstacle
    return AgreementCondition(
        type=VERSIONS_EQUAL, status=status, reason=reason, message=message, since=now
    )


def _keys_condition(entries: tuple[StorageVersionEntry, ...], now: str) -> AgreementCondition:
    status, reason, message = "True", "CommonEncryptionKeySet", "All servers write with one key"
    if len({entry.key_id for entry in entries}) > 1:
        status, reason, message = "False", "CommonEncryptionKeyUnset", "Servers use different keys"
    elif waiting := _waiting_for_keys(entries):
        status, reason, message = "False", "EncryptionKeyPending", waiting
    return AgreementCondition(
        type=KEYS_EQUAL, status=status, reason=reason, message=message, since=now
    )


def _waiting_for_keys(entries: tuple[StorageVersionEntry, ...]) -> str:
    """Describe a server that waits for its preferred key; empty: none does.

    When all servers can read the key, that server is about to register with it.
    """
    for entry in entries:
        preferred = entry.preferred_key
        if preferred is not None and preferred != entry.key_id:
            lacking = [e.server_id for e in entries if not is_readable(preferred, e.readable_keys)]
            pending = f"{entry.server_id} is to write with {preferred or IDENTITY}, which"
            if not lacking:
                return f"{pending} all servers can read"
            return f"{pending} {', '.join(sorted(lacking))} cannot read"
    return ""


def _transition(
    old: AgreementCondition | None, new: AgreementCondition, *, moved: bool
) -> AgreementCondition:
    """Return the new condition, with the old time if neither its status nor its value has
    changed."""
    if old is None:
        return new
    # KEP-2339 3.15: the time of the last transition
    kept = replace(new, observed_generation=old.observed_generation)
    return replace(kept, since=old.since) if old.status == new.status and not moved else kept


# States.


def state_after(
    before: PersistedVersions | None,
    *,
    written: Iterable[str],
    agreed: str | None,
    epoch: int,
    keys: Iterable[str] = (),
    is_unknown: bool = False,
    unreported: str = "",
    verifier: str = "",
) -> PersistedVersions:
    """Return the state after versions with the hashes `written`, and `keys`, were added to it.

    `agreed` is the hash of the agreed version, `epoch` the epoch of the agreement. A new state
    begins with "Unknown", because no record shows what was stored before. "Unknown" is added again
    while a server writes without reporting (`is_unknown`), and when such a server has written that
    the state does not account for (`unreported`, the last one). An empty `verifier` keeps the old
    one.
    """
    # KEP-2343 4.8: a state begins as Unknown
    state = before or PersistedVersions()
    # KEP-2339 3.62: what such a server has written is unknown
    if unreported and unreported != state.unreported:
        is_unknown = True
    if is_unknown and UNKNOWN_HASH not in state.persisted:
        state = replace(state, persisted=(UNKNOWN_HASH, *state.persisted))
    return PersistedVersions(
        # KEP-2343 4.9: append the version that a server is about to write
        # KEP-2343 4.40: servers record every version, so none is missed between two polls
        persisted=tuple(dict.fromkeys((*state.persisted, *written))),
        current=agreed or state.current,
        epoch=epoch,
        keys=tuple(dict.fromkeys((*state.keys, *(key or IDENTITY for key in keys)))),
        unreported=unreported or state.unreported,
        verifier=verifier or state.verifier,
    )


def verifier_of(entries: Iterable[StorageVersionEntry], aggregated: Collection[ServerId]) -> str:
    """Return whose evidence allows the removal of hashes from a resource with these entries.

    A server verifies objects in its own store that it rewrites under a fence. The main servers
    cannot rewrite a resource that only `aggregated` servers, or servers with another store, host.
    Empty without entries.
    """
    entries = tuple(entries)
    if not entries:
        return ""
    is_fenced = not any(entry.loose_seconds for entry in entries)
    is_hosted = any(not e.store and e.server_id not in aggregated for e in entries)
    return VERIFIED_BY_SERVERS if is_fenced and is_hosted else VERIFIED_BY_MIGRATOR


def undecodable(persisted: Iterable[str], decodable: Collection[str]) -> list[str]:
    """Return the persisted hashes that a server cannot read, without "Unknown"."""
    return [value for value in persisted if value != UNKNOWN_HASH and value not in decodable]
