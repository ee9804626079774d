"""The compiled schema of one CRD version: coercion and validation of its objects.

The order is that of Kubernetes: nulls, defaults and pruning after decoding; then schema, embedded
objects and lists; CEL rules last, and only if the fields they read have the right types.

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
from restow.apimachinery.structural.fast_validator import compile_fast_check
from restow.apimachinery.structural.integer_coercion import compile_integer_coercion
from restow.apimachinery.structural.listtypes import compile_list_types, list_type_problems
from restow.apimachinery.structural.ratchet import Correlated
from restow.apimachinery.structural.schema import Schema
from restow.apimachinery.structural.validate import NO_PATH, schema_problems

# After one of these a rule might read a value of an unexpected type.
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
    """The validation errors of an object, and warnings."""

    causes: list[StatusCause]
    warnings: list[str]


ACCEPTED: Final = SchemaProblems([], [])


class _Reading:
    """The compiled parts that every request needs, reads included."""

    __slots__ = ("coerce", "has_embedded")

    def __init__(self, schema: Schema) -> None:
        self.coerce = Coercion(schema)
        self.has_embedded = has_embedded(schema)


class _Writing:
    """The compiled parts that only writes need. Rules take longest to compile."""

    __slots__ = ("accepts", "integers", "lists_are_valid", "rules")

    def __init__(self, schema: Schema) -> None:
        self.accepts = compile_fast_check(schema)
        self.lists_are_valid = compile_list_types(schema)
        self.rules = compile_rules(schema)
        self.integers = compile_integer_coercion(schema)


class CompiledSchema:
    """Everything compiled once per schema; may be shared.

    Compilation happens on first use: of a thousand kinds, most are not used for a long time.
    """

    __slots__ = ("_compiled_reading", "_compiled_writing", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._compiled_reading: _Reading | None = None
        self._compiled_writing: _Writing | None = None

    @property
    def _reading(self) -> _Reading:
        if self._compiled_reading is None:
            self._compiled_reading = _Reading(self.schema)
        return self._compiled_reading

    @property
    def _writing(self) -> _Writing:
        if self._compiled_writing is None:
            self._compiled_writing = _Writing(self.schema)
        return self._compiled_writing

    @property
    def is_compiled(self) -> bool:
        return self._compiled_reading is not None and self._compiled_writing is not None

    def compile(self) -> None:
        """Compile everything now; may run in a thread."""
        assert self._reading is not None
        assert self._writing is not None

    def coerce(self, obj: dict[str, Any]) -> list[str]:
        """Drop nulls, apply defaults and prune, in place; return the pruned paths.

        For objects from clients and for objects read from storage.
        """
        reading = self._reading
        unknown = reading.coerce(obj)
        if reading.has_embedded:
            unknown = sorted(unknown + coerce_embedded(obj, self.schema))
        return unknown

    def coerce_integers(self, obj: dict[str, Any]) -> None:
        """Convert whole-number floats of integer fields to integers, in place."""
        if (integers := self._writing.integers) is not None:
            integers(obj)

    def coerce_stored(self, obj: dict[str, Any]) -> bool:
        """Coerce an object read from storage; report whether anything may have changed."""
        reading = self._reading
        if reading.coerce.is_settled(obj) and not (
            reading.has_embedded and has_unsettled(obj, self.schema)
        ):
            return False
        self.coerce(obj)
        return True

    def has_default(self, name: str) -> bool:
        """Report whether a top-level field has a default."""
        known = self.schema.properties.get(name)
        return known is not None and known.default is not None

    def accepts(self, obj: dict[str, Any]) -> bool:
        """Report whether an object is certainly valid apart from CEL rules; False means unknown."""
        writing = self._writing
        if not writing.accepts(obj):
            return False
        if writing.lists_are_valid is not None and not writing.lists_are_valid(obj):
            return False
        return not (self._reading.has_embedded and embedded_problems(obj, self.schema))

    def problems(
        self,
        obj: dict[str, Any],
        old: dict[str, Any] | None = None,
        *,
        besides: Sequence[StatusCause] = (),
    ) -> SchemaProblems:
        """Validate an object; on update, errors of unchanged parts are ignored (ratcheting).

        `besides` are errors from other validators; they are inserted at their place in Kubernetes'
        order.
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
        return _add_rule_problems(rules, causes, obj, old, correlated=correlated)

    def status_problems(
        self, obj: dict[str, Any], old: dict[str, Any], *, besides: Sequence[StatusCause] = ()
    ) -> SchemaProblems:
        """Validate a write to the status; the rest of the object is not validated again."""
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
        return _add_rule_problems(self._writing.rules, causes, obj, old, correlated=correlated)

    def _list_problems(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[StatusCause]:
        """An object whose lists were invalid before may keep them so."""
        are_valid = self._writing.lists_are_valid
        if are_valid is None or are_valid(obj):
            return []
        if old is not None and list_type_problems(old, self.schema):
            return []
        return list_type_problems(obj, self.schema)


def _add_rule_problems(
    rules: RuleNode | None,
    causes: Causes,
    obj: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    correlated: Correlated | None,
) -> SchemaProblems:
    """Add the errors of CEL rules, which run only if they can rely on the types of fields."""
    if rules is None:
        return SchemaProblems(causes, [])
    if any(cause.reason in _BLOCKING for cause in causes):
        causes.invalid(NO_PATH, None, _NOT_CHECKED)
        return SchemaProblems(causes, [])
    found = run_rules(rules, obj, old, correlated=correlated)
    return SchemaProblems(causes + found.causes, found.warnings)
