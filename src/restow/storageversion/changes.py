"""Turns a change of one resource's server entries into one transaction.

Only this module turns entries into writes. It computes the encoder keys from the difference between
the entries before and after, so that an entry and its encoder key are created and deleted together
by every caller: registration, withdrawal, garbage collection and selection.

The transaction guards everything that it was computed from by its revision: the StorageVersion, the
epoch and the StorageState. A server whose entry is removed must have no server key. A server key is
never created twice, so any server may repeat the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import (
    Absent,
    Delete,
    Guard,
    Item,
    Key,
    Put,
    RevisionIs,
    Transaction,
    Write,
)
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.mirror import Mirror
from restow.storageversion.object_codec import (
    StoredReport,
    StoredState,
    decode_report,
    decode_state,
    encode_report,
    encode_state,
    new_metadata,
    report_key,
    state_key,
    timestamp,
)
from restow.storageversion.records import (
    MODES_KEY,
    UNREPORTED_KEY,
    Encoder,
    EpochRecord,
    decode_epoch,
    encode_encoder,
    encode_epoch,
    encoder_key,
    epoch_key,
    resource_of_name,
)
from restow.storageversion.rules import (
    UNFENCED,
    UNKNOWN_HASH,
    Agreement,
    Obstacle,
    PersistedVersions,
    StorageVersionEntries,
    StorageVersionEntry,
    are_remote,
    report_after,
    state_after,
    verifier_of,
)

REMOVED_MAX: Final = 40
"""Maximum number of servers that one transaction removes; each costs a guard and a write."""


@dataclass(frozen=True, slots=True)
class MirrorView:
    """The keys of one resource in the mirror, decoded."""

    name: str
    report_item: Item | None
    epoch_item: Item | None
    state_item: Item | None
    modes_item: Item | None
    stored: StoredReport | None
    epoch: EpochRecord | None
    state: StoredState | None
    unreported: str
    """The last server that joined to write without reporting; empty if there was none. It is
    written and mirrored together with `modes_item`."""

    @classmethod
    def of(cls, mirror: Mirror, name: str) -> MirrorView:
        # KEP-2339 3.17: get the StorageVersion
        report_item = mirror.get(report_key(name))
        epoch_item = mirror.get(epoch_key(name))
        state_item = mirror.get(state_key(name))
        return cls(
            name=name,
            report_item=report_item,
            epoch_item=epoch_item,
            state_item=state_item,
            modes_item=mirror.get(MODES_KEY),
            stored=None if report_item is None else decode_report(report_item),
            epoch=None if epoch_item is None else decode_epoch(epoch_item.value),
            state=None if state_item is None else decode_state(state_item),
            unreported=_text(mirror.get(UNREPORTED_KEY)),
        )

    @property
    def report(self) -> StorageVersionEntries:
        """The StorageVersion's entries with the agreement; empty if there is no StorageVersion."""
        found = StorageVersionEntries() if self.stored is None else self.stored.report
        if self.epoch is None:
            return found
        return StorageVersionEntries(
            entries=found.entries,
            common_version=found.common_version,
            conditions=found.conditions,
            agreement=self.epoch.agreement,
            epoch=self.epoch.epoch,
        )

    @property
    def persisted(self) -> tuple[str, ...]:
        """The persisted hashes, with "Unknown" added while the state does not account for a server
        that wrote without reporting."""
        if self.state is None:
            return (UNKNOWN_HASH,)
        known = self.state.state
        is_missing = bool(self.unreported) and self.unreported != known.unreported
        extra = (UNKNOWN_HASH,) if is_missing and not are_remote(self.report.entries) else ()
        return tuple(dict.fromkeys((*extra, *known.persisted)))

    def guards(self) -> list[Guard]:
        """Guards that fail if any of these keys has changed."""
        # KEP-2339 3.22: update only the revision that was read
        return [
            unchanged(report_key(self.name), self.report_item),
            unchanged(epoch_key(self.name), self.epoch_item),
            unchanged(state_key(self.name), self.state_item),
            unchanged(MODES_KEY, self.modes_item),
        ]


@dataclass(frozen=True, slots=True)
class StorageVersionChange:
    """A transaction that changes a resource's entries, with the entries before and after."""

    name: str
    transaction: Transaction
    before: StorageVersionEntries
    after: StorageVersionEntries

    @property
    def is_empty(self) -> bool:
        return not self.transaction.writes


