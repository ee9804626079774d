"""Server-side apply: a configuration is merged into an object, and its fields are the applier's.

Who applies says with each configuration all that is wanted: what was applied before and is not any
more is taken away, unless others manage it too. A value that others manage is not changed against
their will: that is a conflict, or it is forced, and then the field is theirs no longer.

kubectl used to keep what it had applied in an annotation. When it begins to apply here, what the
annotation speaks of and nobody has changed since is no conflict; the annotation is kept up, for
those who still read it.

Pure; nothing that is given is changed. Not here: what a path may write at all, defaults, and time.
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
"""Of some fields those that a path may write."""


class Conflicts(Exception):
    """Fields that others manage, by the identity of their entries."""

    def __init__(self, found: dict[Identity, FieldSet]) -> None:
        super().__init__(f"conflicts with {len(found)} managers")
        self.found = found


class Application:
    """One configuration and who applies it; good for any state of the object."""

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
        """`wanted` is as much of `config` as its path may write. Raises `ApplySchemaError`."""
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
        """The object with the configuration applied, and its entries. Raises 409.

        No object: there is none yet.
        """
        found = [] if live is None else entries.stored(live["metadata"])
        if live is not None and self._is_touch and not self._mine(found):
            touched = self._touched(live)
            self._keep_annotation(touched)
            return touched
        try:
            new, after = self._applied(live, found, time=time, force=force)
        except Conflicts as conflicts:
            left = self._disallowed(live, conflicts.found)
            if left:
                raise conflict(self._reported_conflicts(left)) from None
            new, after = self._applied(live, found, time=time, force=True)
        self._keep_annotation(new)
        if after:
            new["metadata"]["managedFields"] = after
        return new

    @property
    def _is_touch(self) -> bool:
        """Whether nothing is applied to one certain state of one certain object."""
        metadata = self._wanted.get("metadata") or {}
        return not self._fields and bool(metadata.get("uid") and metadata.get("resourceVersion"))

    def _touched(self, live: Object) -> Object:
        """An object to which nothing is applied: nothing but the precondition is new.

        That is how migrators have objects written again, so nobody begins to keep track then.
        """
        metadata = {**live["metadata"], **(self._wanted.get("metadata") or {})}
        return {**live, "metadata": metadata}

    def _mine(self, found: list[Entry]) -> Entry | None:
        me = entries.identity_of(self.manager, entries.APPLY, self.api_version)
        return next((entry for entry in found if entries.identity(entry) == me), None)

    def _applied(
        self, live: Object | None, found: list[Entry], *, time: str, force: bool
    ) -> tuple[Object, list[Entry]]:
        """The object and its entries. Raises `Conflicts`."""
        node, version = self._kind.field_schema(self.api_version), self.api_version
        before: Object = {} if live is None else _without_entries(live)
        if live is not None and not found:
            found = self._untracked(before, time)
        known = {entries.identity(entry): entry for entry in self._settled(found)}
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
            # Who says what is so already gets an entry, but at no time.
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

    def _settled(self, found: list[Entry]) -> list[Entry]:
        """Entries as they would be written today, should a schema have changed since."""
        settled = []
        for entry in found:
            node = self._kind.field_schema(entry["apiVersion"])
            fields = reconcile(node, entries.fields_of(entry))
            settled.append(entry if fields is None else entries.with_fields(entry, fields))
        return settled

    def _others(
        self,
        known: dict[Identity, Entry],
        me: Identity,
        before: Object,
        new: Object,
        *,
        force: bool,
    ) -> list[Entry]:
        """All entries, after the others have lost what has changed. Raises `Conflicts`."""
        changes = Changes(
            self._kind, before, new, api_version=self.api_version, convert=self._convert
        )
        conflicts: dict[Identity, FieldSet] = {}
        left = []
        for who, entry in known.items():
            if who == me:
                left.append(entry)
                continue
            taken = changes.taken_in(entry["apiVersion"])
            gone = changes.gone_in(entry["apiVersion"])
            if taken is None or gone is None:
                continue  # nobody knows that version any more
            fields = entries.fields_of(entry)
            if against := sets.intersection(fields, taken):
                conflicts[who] = against
            rest = sets.difference(fields, gone) if gone else fields
            if rest:
                left.append(entry if rest == fields else entries.with_fields(entry, rest))
        if conflicts and not force:
            raise Conflicts(conflicts)
        return entries.in_order(left)

    # What kubectl did before it applied here.

    def _disallowed(
        self, live: Object | None, found: dict[Identity, FieldSet]
    ) -> dict[Identity, FieldSet]:
        """Of some conflicts those that kubectl has not brought about itself."""
        if self.manager.name != KUBECTL or live is None:
            return found
        allowed = self._last_applied(live)
        left = {who: sets.difference(fields, allowed) for who, fields in found.items()}
        return {who: fields for who, fields in left.items() if fields}

    def _reported_conflicts(self, found: dict[Identity, FieldSet]) -> dict[Identity, FieldSet]:
        """Conflicts as whoever applies may understand them: a Scale has replicas of its own."""
        if self.manager.subresource != SCALE:
            return found
        return {
            (name, operation, version and _SCALE_VERSION, part): _SCALE_FIELDS
            for name, operation, version, part in found
        }

    def _last_applied(self, live: Object) -> FieldSet:
        """The fields that kubectl has applied by itself, and that are still as it wanted them."""
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
        if (said := metadata.get("annotations")) is not None:
            shown["annotations"] = _without(said, LAST_APPLIED)
        config = {**self._config, "metadata": shown}
        kept = {**annotations, LAST_APPLIED: value_text(config) + "\n"}
        if _size(kept) > ANNOTATIONS_SIZE_MAX:
            del kept[LAST_APPLIED]
        new["metadata"]["annotations"] = kept


def conflict(found: dict[Identity, FieldSet]) -> status.Conflict:
    """The 409 that names each field that others manage, and who they are."""
    causes = [
        StatusCause(CONFLICT, f"conflict with {shown(who)}", sets.path_text(path))
        for who in sorted(found, key=_order)
        for path in sets.members(found[who])
    ]
    return status.apply_conflict(causes)


def shown(who: Identity) -> str:
    """A manager as people read of it."""
    name, operation, api_version, subresource = who
    text = quoted(name)
    if subresource:
        text = f"{text} with subresource {quoted(subresource)}"
    return f"{text} using {api_version}" if operation == entries.UPDATE else text


def _order(who: Identity) -> bytes:
    """The reference sorts managers by the text of their identity."""
    name, operation, api_version, subresource = who
    told = {"manager": name, "operation": operation, "apiVersion": api_version}
    if not api_version:
        del told["apiVersion"]
    if subresource:
        told["subresource"] = subresource
    return orjson.dumps(told)


def _without_entries(obj: Object) -> Object:
    return {**obj, "metadata": _without(obj["metadata"], "managedFields")}


def _without(mapping: Object, name: str) -> Object:
    return {key: value for key, value in mapping.items() if key != name}


def _fresh(new: Object) -> Object:
    """An object whose metadata may be changed."""
    return {**new, "metadata": dict(new.get("metadata") or {})}


def _size(annotations: dict[str, Any]) -> int:
    return sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
