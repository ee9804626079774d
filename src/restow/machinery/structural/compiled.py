"""One version of a custom resource, compiled: what is done to its objects on each write.

The order is the reference's: nulls, defaults and pruning after decoding; then schema, embedded
objects, lists, and at last rules, which run only if what they read has the right types.

Not here: metadata of the object, scale and status paths, conversion, storage.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from restow.machinery import field_errors
from restow.machinery.status_error import Cause
from restow.machinery.structural.cel.rules import RuleNode, compile_rules, run_rules
from restow.machinery.structural.coerce import Coercion
from restow.machinery.structural.embedded import coerce_embedded, embedded_problems, has_embedded
from restow.machinery.structural.listtypes import compile_list_types, list_type_problems
from restow.machinery.structural.quick import compile_quick
from restow.machinery.structural.ratchet import Correlated
from restow.machinery.structural.schema import Schema
from restow.machinery.structural.validate import NO_PATH, schema_problems

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


class Verdict(NamedTuple):
    """What is wrong with an object, and what is only worth a warning."""

    causes: list[Cause]
    warnings: list[str]


ACCEPTED: Final = Verdict([], [])


class _Parts:
    """What is compiled of a schema."""

    __slots__ = ("accepts", "coerce", "has_embedded", "lists_are_right", "rules")

    def __init__(self, schema: Schema) -> None:
        self.coerce = Coercion(schema)
        self.accepts = compile_quick(schema)
        self.lists_are_right = compile_list_types(schema)
        self.rules = compile_rules(schema)
        self.has_embedded = has_embedded(schema)


class CompiledSchema:
    """Everything that is made once for a schema; safe to share.

    It is made for the first object: of a thousand kinds, most are not used for a long time.
    """

    __slots__ = ("_made", "schema")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._made: _Parts | None = None

    @property
    def _parts(self) -> _Parts:
        if self._made is None:
            self._made = _Parts(self.schema)
        return self._made

    def coerce(self, obj: dict[str, Any]) -> list[str]:
        """Drops nulls, fills in defaults and prunes, in place; gives back what was pruned.

        For what a client sent and for what was read from the store.
        """
        parts = self._parts
        unknown = parts.coerce(obj)
        if parts.has_embedded:
            unknown = sorted(unknown + coerce_embedded(obj, self.schema))
        return unknown

    def accepts(self, obj: dict[str, Any]) -> bool:
        """Whether an object is surely right but for rules in CEL; False says nothing."""
        parts = self._parts
        if not parts.accepts(obj) or parts.has_embedded:
            return False
        return parts.lists_are_right is None or parts.lists_are_right(obj)

    def problems(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> Verdict:
        """All that is wrong with an object; on update, what did not change is forgiven."""
        accepted = self.accepts(obj)
        rules = self._parts.rules
        if accepted and rules is None:
            return ACCEPTED
        correlated = Correlated(obj, old, self.schema) if old is not None else None
        causes = [] if accepted else self._schema_problems(obj, old, correlated)
        return _with_rules(rules, causes, obj, old, correlated=correlated)

    def status_problems(self, obj: dict[str, Any], old: dict[str, Any]) -> Verdict:
        """The same for a write to the status: the rest of the object is not looked at again."""
        correlated = Correlated(obj, old, self.schema)
        causes: list[Cause] = []
        status_schema = self.schema.properties.get("status")
        if not self.accepts(obj):
            if "status" in obj and status_schema is not None:
                below = correlated.member("status")
                causes += schema_problems(
                    obj["status"], status_schema, path="status", correlated=below
                )
            causes += self._list_problems(obj, old)
        return _with_rules(self._parts.rules, causes, obj, old, correlated=correlated)

    def _schema_problems(
        self, obj: dict[str, Any], old: dict[str, Any] | None, correlated: Correlated | None
    ) -> list[Cause]:
        causes = schema_problems(obj, self.schema, correlated=correlated)
        if self._parts.has_embedded:
            causes += embedded_problems(obj, self.schema)
        return causes + self._list_problems(obj, old)

    def _list_problems(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
        """An object whose lists were wrong already may keep them so."""
        are_right = self._parts.lists_are_right
        if are_right is None or are_right(obj):
            return []
        if old is not None and list_type_problems(old, self.schema):
            return []
        return list_type_problems(obj, self.schema)


def _with_rules(
    rules: RuleNode | None,
    causes: list[Cause],
    obj: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    correlated: Correlated | None,
) -> Verdict:
    """Rules run only if they can rely on what they read."""
    if rules is None:
        return Verdict(causes, [])
    if any(cause.reason in _BLOCKING for cause in causes):
        causes.append(field_errors.invalid(NO_PATH, None, _NOT_CHECKED))
        return Verdict(causes, [])
    found = run_rules(rules, obj, old, correlated=correlated)
    return Verdict(causes + found.causes, found.warnings)
