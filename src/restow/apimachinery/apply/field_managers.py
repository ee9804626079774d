"""Who manages what after a write: what was changed is the writer's, and nobody else's any more.

That is so for creates, updates and patches of all kinds but one: `server_side_apply` is for those
who say what they want to manage. An object of which nobody has kept track stays so until the first
apply. A write that changes nothing changes no entry; if it takes fields away only, it gets none.

Entries speak of fields as a version calls them. The objects are converted for those of other
versions, by whoever can; a version that is not known any more takes its entries with it.

Every write goes this way, so what has not changed is not looked at. Pure: the new object is the
only thing that is changed, by its `managedFields`. Not here: what a write may change at all.
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

_SERVERS: Final = ("resourceVersion", "managedFields")

Object = dict[str, Any]


class ManagedKind(Protocol):
    """What is known of the objects of a kind. Versions are `apiVersion`s."""

    def field_schema(self, version: str) -> SchemaNode:
        """How they are put together; in a version that there is not, nobody knows."""

    def blank(self, version: str) -> Object:
        """One of which nothing was said yet."""


Convert = Callable[[Object, str], Object | None]
"""An object in another version; None if there is no such version. May raise, and goes through."""
Time = Callable[[], str]
"""The time of the write, for when it is needed."""


class EntriesRefused(Exception):
    """A client has sent entries that may not be stored."""

    def __init__(self, causes: list[StatusCause]) -> None:
        super().__init__("; ".join(map(str, causes)))
        self.causes = causes


def track_create(
    kind: ManagedKind, new: Object, manager: Manager, api_version: str, time: str
) -> None:
    """Give a new object its entries. A client may have sent some; they say nothing of it."""
    metadata = new["metadata"]
    if "managedFields" in metadata:
        del metadata["managedFields"]
    fields = added_set(kind, api_version, new)
    if fields:
        metadata["managedFields"] = [
            entries.entry_of(manager, entries.UPDATE, api_version, time=time, fields=fields)
        ]


def added_set(kind: ManagedKind, api_version: str, new: Object) -> FieldSet:
    """What whoever creates an object manages."""
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
    """Give a changed object its entries, after a write by `manager`; which of its fields have
    another value than before, as far as that had to be found out.

    Of its metadata it has from the old object what is nobody's to manage. Raises `EntriesRefused`
    if the client has sent entries that are none.
    """
    metadata = new["metadata"]
    before = entries.stored(old["metadata"])
    # By a path of its own nobody writes entries, only what that path is for.
    if manager.subresource or (start := metadata.get("managedFields")) is None:
        start = before
    elif start is not before:
        start = entries.chosen(start, before)
        if start is not before and (causes := entries.problems(start)):
            raise EntriesRefused(causes)
    _settle(old, metadata)
    found, modified = start, sets.EMPTY
    if start:
        changes = Changes(kind, old, new, api_version=api_version, convert=convert)
        modified = changes.modified
        if changes.gone:
            found = _moved(start, changes, manager, time)
        elif start is not before:
            found = entries.capped(kept(start, changes))
    if found:
        metadata["managedFields"] = found
    elif "managedFields" in metadata:
        del metadata["managedFields"]
    return modified


def _settle(old: Object, metadata: Object) -> None:
    """Leave no difference in metadata that is nobody's, so that none is found."""
    was = old["metadata"]
    for name in _SERVERS:
        if name in was:
            metadata[name] = was[name]
        elif name in metadata:
            del metadata[name]


