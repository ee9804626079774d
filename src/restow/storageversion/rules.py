"""The rules of agreement, pure: values in, values out, time is an argument.

A *report* is what is known of one resource: an entry for each server that may write it, the version
they have in common, conditions, and the *agreement* with its *epoch*. The epoch grows in each
change after which the agreed value differs from before, to or from "none" included; an entry that
equals the agreement comes and goes without a trace in it. Whoever has seen an epoch twice knows
that everything written in between was written as agreed.

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

VERSIONS_EQUAL: Final = "AllEncodingVersionsEqual"
KEYS_EQUAL: Final = "AllEncryptionKeysEqual"
UNKNOWN_HASH: Final = migration_v1alpha1.UNKNOWN_HASH
UNFENCED: Final = "UnfencedServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionEntry:
    """How one server writes a resource, and what it can read."""

    server_id: ServerId
    encoding_version: str
    decodable_versions: tuple[str, ...]
    served_versions: tuple[str, ...] = ()
    key_id: str = ""
    """The encryption key it writes with; empty: none."""
    readable_keys: tuple[str, ...] = (IDENTITY,)
    """The encryption keys it can read, as `restow.apis.encryption_keys` says."""
    preferred_key: str | None = None
    """The key it would write with, if all others could read it. None: the one it writes with."""
    store: str = ""
    """The id of the store in which it keeps its keys; empty: the one that the report is in."""
    sequence: int = 0
    """Of an entry with a store: the revision there at which it was said. Newer words win."""
    other_versions: tuple[str, ...] = ()
    """Further versions that it may write just now: a server without a fence is switching to another
    version, and writes that it has sent before may still land."""
    loose_seconds: float = 0.0
    """For so long after a change it may go on writing as before; 0: it is fenced."""
    location: str = ""
    """The form of the keys under which it stores objects (`Resource.location`); empty: unknown,
    it was written by a server that did not say."""
    definition: str = ""
    """The uid of the definition of a custom resource that it was made from."""
    is_closing: bool = False
    """That definition is being deleted, and the server creates nothing more."""

    @property
    def written(self) -> tuple[str, ...]:
        """All versions that it may write."""
        return (self.encoding_version, *self.other_versions)


class Agreement(NamedTuple):
    """What all servers write."""

    version: str
    key_id: str = ""


class Obstacle(NamedTuple):
    """Why there can be no agreement, whatever the entries say."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementCondition:
    type: str
    status: str
    reason: str
    message: str
    since: str
    """When the status or the agreed value last changed."""
    observed_generation: int | None = None
    """Set by other writers, and kept: StorageVersions have no generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageVersionEntries:
    """What is known of how one resource is written."""

    entries: tuple[StorageVersionEntry, ...] = ()
    common_version: str | None = None
    conditions: tuple[AgreementCondition, ...] = ()
    agreement: Agreement | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistedVersions:
    """Which versions a resource may be stored in, as hashes, and under which encryption keys."""

    persisted: tuple[str, ...] = (UNKNOWN_HASH,)
    """Never empty: without a record, objects may be stored in any version."""
    current: str = ""
    epoch: int = 0
    keys: tuple[str, ...] = (IDENTITY,)
    """If a version is unknown, so are the keys."""
    unreported: str = ""
    """The last server that wrote without reporting, as far as this state takes it into account."""
    verifier: str = ""
    """On whose evidence hashes may be removed (`restow.apis.names`); empty: never recorded."""


# Entries.


def with_entry(
    entries: tuple[StorageVersionEntry, ...], entry: StorageVersionEntry
) -> tuple[StorageVersionEntry, ...]:
    """The entries with this one in the place of its server's earlier one, or at the end."""
    if any(other.server_id == entry.server_id for other in entries):
        return tuple(entry if other.server_id == entry.server_id else other for other in entries)
    return (*entries, entry)


def without(
    entries: tuple[StorageVersionEntry, ...], gone: Collection[ServerId]
) -> tuple[StorageVersionEntry, ...]:
    return tuple(entry for entry in entries if entry.server_id not in gone)


def are_remote(entries: Collection[StorageVersionEntry]) -> bool:
    """Whether a resource is kept in another store, by servers that have their keys there."""
    return bool(entries) and all(entry.store for entry in entries)