def change(
    view: MirrorView,
    entries: tuple[StorageVersionEntry, ...],
    *,
    kind: str,
    obstacle: Obstacle | None,
    now: datetime,
    new_uid: Callable[[], str],
    guards: Iterable[Guard] = (),
    writes: Iterable[Write] = (),
    own: ServerId | None = None,
    selected: str | None = None,
    selection_moves: bool = False,
    location: str = "",
    aggregated: Collection[ServerId] = (),
) -> StorageVersionChange:
    """Return the transaction that changes a resource's entries to these. `kind` is the kind of its
    objects, and `location` the form of their keys; empty keeps the recorded one.

    `guards` and `writes` are added for the caller; `own` is the server that makes the change, if it
    may remove its own entry while its server key exists; `selected` is a version that may be
    written from now on and is in no entry yet. A selection that moves writes the state even if its
    content stays the same, so that a narrowing computed from an earlier read fails. `aggregated`
    are the aggregated servers of this store.

    Without entries the StorageVersion is deleted; the epoch and the state stay, because they list
    the persisted versions.
    """
    before = view.report
    after = report_after(before, entries, obstacle=obstacle, now=timestamp(now))
    own_guards, own_writes = _encoder_changes(view.name, before.entries, entries, own=own)
    found: list[Write] = [*writes, *own_writes]
    # KEP-2339 3.64: common version and entry change in one transaction
    found += _report_writes(view, after, now=now, new_uid=new_uid)
    record = _epoch_after(view, after, kind=kind, location=location)
    if record != view.epoch and (view.epoch is not None or after.entries):
        found.append(Put(epoch_key(view.name), encode_epoch(record)))
    versions = [version for entry in after.entries for version in entry.written]
    if selected is not None:
        versions.append(selected)
    is_moved = after.epoch != before.epoch or selection_moves
    is_unknown = obstacle is not None and obstacle.reason == UNFENCED
    # While a server that writes without reporting runs, its mark stays open.
    # KEP-2339 3.62: the next server that reports accounts for the mark
    unreported = "" if is_unknown or are_remote(entries) else view.unreported
    state = _state_after(
        view,
        after,
        versions,
        kind=kind,
        is_unknown=is_unknown,
        unreported=unreported,
        verifier=verifier_of(after.entries, aggregated),
    )
    found += _state_writes(view, state, is_moved=is_moved, now=now, new_uid=new_uid)
    marks = _closed_marks(view, state)
    # KEP-2339 3.37: update and delete require the revision that was read
    transaction = Transaction((*guards, *own_guards, *marks, *view.guards()), tuple(found))
    return StorageVersionChange(view.name, transaction, before, after)


def contradicted_change(view: MirrorView) -> Transaction | None:
    """Add "Unknown" to a StorageState that lists less than is stored; None if there is nothing to
    add.

    The epoch changes although the agreement stays, so that a verification that began earlier fails
    and narrows nothing.
    """
    if view.state is None or UNKNOWN_HASH in view.state.state.persisted:
        return None
    report = replace(view.report, epoch=view.report.epoch + 1)
    state = replace(
        view.state.state,
        persisted=(UNKNOWN_HASH, *view.state.state.persisted),
        epoch=report.epoch,
    )
    writes: list[Write] = [
        Put(state_key(view.name), encode_state(view.name, replace(view.state, state=state)))
    ]
    if view.epoch is not None:
        moved = msgspec.structs.replace(view.epoch, epoch=report.epoch)
        writes.append(Put(epoch_key(view.name), encode_epoch(moved)))
    if view.stored is not None:
        value = encode_report(report, view.stored.metadata)
        writes.append(Put(report_key(view.name), value))
    return Transaction(tuple(view.guards()), tuple(writes))


def encoder_of(entry: StorageVersionEntry) -> bytes:
    """Return the value of the encoder key that goes with an entry."""
    return encode_encoder(
        Encoder(entry.encoding_version, entry.key_id, entry.definition, entry.is_closing)
    )


