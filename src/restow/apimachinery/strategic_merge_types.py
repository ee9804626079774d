"""The merge schema of a typed struct, for strategic merge patches of built-in kinds.

Rules are created on first use and cached with the struct.

Not here: merging, and the types themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.apimachinery.strategic_merge_lists import MergeSchema
from restow.apimachinery.types import Field, ListOf, MapOf, Struct, StructRef, Type

_COMPILED: Final = "strategic_merge"


@dataclass(frozen=True, slots=True)
class TypedRule:
    """The merge rule of one field."""

    strategies: tuple[str, ...]
    merge_key: str | None
    child: MergeSchema | None
    is_list: bool


class StructSchema:
    """The merge rules of a struct's fields."""

    __slots__ = ("_rules", "_struct")

    def __init__(self, struct: Struct) -> None:
        self._struct = struct
        self._rules: dict[str, TypedRule] = {}

    def field(self, name: str) -> TypedRule | None:
        """Return the rule of a field; None if the struct has no such field."""
        rule = self._rules.get(name)
        if rule is None and (field := self._struct.by_name.get(name)) is not None:
            rule = self._rules[name] = _rule(field, self._struct)
        return rule


class MapSchema:
    """The merge rule of a map's members, which is the same for all keys."""

    __slots__ = ("_rule",)

    def __init__(self, rule: TypedRule) -> None:
        self._rule = rule

    def field(self, _name: str) -> TypedRule:
        """Return the rule, which is the same for every key."""
        return self._rule


def merge_schema(struct: Struct) -> StructSchema:
    """Return the merge schema of a struct, shared by all patches."""
    found = struct.compiled.get(_COMPILED)
    if found is None:
        found = struct.compiled[_COMPILED] = StructSchema(struct)
    assert isinstance(found, StructSchema)
    return found


def _rule(field: Field, struct: Struct) -> TypedRule:
    return TypedRule(
        strategies=field.patch_strategies,
        merge_key=field.merge_key,
        child=_child(field.type, struct),
        is_list=isinstance(field.type, ListOf),
    )


def _child(type_: Type, struct: Struct) -> MergeSchema | None:
    if isinstance(type_, ListOf):
        return _child(type_.item, struct)
    if isinstance(type_, MapOf):
        is_list = isinstance(type_.value, ListOf)
        return MapSchema(TypedRule((), None, _child(type_.value, struct), is_list))
    return merge_schema(struct.table.struct(type_.name)) if isinstance(type_, StructRef) else None