def common_version(entries: Iterable[StorageVersionEntry]) -> str | None:
    """The version that all write; None when they differ, and when there is nobody."""
    versions = {version for entry in entries for version in entry.written}
    return versions.pop() if len(versions) == 1 else None


def agreement_of(
    entries: Iterable[StorageVersionEntry], obstacle: Obstacle | None
) -> Agreement | None:
    found = {Agreement(version, e.key_id) for e in entries for version in e.written}
    return found.pop() if obstacle is None and len(found) == 1 else None


def obstacle_to(
    entries: Iterable[StorageVersionEntry],
    modes: Mapping[ServerId, Mode],
    unfenced: Collection[str],
) -> Obstacle | None:
    """What stands against an agreement.

    `modes` are those of all servers that live, `unfenced` the ids of those that write without
    guarding what they write. None of them writes into a store that is not theirs.
    """
    entries = tuple(entries)
    if are_remote(entries):
        return None
    careless = sorted({*unfenced, *(server for server, mode in modes.items() if mode == "off")})
    if careless:
        return Obstacle(
            UNFENCED,
            f"these servers write without a fence: {', '.join(careless)}",
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
    """The report with other entries, and all that follows from them."""
    common = None if obstacle is not None else common_version(entries)
    agreement = agreement_of(entries, obstacle)
    return StorageVersionEntries(
        entries=entries,
        common_version=common,
        conditions=_conditions_after(before, entries, common, obstacle, now),
        agreement=agreement,
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
        status, reason, message = "True", "CommonEncodingVersionSet", "Common encoding version set"
    else:
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
    """Who would write with another key, and who cannot read it yet; empty: nobody would.

    When all can read it, that server is about to register with it.
    """
    for entry in entries:
        wanted = entry.preferred_key
        if wanted is not None and wanted != entry.key_id:
            blind = [e.server_id for e in entries if not is_readable(wanted, e.readable_keys)]
            to_come = f"{entry.server_id} is to write with {wanted or IDENTITY}, which"
            if not blind:
                return f"{to_come} all servers can read"
            return f"{to_come} {', '.join(sorted(blind))} cannot read"
    return ""


def _transition(
    old: AgreementCondition | None, new: AgreementCondition, *, moved: bool
) -> AgreementCondition:
    """The new condition, with the old time if neither its status nor its value has changed."""
    if old is None:
        return new
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
    """The state when versions with the hashes `written` may be stored from now on, under `keys`.

    `agreed` is the hash of what all write, `epoch` that of the agreement. A state that is new
    begins as unknown, since nobody knows what was stored before there was one; it becomes so again
    (`is_unknown`) when somebody writes who does not say how, and when a server has done so that it
    does not take into account (`unreported`, the last one). An empty `verifier` keeps the old one.
    """
    state = before or PersistedVersions()
    if unreported and unreported != state.unreported:
        is_unknown = True
    if is_unknown and UNKNOWN_HASH not in state.persisted:
        state = replace(state, persisted=(UNKNOWN_HASH, *state.persisted))
    return PersistedVersions(
        persisted=tuple(dict.fromkeys((*state.persisted, *written))),
        current=agreed or state.current,
        epoch=epoch,
        keys=tuple(dict.fromkeys((*state.keys, *(key or IDENTITY for key in keys)))),
        unreported=unreported or state.unreported,
        verifier=verifier or state.verifier,
    )


def verifier_of(entries: Iterable[StorageVersionEntry], aggregated: Collection[ServerId]) -> str:
    """On whose evidence hashes of a resource with these entries may be removed.

    A server verifies what it rewrites itself: objects in its own store, written under a fence. The
    main servers cannot rewrite what only `aggregated` servers, or servers with another store, host.
    Empty without entries.
    """
    entries = tuple(entries)
    if not entries:
        return ""
    is_fenced = not any(entry.loose_seconds for entry in entries)
    is_hosted = any(not e.store and e.server_id not in aggregated for e in entries)
    return VERIFIED_BY_SERVERS if is_fenced and is_hosted else VERIFIED_BY_MIGRATOR


def undecodable(persisted: Iterable[str], decodable: Collection[str]) -> list[str]:
    """The hashes that may be stored and that a server cannot read. "Unknown" is not judged here."""
    return [value for value in persisted if value != UNKNOWN_HASH and value not in decodable]
