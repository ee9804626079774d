"""Building blocks of field rules, and the walk that applies them to a whole object.

A table maps structs, by package and name, to the rules of their fields. The types of a kind
determine where such structs occur, so a table is written once and applies everywhere. The walk
visits only paths to structs with rules; an object without any costs nothing.

Not here: the tables (`kind_rules`, `pod_rules`, `volume_rules`), and rules that involve several
fields or the old object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from restow.apimachinery import quantity
from restow.apimachinery.types import ListOf, MapOf, Struct, StructRef
from restow.kinds.validation.fields import NOT_NEGATIVE, Causes, Object

Rule = Callable[[Causes, str, Any], None]
"""Adds the errors of the value of a field; the value of an absent field is None."""
Fields = Mapping[str, Rule]
"""Rules by field. The rule under `""` is for the struct as a whole."""
Walk = Callable[[Causes, str, Object], None]
INT32_MAX: Final = 2**31 - 1
_COMPILED: Final = "validation.walk"


def anything(_causes: Causes, _field: str, _value: Any) -> None:
    """Accept any value, and do not apply the tables inside it."""


def needed(causes: Causes, field: str, value: Any) -> None:
    """Require a value that is not empty."""
    if not value and value != 0 and value is not False:
        causes.required(field)


def needed_because(why: str) -> Rule:
    """Require a value that is not empty, with a message."""

    def check(causes: Causes, field: str, value: Any) -> None:
        if not value:
            causes.required(field, why)

    return check


def present_because(why: str) -> Rule:
    """Require a value, which may be empty, with a message."""

    def check(causes: Causes, field: str, value: Any) -> None:
        if value is None:
            causes.required(field, why)

    return check


present: Final = present_because("")


def whole_one_of(*values: str) -> Rule:
    """Require that each item of a list is one of the values; errors name the list."""
    among = one_of(*values)

    def check(causes: Causes, field: str, value: Any) -> None:
        for item in value if isinstance(value, list) else ():
            among(causes, field, item)

    return check


def one_of(*values: str) -> Rule:
    """Require that a text, if present, is one of the values. Without a default, "" is invalid."""

    def check(causes: Causes, field: str, value: Any) -> None:
        if value is not None and value not in values:
            causes.not_supported(field, value, values)

    return check


def given_one_of(*values: str) -> Rule:
    """Require that a text, if not empty, is one of the values."""
    among = one_of(*values)
    return lambda causes, field, value: among(causes, field, value or None)


def filled_one_of(*values: str) -> Rule:
    """Require that a text is one of the values; an absent one is invalid."""
    among = one_of(*values)
    return lambda causes, field, value: among(causes, field, value or "")


def filled(problem: Callable[[str], str | None]) -> Rule:
    """Require a text of some format; the empty text is checked too."""

    def check(causes: Causes, field: str, value: Any) -> None:
        if why := problem(value or ""):
            causes.invalid(field, value or "", why)

    return check


def filled_number(causes: Causes, field: str, value: Any) -> None:
    """Require a number other than zero."""
    if not value:
        causes.required(field)


def number(least: int, most: int = INT32_MAX) -> Rule:
    """Require that a number, if present, is within bounds."""
    why = f"must be between {least} and {most}, inclusive"

    def check(causes: Causes, field: str, value: Any) -> None:
        if isinstance(value, int) and not least <= value <= most:
            causes.invalid(field, value, why)

    return check


def not_negative(causes: Causes, field: str, value: Any) -> None:
    """Require that a number, if present, is not negative."""
    if isinstance(value, int) and value < 0:
        causes.invalid(field, value, NOT_NEGATIVE)


def positive(causes: Causes, field: str, value: Any) -> None:
    """Require that a number, if present, is positive."""
    if isinstance(value, int) and value <= 0:
        causes.invalid(field, value, "must be greater than 0")


def text(problem: Callable[[str], str | None]) -> Rule:
    """Require that a text, if not empty, has some format."""

    def check(causes: Causes, field: str, value: Any) -> None:
        if isinstance(value, str) and value and (why := problem(value)):
            causes.invalid(field, value, why)

    return check


def matching(pattern: str, why: str) -> Rule:
    """Require that a text, if not empty, matches a pattern as a whole."""
    compiled = re.compile(pattern, re.ASCII)
    return text(lambda value: None if compiled.fullmatch(value) else why)


def each(rule: Rule) -> Rule:
    """Apply a rule to every item of a list."""

    def check(causes: Causes, field: str, value: Any) -> None:
        for index, item in enumerate(value if isinstance(value, list) else ()):
            rule(causes, f"{field}[{index}]", item)

    return check


def both(*rules: Rule) -> Rule:
    """Apply several rules."""

    def check(causes: Causes, field: str, value: Any) -> None:
        for rule in rules:
            rule(causes, field, value)

    return check


def distinct(causes: Causes, field: str, value: Any) -> None:
    """Require that the texts of a list are distinct."""
    seen: set[str] = set()
    for index, item in enumerate(value if isinstance(value, list) else ()):
        causes.once(f"{field}[{index}]", item, seen)


def distinct_by(name: str) -> Rule:
    """Require that the objects of a list have distinct values of a field."""

    def check(causes: Causes, field: str, value: Any) -> None:
        seen: set[Any] = set()
        for index, item in enumerate(value if isinstance(value, list) else ()):
            found = item.get(name)
            if found and found in seen:
                causes.duplicate(f"{field}[{index}].{name}", found)
            seen.add(found)

    return check


def some_of(*names: str, why: str, most: int = 1) -> Rule:
    """Require at least one, and at most `most`, of these fields of a struct."""

    def check(causes: Causes, field: str, value: Any) -> None:
        count = sum(value.get(name) is not None for name in names)
        if count == 0:
            causes.required(field, why)
        elif count > most:
            causes.forbidden(field, "may not specify more than 1")

    return check


def amounts(causes: Causes, field: str, value: Any) -> None:
    """Require that the quantities in a map are not negative."""
    for name, amount in value.items() if isinstance(value, dict) else ():
        if str(amount).startswith("-") and quantity.parse(str(amount)) < 0:
            causes.invalid(f"{field}[{name}]", str(amount), NOT_NEGATIVE)


def walk_of(struct: Struct, tables: Mapping[str, Fields]) -> Walk | None:
    """Return the walk for objects of a struct; None if no table applies to it."""
    if _COMPILED not in struct.compiled:
        struct.compiled[_COMPILED] = None  # a recursive struct is not walked again
        struct.compiled[_COMPILED] = _compile(struct, tables)
    found: Walk | None = struct.compiled[_COMPILED]
    return found


def _compile(struct: Struct, tables: Mapping[str, Fields]) -> Walk | None:
    *_, package, _version, name = struct.name.split(".")
    own = tables.get(f"{package}/{name}", {})
    whole = own.get("")
    rules = [(name, rule) for name, rule in own.items() if name]
    inner: list[tuple[str, Walk, str]] = []
    for field in struct:
        type_, shape = field.type, "one"
        if isinstance(type_, ListOf):
            type_, shape = type_.item, "list"
        elif isinstance(type_, MapOf):
            type_, shape = type_.value, "map"
        if isinstance(type_, StructRef) and own.get(field.json) is not anything:
            walk = walk_of(struct.table.struct(type_.name), tables)
            if walk is not None:
                inner.append((field.json, walk, shape))
    return _walker(whole, rules, inner) if whole or rules or inner else None


def _walker(
    whole: Rule | None, rules: list[tuple[str, Rule]], inner: list[tuple[str, Walk, str]]
) -> Walk:
    def walk(causes: Causes, field: str, obj: Object) -> None:
        if whole is not None:
            whole(causes, field, obj)
        dot = f"{field}." if field else ""
        for name, rule in rules:
            rule(causes, f"{dot}{name}", obj.get(name))
        for name, go_on, shape in inner:
            found = obj.get(name)
            if not found and found != {}:
                continue
            if shape == "one":
                go_on(causes, f"{dot}{name}", found)
            elif shape == "list":
                for index, item in enumerate(found):
                    go_on(causes, f"{dot}{name}[{index}]", item)
            else:
                for key, item in found.items():
                    go_on(causes, f"{dot}{name}[{key}]", item)

    return walk
