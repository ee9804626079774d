"""One version of a custom resource, compiled: what is done to its objects on each write.

The order is the reference's: nulls, defaults and pruning after decoding; then schema, embedded
objects, lists, and at last rules, which run only if what they read has the right types.

Not here: metadata of the object, scale and status paths, conversion, storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from restow.apimachinery.field_errors import Causes
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural.cel.rules import RuleNode, compile_rules, run_rules
from restow.apimachinery.structural.coerce import Coercion
from restow.apimachinery.structural.embedded_objects import (
    coerce_embedded,
    embedded_problems,
    has_embedded,
    has_unsettled,
)
from restow.apimachinery.structural.fast_validator import compile_quick
from restow.apimachinery.structural.integer_coercion import compile_whole
from restow.apimachinery.structural.listtypes import compile_list_types, list_type_problems
from restow.apimachinery.structural.ratchet import Correlated
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.structural.validate import NO_PATH, schema_problems

# With one of these a rule may find a value that it does not expect.
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)


class SchemaProblems(NamedTuple):
    """What is wrong with an object, and what is only worth a warning."""

    causes: list[StatusCause]
    warnings: list[str]


ACCEPTED: Final = SchemaProblems([], [])


class _Reading:
    """What every object needs, also one that is only read."""

    __slots__ = ("coerce", "has_embedded")

    def __init__(self, schema: Schema) -> None:
        self.coerce = Coercion(schema)
        self.has_embedded = has_embedded(schema)


class _Writing:
    """What objects need that are written. Rules take longest to compile."""

    __slots__ = ("accepts", "lists_are_right", "rules", "whole")

    def __init__(self, schema: Schema) -> None:
        self.accepts = compile_quick(schema)
        self.lists_are_right = compile_list_types(schema)
        self.rules = compile_rules(schema)
        self.whole = compile_whole(schema)


class CompiledSchema:
    """Everything that is made once for a schema; safe to share.

    It is made for the first object: of a thousand kinds, most are not used for a long time.
    """

    __slots__ = ("_made_reading", "_made_writing", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made_reading: _Reading | None = None
        self._made_writing: _Writing | None = None

    @property
    def _reading(self) -> _Reading:
        if self._made_reading is None:
            self._made_reading = _Reading(self.schema)
        return self._made_reading

    @property
    def _writing(self) -> _Writing:
        if self._made_writing is None:
            self._made_writing = _Writing(self.schema)
        return self._made_writing

    def coerce(self, obj: dict[str, Any]) -> list[str]:
        """Drops nulls, fills in defaults and prunes, in place; gives back what was pruned.

        For what a client sent and for what was read from the store.
        """
        reading = self._reading
        unknown = reading.coerce(obj)
        if reading.has_embedded:
            unknown = sorted(unknown + coerce_embedded(obj, self.schema))
        return unknown

    def make_whole(self, obj: dict[str, Any]) -> None:
        """Integers that were sent with a point lose it, in place."""
        if (whole := self._writing.whole) is not None:
            whole(obj)

    def settle(self, obj: dict[str, Any]) -> bool:
        """The same for what was read from the store; whether anything may have changed."""
        reading = self._reading
        if reading.coerce.is_settled(obj) and not (
            reading.has_embedded and has_unsettled(obj, self.schema)
        ):
            return False
        self.coerce(obj)
        return True

    def has_default(self, name: str) -> bool:
        """Whether a field of the object itself is filled in where it is missing."""
        known = self.schema.properties.get(name)
        return known is not None and known.default is not None

    def accepts(self, obj: dict[str, Any]) -> bool:
        """Whether an object is surely right but for rules in CEL; False says nothing."""
        writing = self._writing
        if not writing.accepts(obj):
            return False
        if writing.lists_are_right is not None and not writing.lists_are_right(obj):
            return False
        return not (self._reading.has_embedded and embedded_problems(obj, self.schema))

    def problems(
        self,
        obj: dict[str, Any],
        old: dict[str, Any] | None = None,
        *,
        besides: Sequence[StatusCause] = (),
    ) -> SchemaProblems:
        """All that is wrong with an object; on update, what did not change is forgiven.

        `besides` is what somebody else has found, to be told in its place among the others.
        """
        accepted = self.accepts(obj)
        rules = self._writing.rules
        if accepted and rules is None and not besides:
            return ACCEPTED
        correlated = Correlated(obj, old, self.schema) if old is not None else None
        causes = Causes()
        if not accepted:
            causes += schema_problems(obj, self.schema, correlated=correlated)
        causes += besides
        if not accepted:
            if self._reading.has_embedded:
                causes += embedded_problems(obj, self.schema)
            causes += self._list_problems(obj, old)
        return _with_rules(rules, causes, obj, old, correlated=correlated)

    def status_problems(
        self, obj: dict[str, Any], old: dict[str, Any], *, besides: Sequence[StatusCause] = ()
    ) -> SchemaProblems:
        """The same for a write to the status: the rest of the object is not looked at again."""
        correlated = Correlated(obj, old, self.schema)
        causes = Causes()
        status_schema = self.schema.properties.get("status")
        accepted = self.accepts(obj)
        if not accepted and "status" in obj and status_schema is not None:
            below = correlated.member("status")
            causes += schema_problems(obj["status"], status_schema, path="status", correlated=below)
        causes += besides
        if not accepted:
            causes += self._list_problems(obj, old)
        return _with_rules(self._writing.rules, causes, obj, old, correlated=correlated)

    def _list_problems(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[StatusCause]:
        """An object whose lists were wrong already may keep them so."""
        are_right = self._writing.lists_are_right
        if are_right is None or are_right(obj):
            return []
        if old is not None and list_type_problems(old, self.schema):
            return []
        return list_type_problems(obj, self.schema)


def _with_rules(
    rules: RuleNode | None,
    causes: Causes,
    obj: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    correlated: Correlated | None,
) -> SchemaProblems:
    """Rules run only if they can rely on what they read."""
    if rules is None:
        return SchemaProblems(causes, [])
    if any(cause.reason in _BLOCKING for cause in causes):
        causes.invalid(NO_PATH, None, _NOT_CHECKED)
        return SchemaProblems(causes, [])
    found = run_rules(rules, obj, old, correlated=correlated)
    return SchemaProblems(causes + found.causes, found.warnings)
