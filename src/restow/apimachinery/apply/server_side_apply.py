"""Server-side apply: merges a configuration into an object and records its manager as the owner.

Each configuration is the complete intent of its manager: fields that were applied before and are
missing now are removed, unless other managers own them too. Changing a value that others own is a
conflict; with force, ownership moves to the applier.

kubectl used to record what it applied in an annotation. When it switches to server-side apply,
fields that the annotation contains and that are unchanged since cause no conflict. The annotation
is kept up to date for clients that still read it.

Pure; arguments are never modified. Not here: which fields a path may write, defaults, and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from restow.apimachinery import status
from restow.apimachinery.apply import entries, sets
from restow.apimachinery.apply.elements import quoted, value_text
from restow.apimachinery.apply.entries import Entry, Identity, Manager
from restow.apimachinery.apply.field_managers import (
    Changes,
    Convert,
    ManagedKind,
    Object,
    added_set,
)
from restow.apimachinery.apply.merge import merge
from restow.apimachinery.apply.prune import prune
from restow.apimachinery.apply.schema_check import ApplySchemaError, check
from restow.apimachinery.apply.schema_reconciliation import reconcile
from restow.apimachinery.apply.sets import FieldSet
from restow.apimachinery.apply.values import compare, field_set_of
from restow.apimachinery.metadata_rules import ANNOTATIONS_SIZE_MAX
from restow.apimachinery.status_error import StatusCause

KUBECTL: Final = "kubectl"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
CONFLICT: Final = "FieldManagerConflict"
SCALE: Final = "scale"
_SCALE_VERSION: Final = "autoscaling/v1"
_SCALE_FIELDS: Final[FieldSet] = {"f:spec": {"f:replicas": sets.EMPTY}}

Within = Callable[[FieldSet], FieldSet]
"""Returns those of the fields that a path may write."""


class Conflicts(Exception):
    """Fields that other managers own, by the identity of their entries."""

    def __init__(self, found: dict[Identity, FieldSet]) -> None:
        super().__init__(f"conflicts with {len(found)} managers")
        self.found = found


class Application:
    """One configuration and its manager; it can be applied to any state of the object."""

    __slots__ = (
        "_config",
        "_convert",
        "_fields",
        "_kind",
        "_wanted",
        "_within",
        "api_version",
        "manager",
    )

    def __init__(
        self,
        kind: ManagedKind,
        config: Object,
        *,
        wanted: Object,
        manager: Manager,
        api_version: str,
        convert: Convert,
        within: Within,
    ) -> None:
        """`wanted` is the part of `config` that its path may write. Raises `ApplySchemaError`."""
        self._kind = kind
        self._convert = convert
        self._within = within
        self._config = config
        self._wanted = wanted
        self.manager = manager
        self.api_version = api_version
        node = kind.field_schema(api_version)
        check(node, config)
        self._fields = within(entries.stripped(field_set_of(node, wanted)))

    def apply(self, live: Object | None, *, time: str, force: bool) -> Object:
        """Return the object with the configuration applied and its entries set; raises a 409.

        `live` is None if the object does not exist yet.
        """
        found = [] if live is None else entries.stored(live["metadata"])
        if live is not None and self._is_touch and not self._mine(found):
            touched = self._touched(live)
            self._keep_annotation(touched)
            return touched
        try:
            new, after = self._applied(live, found, time=time, force=force)
        except Conflicts as conflicts:
            left = self._actual_conflicts(live, conflicts.found)
            if left:
                raise conflict(self._reported_conflicts(left)) from None
            new, after = self._applied(live, found, time=time, force=True)
        self._keep_annotation(new)
        if after:
            new["metadata"]["managedFields"] = after
        return new

    @property
    def _is_touch(self) -> bool:
        """Report whether the configuration sets no fields and names one object (uid) in one state
        (resourceVersion)."""
        metadata = self._wanted.get("metadata") or {}
        return not self._fields and bool(metadata.get("uid") and metadata.get("resourceVersion"))

    def _touched(self, live: Object) -> Object:
        """Return the object unchanged except for the precondition.

        Storage migrators rewrite objects this way, so it must not start to track field ownership.
        """
        metadata = {**live["metadata"], **(self._wanted.get("metadata") or {})}
        return {**live, "metadata": metadata}

    def _mine(self, found: list[Entry]) -> Entry | None:
        me = entries.identity_of(self.manager, entries.APPLY, self.api_version)
        return next((entry for entry in found if entries.identity(entry) == me), None)

    def _applied(
        self, live: Object | None, found: list[Entry], *, time: str, force: bool
    ) -> tuple[Object, list[Entry]]:
        """Return the object and its entries. Raises `Conflicts`."""
        node, version = self._kind.field_schema(self.api_version), self.api_version
        before: Object = {} if live is None else _without_entries(live)
        if live is not None and not found:
            found = self._untracked(before, time)
        known = {entries.identity(entry): entry for entry in self._reconciled(found)}
        me = entries.identity_of(self.manager, entries.APPLY, version)
        last = known.get(me)
        mine = entries.entry_of(
            self.manager, entries.APPLY, version, time=time, fields=self._fields
        )
        known[me] = mine
        new = merge(node, before, self._wanted)
        if last is not None:
            new = prune(
                self._kind, new, last, mine, others=list(known.values()), convert=self._convert
            )
        if new == before:
            # If nothing changes, the manager still gets an entry, but without a time.
            was = "" if last is None else last.get("time") or ""
            known[me] = entries.entry_of(
                self.manager, entries.APPLY, version, time=was, fields=self._fields
            )
        if not self._fields:
            del known[me]
        after = self._others(known, me, before, new, force=force)
        return _fresh(new), after

    def _untracked(self, before: Object, time: str) -> list[Entry]:
        fields = self._within(added_set(self._kind, self.api_version, before))
        if self.manager.subresource == SCALE:
            fields = sets.intersection(fields, self._fields)
        who = Manager(entries.BEFORE_FIRST_APPLY, self.manager.subresource)
        if not fields:
            return []
        return [entries.entry_of(who, entries.UPDATE, self.api_version, time=time, fields=fields)]

    def _reconciled(self, found: list[Entry]) -> list[Entry]:
        """Adapt the entries to the current schema, which may have changed since."""
        reconciled = []
        for entry in found:
            node = self._kind.field_schema(entry["apiVersion"])
            fields = reconcile(node, entries.fields_of(entry))
            reconciled.append(entry if fields is None else entries.with_fields(entry, fields))
        return reconciled

    def _others(
        self,
        known: dict[Identity, Entry],
        me: Identity,
        before: Object,
        new: Object,
        *,
        force: bool,
    ) -> list[Entry]:
        """Return all entries, without the fields that changed. Raises `Conflicts`."""
        changes = Changes(
            self._kind, before, new, api_version=self.api_version, convert=self._convert
        )
        conflicts: dict[Identity, FieldSet] = {}
        left = []
        for who, entry in known.items():
            if who == me:
                left.append(entry)
                continue
            written = changes.written_in(entry["apiVersion"])
            changed = changes.changed_in(entry["apiVersion"])
            if written is None or changed is None:
                continue  # that version no longer exists
            fields = entries.fields_of(entry)
            if against := sets.intersection(fields, written):
                conflicts[who] = against
            rest = sets.difference(fields, changed) if changed else fields
            if rest:
                left.append(entry if rest == fields else entries.with_fields(entry, rest))
        if conflicts and not force:
            raise Conflicts(conflicts)
        return entries.in_order(left)

    # Client-side apply of kubectl, before it switched.

    def _actual_conflicts(
        self, live: Object | None, found: dict[Identity, FieldSet]
    ) -> dict[Identity, FieldSet]:
        """Return the conflicts without fields that kubectl applied itself, client-side."""
        if self.manager.name != KUBECTL or live is None:
            return found
        allowed = self._last_applied(live)
        left = {who: sets.difference(fields, allowed) for who, fields in found.items()}
        return {who: fields for who, fields in left.items() if fields}

    def _reported_conflicts(self, found: dict[Identity, FieldSet]) -> dict[Identity, FieldSet]:
        """Express conflicts in the fields of the Scale that the client applied."""
        if self.manager.subresource != SCALE:
            return found
        return {
            (name, operation, version and _SCALE_VERSION, part): _SCALE_FIELDS
            for name, operation, version, part in found
        }

    def _last_applied(self, live: Object) -> FieldSet:
        """Return the fields that kubectl applied client-side and that have not changed since."""
        text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
        if not text:
            return sets.EMPTY
        node = self._kind.field_schema(self.api_version)
        try:
            wanted = orjson.loads(text)
            if type(wanted) is not dict or wanted.get("apiVersion") != self.api_version:
                return sets.EMPTY
            check(node, wanted)
        except (orjson.JSONDecodeError, ApplySchemaError):
            return sets.EMPTY
        differs = compare(node, wanted, _without_entries(live))
        fields = sets.difference(field_set_of(node, wanted), differs.modified)
        return sets.difference(sets.difference(fields, differs.added), differs.removed)

    def _keep_annotation(self, new: Object) -> None:
        annotations = new["metadata"].get("annotations")
        if self.manager.name != KUBECTL or not annotations or not annotations.get(LAST_APPLIED):
            return
        if self.manager.subresource == SCALE:
            return  # a Scale has no annotations
        metadata = self._config.get("metadata") or {}
        shown = _without(metadata, "annotations")
        if (sent := metadata.get("annotations")) is not None:
            shown["annotations"] = _without(sent, LAST_APPLIED)
        config = {**self._config, "metadata": shown}
        kept = {**annotations, LAST_APPLIED: value_text(config) + "\n"}
        if _size(kept) > ANNOTATIONS_SIZE_MAX:
            del kept[LAST_APPLIED]
        new["metadata"]["annotations"] = kept


def conflict(found: dict[Identity, FieldSet]) -> status.Conflict:
    """Return the 409 that lists each conflicting field with its manager."""
    causes = [
        StatusCause(CONFLICT, f"conflict with {shown(who)}", sets.path_text(path))
        for who in sorted(found, key=_order)
        for path in sets.members(found[who])
    ]
    return status.apply_conflict(causes)


def shown(who: Identity) -> str:
    """Format a manager for an error message, with Kubernetes' wording."""
    name, operation, api_version, subresource = who
    text = quoted(name)
    if subresource:
        text = f"{text} with subresource {quoted(subresource)}"
    return f"{text} using {api_version}" if operation == entries.UPDATE else text


def _order(who: Identity) -> bytes:
    """Return a sort key: Kubernetes sorts managers by the JSON of their identity."""
    name, operation, api_version, subresource = who
    fields = {"manager": name, "operation": operation, "apiVersion": api_version}
    if not api_version:
        del fields["apiVersion"]
    if subresource:
        fields["subresource"] = subresource
    return orjson.dumps(fields)


def _without_entries(obj: Object) -> Object:
    return {**obj, "metadata": _without(obj["metadata"], "managedFields")}


def _without(mapping: Object, name: str) -> Object:
    return {key: value for key, value in mapping.items() if key != name}


def _fresh(new: Object) -> Object:
    """Copy an object so that its metadata may be modified."""
    return {**new, "metadata": dict(new.get("metadata") or {})}


def _size(annotations: dict[str, Any]) -> int:
    return sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
