"""Field ownership after a write: changed fields belong to the writer, and to no other manager.

This holds for creates, updates and patches, except server-side apply (`server_side_apply`), where
the manager declares the fields that it owns. An object without entries gets none before the first
apply. A write that changes nothing changes no entry; one that only removes fields adds none.

Entries name fields as one API version does. To compare with entries of another version, the caller
converts the objects; entries of a version that no longer exists are removed.

Every write calls this, so unchanged parts are skipped. Pure, except that `managedFields` of the new
object are set. Not here: which fields a write may change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from restow.apimachinery.apply import entries, sets
from restow.apimachinery.apply.entries import Entry, Manager
from restow.apimachinery.apply.schema import SchemaNode
from restow.apimachinery.apply.schema_reconciliation import reconcile
from restow.apimachinery.apply.sets import FieldSet
from restow.apimachinery.apply.values import compare
from restow.apimachinery.status_error import StatusCause

_SERVER_FIELDS: Final = ("resourceVersion", "managedFields")

Object = dict[str, Any]


class ManagedKind(Protocol):
    """The properties of a kind that field management uses. Versions are values of `apiVersion`."""

    def field_schema(self, version: str) -> SchemaNode:
        """Return the schema of objects in a version; a generic one if it is unknown."""

    def blank(self, version: str) -> Object:
        """Return an empty object of a version."""


Convert = Callable[[Object, str], Object | None]
"""Converts an object to a version; None if there is no such version. Exceptions propagate."""
Time = Callable[[], str]
"""Returns the time of the write; called only if it is needed."""


class EntriesRefused(Exception):
    """A client sent `managedFields` entries that may not be stored."""

    def __init__(self, causes: list[StatusCause]) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


def track_create(
    kind: ManagedKind, new: Object, manager: Manager, api_version: str, time: str
) -> None:
    """Set the entries of a new object. Entries that a client sent are dropped."""
    metadata = new["metadata"]
    if "managedFields" in metadata:
        del metadata["managedFields"]
    fields = added_set(kind, api_version, new)
    if fields:
        metadata["managedFields"] = [
            entries.entry_of(manager, entries.UPDATE, api_version, time=time, fields=fields)
        ]


def added_set(kind: ManagedKind, api_version: str, new: Object) -> FieldSet:
    """Return the fields that the creator of an object owns."""
    added, modified, _ = compare(kind.field_schema(api_version), kind.blank(api_version), new)
    return entries.stripped(sets.union(added, modified) if modified else added)


def track_update(
    kind: ManagedKind,
    old: Object,
    new: Object,
    *,
    manager: Manager,
    api_version: str,
    time: Time,
    convert: Convert,
) -> FieldSet:
    """Set the entries of a changed object after a write by `manager`; return the modified fields.

    Fields are compared only as far as the entries need it. Unmanaged metadata is taken from the
    old object. Raises `EntriesRefused` if the client sent invalid entries.
    """
    metadata = new["metadata"]
    before = entries.stored(old["metadata"])
    # Through a subresource, clients cannot write entries.
    if manager.subresource or (start := metadata.get("managedFields")) is None:
        start = before
    elif start is not before:
        start = entries.chosen(start, before)
        if start is not before and (causes := entries.problems(start)):
            raise EntriesRefused(causes)
    _copy_server_fields(old, metadata)
    found, modified = start, sets.EMPTY
    if start:
        changes = Changes(kind, old, new, api_version=api_version, convert=convert)
        modified = changes.modified
        if changes.changed:
            found = _moved(start, changes, manager, time)
        elif start is not before:
            found = entries.capped(kept(start, changes))
    if found:
        metadata["managedFields"] = found
    elif "managedFields" in metadata:
        del metadata["managedFields"]
    return modified


def _copy_server_fields(old: Object, metadata: Object) -> None:
    """Copy server-set metadata from the old object, so that it does not count as a change."""
    was = old["metadata"]
    for name in _SERVER_FIELDS:
        if name in was:
            metadata[name] = was[name]
        elif name in metadata:
            del metadata[name]


def _moved(start: list[Entry], changes: Changes, manager: Manager, time: Time) -> list[Entry]:
    """Return the entries after a change: the changed fields move to the manager."""
    mine = changes.written
    if not mine:
        return entries.capped(kept(start, changes))
    version = changes.api_version
    name, subresource = manager
    name = name or entries.UNKNOWN
    if not changes.removed:
        renewed = _renewed(start, changes, name=name, subresource=subresource, time=time)
        if renewed is not None:
            return renewed
    others = []
    for entry in start:
        if (
            entry.get("manager") == name
            and entry["operation"] == entries.UPDATE
            and entry["apiVersion"] == version
            and entry.get("subresource", "") == subresource
        ):
            # Fields that it owns already and sets again need not be removed first.
            fields = entry.get("fieldsV1") or sets.EMPTY
            fields = sets.difference(fields, changes.removed) if changes.removed else fields
            mine = sets.union(fields, mine)
        else:
            others.append(entry)
    now = time()
    left = kept(others, changes) if others else others
    in_order = not left or _is_before(left[-1], now)
    left.append(entries.entry_of(manager, entries.UPDATE, version, time=now, fields=mine))
    return left if in_order and len(left) <= entries.UPDATERS_MAX else entries.capped(left)


def _renewed(
    start: list[Entry], changes: Changes, *, name: str, subresource: str, time: Time
) -> list[Entry] | None:
    """Return the entries with only the time updated; None if more than that changes.

    That suffices if the manager owns all the fields it has set, and no other manager owns any of
    them. Nearly every write is like that.
    """
    mine, version, own = changes.written, changes.api_version, None
    for entry in start:
        if entry["apiVersion"] != version:
            return None
        fields = entry.get("fieldsV1") or sets.EMPTY
        if (
            entry.get("manager") == name
            and entry["operation"] == entries.UPDATE
            and entry.get("subresource", "") == subresource
        ):
            if own is not None or not sets.covers(fields, mine):
                return None
            own = entry
        elif not fields or not sets.are_apart(fields, mine):
            return None
    if own is None:
        return None
    now = time()
    if own.get("time") == now and len(start) <= entries.UPDATERS_MAX:
        return start
    before = start[:-1] if start[-1] is own else [each for each in start if each is not own]
    renewed = [*before, {**own, "time": now}]
    if len(renewed) > entries.UPDATERS_MAX or (before and not _is_before(before[-1], now)):
        return entries.capped(renewed)
    return renewed


def _is_before(entry: Entry, now: str) -> bool:
    """Report whether an entry sorts before an update that is made now, by any manager."""
    return entry["operation"] == entries.APPLY or _time_of(entry) < now


def _time_of(entry: Entry) -> str:
    found: str = entry.get("time") or ""
    return found


def kept(start: list[Entry], changes: Changes) -> list[Entry]:
    """Return the entries without the fields that others have changed, as a new list."""
    left = []
    version, all_changed = changes.api_version, changes.changed
    for entry in start:
        entry_version = entry["apiVersion"]
        changed = all_changed if entry_version == version else changes.changed_in(entry_version)
        if changed is None:
            continue  # that version no longer exists
        fields = entry.get("fieldsV1") or sets.EMPTY
        if changed and not changed.keys().isdisjoint(fields):
            if _has_parent(changed, fields):
                # The schema may have changed since: a parent of these fields may be atomic by now.
                fields = reconcile(changes.node(entry_version), fields) or fields
            fields = sets.difference(fields, changed)
            if fields is not entry.get("fieldsV1"):
                entry = {**entry, "fieldsV1": fields}  # noqa: PLW2901 - with the remaining fields
        if fields:
            left.append(entry)
    return left


def _has_parent(changed: FieldSet, fields: FieldSet) -> bool:
    """Report whether a changed path has members of the set below it."""
    for key, below in changed.items():
        mine = fields.get(key)
        if mine and (not below or _has_parent(below, mine)):
            return True
    return False


class Changes:
    """The differences between two states of an object, in each API version that is needed."""

    __slots__ = (
        "_convert",
        "_found",
        "_kind",
        "_new",
        "_old",
        "api_version",
        "changed",
        "modified",
        "removed",
        "written",
    )

    def __init__(
        self,
        kind: ManagedKind,
        old: Object,
        new: Object,
        *,
        api_version: str,
        convert: Convert,
    ) -> None:
        """The objects must not differ in unmanaged metadata."""
        self._kind = kind
        self._old = old
        self._new = new
        self._convert = convert
        self._found: dict[str, tuple[FieldSet, FieldSet] | None] | None = None
        """By version, on demand: the fields that were set, and those that were set or removed."""
        self.api_version = api_version
        added, modified, removed = compare(kind.field_schema(api_version), old, new)
        self.written: FieldSet = sets.union(added, modified) if modified else added
        self.modified: FieldSet = modified
        self.removed: FieldSet = removed
        self.changed: FieldSet = sets.union(self.written, removed) if removed else self.written

    def node(self, api_version: str) -> SchemaNode:
        """Return the schema of the objects in a version."""
        return self._kind.field_schema(api_version)

    def written_in(self, api_version: str) -> FieldSet | None:
        """Return the fields that were set, as a version names them; None if it does not exist."""
        found = self._sides_in(api_version)
        return None if found is None else found[0]

    def changed_in(self, api_version: str) -> FieldSet | None:
        """Return the fields that were set or removed; None if the version does not exist."""
        found = self._sides_in(api_version)
        return None if found is None else found[1]

    def _sides_in(self, api_version: str) -> tuple[FieldSet, FieldSet] | None:
        if api_version == self.api_version:
            return self.written, self.changed
        if self._found is None:
            self._found = {}
        if api_version not in self._found:
            self._found[api_version] = self._compare(api_version)
        return self._found[api_version]

    def _compare(self, api_version: str) -> tuple[FieldSet, FieldSet] | None:
        new = self._convert(self._new, api_version)
        old = self._convert(self._old, api_version)
        if new is None or old is None:
            return None
        changes = Changes(self._kind, old, new, api_version=api_version, convert=self._convert)
        return changes.written, changes.changed