def _encoder_changes(
    name: str,
    before: tuple[StorageVersionEntry, ...],
    after: tuple[StorageVersionEntry, ...],
    *,
    own: ServerId | None,
) -> tuple[list[Guard], list[Write]]:
    """Return the guards and writes of the encoder keys of servers on this store."""
    old = {entry.server_id: entry for entry in before if not entry.store}
    new = {entry.server_id: entry for entry in after if not entry.store}
    guards: list[Guard] = []
    writes: list[Write] = []
    for server_id in old.keys() - new.keys():
        if server_id != own:
            # KEP-2339 3.20: guard that such a server has no membership key
            guards.append(Absent(server_key(server_id)))
        writes.append(Delete(encoder_key(server_id, name)))
    for server_id, entry in new.items():
        known = old.get(server_id)
        if known is None or encoder_of(known) != encoder_of(entry):
            writes.append(Put(encoder_key(server_id, name), encoder_of(entry)))
    return guards, writes


def _report_writes(
    view: MirrorView, after: StorageVersionEntries, *, now: datetime, new_uid: Callable[[], str]
) -> list[Write]:
    key = report_key(view.name)
    if not after.entries:
        # KEP-2339 3.37: delete a StorageVersion without entries
        return [] if view.report_item is None else [Delete(key)]
    # KEP-2339 3.17: create it when there is none
    if view.stored is None:
        metadata = new_metadata(view.name, uid=new_uid(), now=now)
        return [Put(key, encode_report(after, metadata))]
    value = encode_report(after, view.stored.metadata)
    assert view.report_item is not None
    return [] if value == view.report_item.value else [Put(key, value)]


def _closed_marks(view: MirrorView, state: PersistedVersions | None) -> list[Guard]:
    """Guard that a server that wrote without reporting has no key, when the state accounts for
    it."""
    if state is None or not state.unreported or state.unreported != view.unreported:
        return []
    if view.state is not None and view.state.state.unreported == state.unreported:
        return []
    return [Absent(server_key(ServerId(state.unreported)))]


def _state_after(
    view: MirrorView,
    after: StorageVersionEntries,
    versions: list[str],
    *,
    kind: str,
    is_unknown: bool,
    unreported: str,
    verifier: str,
) -> PersistedVersions | None:
    """Return the state; None if there is none and no server writes, so that no migration starts."""
    if view.state is None and not versions:
        return None
    return state_after(
        None if view.state is None else view.state.state,
        written=[storage_version_hash(GroupVersionKind.of(version, kind)) for version in versions],
        agreed=_agreed_hash(kind, after.agreement),
        epoch=after.epoch,
        keys=[entry.key_id for entry in after.entries],
        is_unknown=is_unknown,
        unreported=unreported,
        verifier=verifier,
    )


def _state_writes(
    view: MirrorView,
    state: PersistedVersions | None,
    *,
    is_moved: bool,
    now: datetime,
    new_uid: Callable[[], str],
) -> list[Write]:
    """Write the state when its content or the agreement has changed."""
    if state is None:
        return []
    if view.state is None:
        metadata = new_metadata(str(resource_of_name(view.name)), uid=new_uid(), now=now)
        stored = StoredState(state, metadata, timestamp(now))
    elif is_moved or state != view.state.state:
        stored = replace(view.state, state=state)
    else:
        return []
    return [Put(state_key(view.name), encode_state(view.name, stored))]


def _is_custom(view: MirrorView, after: StorageVersionEntries) -> bool:
    """Return whether the resource comes from a CRD; without entries the recorded value stays."""
    if after.entries:
        return any(entry.definition for entry in after.entries)
    return view.epoch is not None and view.epoch.is_custom


def _agreed_hash(kind: str, agreement: Agreement | None) -> str | None:
    return (
        None
        if agreement is None
        else storage_version_hash(GroupVersionKind.of(agreement.version, kind))
    )


def _epoch_after(
    view: MirrorView, after: StorageVersionEntries, *, kind: str, location: str
) -> EpochRecord:
    known, agreed = view.epoch, after.agreement
    return EpochRecord(
        epoch=after.epoch,
        kind=kind or ("" if known is None else known.kind),
        version=None if agreed is None else agreed.version,
        key_id="" if agreed is None else agreed.key_id,
        is_custom=_is_custom(view, after),
        location=location or ("" if known is None else known.location),
    )


def _text(item: Item | None) -> str:
    return "" if item is None else item.value.decode(errors="replace")


def unchanged(key: Key, item: Item | None) -> Guard:
    """Return the guard that a key is unchanged since it was read."""
    return Absent(key) if item is None else RevisionIs(key, item.revision)
