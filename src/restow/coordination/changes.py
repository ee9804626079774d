"""One resource's change of entries, as one transaction.

Here alone entries are turned into writes. The encoder keys that go with them are computed from the
difference between the entries before and after, so that an entry and its encoder key live and die
together whoever makes the change: registration, withdrawal, collection or selection.

Everything the change was computed from is guarded by its revision: the StorageVersion, the epoch
and the StorageState. A server that is taken out must have no server key, and as that key never
comes back, anyone may repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from restow.coordination.identity import ServerId, server_key
from restow.coordination.mirror import Mirror
from restow.coordination.records import (
    MODES_KEY,
    Encoder,
    EpochRecord,
    decode_epoch,
    encode_encoder,
    encode_epoch,
    encoder_key,
    epoch_key,
    resource_of_name,
)
from restow.coordination.rules import (
    UNFENCED,
    Agreement,
    Entry,
    Obstacle,
    Report,
    State,
    report_after,
    state_after,
)
from restow.coordination.wire import (
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
from restow.machinery.names import GroupVersion, GroupVersionKind
from restow.machinery.version_hash import storage_version_hash
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

REMOVED_MAX: Final = 40
"""Servers that one transaction takes out; each costs a guard and a write."""


@dataclass(frozen=True, slots=True)
class View:
    """What the mirror says of one resource."""

    name: str
    report_item: Item | None
    epoch_item: Item | None
    state_item: Item | None
    modes_item: Item | None
    stored: StoredReport | None
    epoch: EpochRecord | None
    state: StoredState | None

    @classmethod
    def of(cls, mirror: Mirror, name: str) -> View:
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
        )

    @property
    def report(self) -> Report:
        """The report with its agreement; an empty one when there is none."""
        found = Report() if self.stored is None else self.stored.report
        if self.epoch is None:
            return found
        return Report(
            entries=found.entries,
            common_version=found.common_version,
            conditions=found.conditions,
            agreement=self.epoch.agreement,
            epoch=self.epoch.epoch,
        )

    def guards(self) -> list[Guard]:
        """That all of it is still so."""
        return [
            _unchanged(report_key(self.name), self.report_item),
            _unchanged(epoch_key(self.name), self.epoch_item),
            _unchanged(state_key(self.name), self.state_item),
            _unchanged(MODES_KEY, self.modes_item),
        ]


@dataclass(frozen=True, slots=True)
class Change:
    """A transaction, and what it means."""

    name: str
    transaction: Transaction
    before: Report
    after: Report

    @property
    def is_empty(self) -> bool:
        return not self.transaction.writes


def change(
    view: View,
    entries: tuple[Entry, ...],
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
) -> Change:
    """The change of a resource's entries to these; `kind` is what its objects are called.

    `guards` and `writes` belong to whoever makes the change; `own` is the server that makes it, if
    it may take itself out while it lives; `selected` a version that may be written from now on,
    whatever the entries say yet. A selection that moves touches the state even if it says the same
    afterwards: whoever would narrow it by what was read before must not succeed.

    Without entries the StorageVersion is deleted; the epoch and the state stay, as they tell what
    may be stored.
    """
    before = view.report
    after = report_after(before, entries, obstacle=obstacle, now=timestamp(now))
    own_guards, own_writes = _encoder_changes(view.name, before.entries, entries, own=own)
    found: list[Write] = [*writes, *own_writes]
    found += _report_writes(view, after, now=now, new_uid=new_uid)
    is_custom = _is_custom(view, after)
    if _epoch_changes(view, after, kind, is_custom=is_custom):
        value = _epoch_value(after, kind, is_custom=is_custom)
        found.append(Put(epoch_key(view.name), value))
    versions = [entry.encoding_version for entry in after.entries]
    if selected is not None:
        versions.append(selected)
    is_moved = after.epoch != before.epoch or selection_moves
    is_unknown = obstacle is not None and obstacle.reason == UNFENCED
    state = _state_after(view, after, versions, kind=kind, is_unknown=is_unknown)
    found += _state_writes(view, state, is_moved=is_moved, now=now, new_uid=new_uid)
    transaction = Transaction((*guards, *own_guards, *view.guards()), tuple(found))
    return Change(view.name, transaction, before, after)


def hash_of(kind: str, api_version: str) -> str:
    """The hash of a version of a kind."""
    group, version = GroupVersion.parse(api_version)
    return storage_version_hash(GroupVersionKind(group, version, kind))


def encoder_of(entry: Entry) -> bytes:
    """The value of the encoder key that goes with an entry."""
    return encode_encoder(
        Encoder(entry.encoding_version, entry.key_id, entry.definition, entry.is_closing)
    )


def _encoder_changes(
    name: str, before: tuple[Entry, ...], after: tuple[Entry, ...], *, own: ServerId | None
) -> tuple[list[Guard], list[Write]]:
    """The encoder keys that come, change and go with the entries of servers on this store."""
    old = {entry.server_id: entry for entry in before if not entry.store}
    new = {entry.server_id: entry for entry in after if not entry.store}
    guards: list[Guard] = []
    writes: list[Write] = []
    for server_id in old.keys() - new.keys():
        if server_id != own:
            guards.append(Absent(server_key(server_id)))
        writes.append(Delete(encoder_key(server_id, name)))
    for server_id, entry in new.items():
        known = old.get(server_id)
        if known is None or encoder_of(known) != encoder_of(entry):
            writes.append(Put(encoder_key(server_id, name), encoder_of(entry)))
    return guards, writes


def _report_writes(
    view: View, after: Report, *, now: datetime, new_uid: Callable[[], str]
) -> list[Write]:
    key = report_key(view.name)
    if not after.entries:
        return [] if view.report_item is None else [Delete(key)]
    if view.stored is None:
        metadata = new_metadata(view.name, uid=new_uid(), now=now)
        return [Put(key, encode_report(after, metadata))]
    value = encode_report(after, view.stored.metadata)
    assert view.report_item is not None
    return [] if value == view.report_item.value else [Put(key, value)]


def _state_after(
    view: View, after: Report, versions: list[str], *, kind: str, is_unknown: bool
) -> State | None:
    """The state; None when there is none and nobody writes, so that nobody asks what is stored."""
    if view.state is None and not versions:
        return None
    return state_after(
        None if view.state is None else view.state.state,
        written=[hash_of(kind, version) for version in versions],
        agreed=_agreed_hash(kind, after.agreement),
        epoch=after.epoch,
        keys=[entry.key_id for entry in after.entries],
        is_unknown=is_unknown,
    )


def _state_writes(
    view: View, state: State | None, *, is_moved: bool, now: datetime, new_uid: Callable[[], str]
) -> list[Write]:
    """The state, when a version is new in it or the agreement has moved."""
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


def _is_custom(view: View, after: Report) -> bool:
    """Whether there is a definition behind a resource; what nobody reports is as it was."""
    if after.entries:
        return any(entry.definition for entry in after.entries)
    return view.epoch is not None and view.epoch.is_custom


def _epoch_changes(view: View, after: Report, kind: str, *, is_custom: bool) -> bool:
    if view.epoch is None:
        return bool(after.entries)
    known = view.epoch
    is_renamed = bool(kind and kind != known.kind)
    return after.epoch != known.epoch or is_renamed or is_custom != known.is_custom


def _agreed_hash(kind: str, agreement: Agreement | None) -> str | None:
    return None if agreement is None else hash_of(kind, agreement.version)


def _epoch_value(report: Report, kind: str, *, is_custom: bool) -> bytes:
    agreed = report.agreement
    return encode_epoch(
        EpochRecord(
            epoch=report.epoch,
            kind=kind,
            version=None if agreed is None else agreed.version,
            key_id="" if agreed is None else agreed.key_id,
            is_custom=is_custom,
        )
    )


def _unchanged(key: Key, item: Item | None) -> Guard:
    return Absent(key) if item is None else RevisionIs(key, item.revision)