def _moved(start: list[Entry], changes: Changes, manager: Manager, time: Time) -> list[Entry]:
    """The entries after a change: what was changed goes to the manager."""
    mine = changes.taken
    if not mine:
        return entries.capped(kept(start, changes))
    version = changes.api_version
    name, part = manager
    name = name or entries.UNKNOWN
    if not changes.removed:
        renewed = _renewed(start, changes, name=name, part=part, time=time)
        if renewed is not None:
            return renewed
    others = []
    for entry in start:
        if (
            entry.get("manager") == name
            and entry["operation"] == entries.UPDATE
            and entry["apiVersion"] == version
            and entry.get("subresource", "") == part
        ):
            # What it has and gets again need not be taken away before.
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
    start: list[Entry], changes: Changes, *, name: str, part: str, time: Time
) -> list[Entry] | None:
    """The same entries, if the manager has all that it has set already, and nobody else has any of
    it: only the time of its entry may be another. Nearly every write is like that.

    None if more than that changes.
    """
    mine, version, own = changes.taken, changes.api_version, None
    for entry in start:
        if entry["apiVersion"] != version:
            return None
        fields = entry.get("fieldsV1") or sets.EMPTY
        if (
            entry.get("manager") == name
            and entry["operation"] == entries.UPDATE
            and entry.get("subresource", "") == part
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
    """Whether an entry is listed before one of an update that is made now, whoever makes it."""
    return entry["operation"] == entries.APPLY or _time_of(entry) < now


def _time_of(entry: Entry) -> str:
    found: str = entry.get("time") or ""
    return found


def kept(start: list[Entry], changes: Changes) -> list[Entry]:
    """What is left of entries when others have changed their fields. A list of its own."""
    left = []
    version, all_gone = changes.api_version, changes.gone
    for entry in start:
        its = entry["apiVersion"]
        gone = all_gone if its == version else changes.gone_in(its)
        if gone is None:
            continue  # nobody knows that version any more
        fields = entry.get("fieldsV1") or sets.EMPTY
        if gone and not gone.keys().isdisjoint(fields):
            if _has_above(gone, fields):
                # The schema may have changed since: what is below may have one owner by now.
                fields = reconcile(changes.node(its), fields) or fields
            fields = sets.difference(fields, gone)
            if fields is not entry.get("fieldsV1"):
                entry = {**entry, "fieldsV1": fields}  # noqa: PLW2901 - what is left of it
        if fields:
            left.append(entry)
    return left


def _has_above(gone: FieldSet, fields: FieldSet) -> bool:
    """Whether something is gone as a whole of which a set has parts."""
    for key, below in gone.items():
        mine = fields.get(key)
        if mine and (not below or _has_above(below, mine)):
            return True
    return False


class Changes:
    """What differs between two states of an object, in each version that is asked for."""

    __slots__ = (
        "_convert",
        "_found",
        "_kind",
        "_new",
        "_old",
        "api_version",
        "gone",
        "modified",
        "removed",
        "taken",
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
        """They differ in no metadata that is nobody's to manage."""
        self._kind = kind
        self._old = old
        self._new = new
        self._convert = convert
        self._found: dict[str, tuple[FieldSet, FieldSet] | None] | None = None
        """By version, if others are asked for: what was set, and what is nobody else's any more."""
        self.api_version = api_version
        added, modified, removed = compare(kind.field_schema(api_version), old, new)
        self.taken: FieldSet = sets.union(added, modified) if modified else added
        self.modified: FieldSet = modified
        self.removed: FieldSet = removed
        self.gone: FieldSet = sets.union(self.taken, removed) if removed else self.taken

    def node(self, api_version: str) -> SchemaNode:
        """How objects are put together in a version."""
        return self._kind.field_schema(api_version)

    def taken_in(self, api_version: str) -> FieldSet | None:
        """What was set, as a version calls it; None if there is no such version."""
        found = self._sides_in(api_version)
        return None if found is None else found[0]

    def gone_in(self, api_version: str) -> FieldSet | None:
        """What was set or taken away."""
        found = self._sides_in(api_version)
        return None if found is None else found[1]

    def _sides_in(self, api_version: str) -> tuple[FieldSet, FieldSet] | None:
        if api_version == self.api_version:
            return self.taken, self.gone
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
        return changes.taken, changes.gone
