# (Python 3.11 has no `typing.override`.)
"""Label and field selectors: parsed once, then matched against many objects.

A selector is a list of requirements, all of which must match. It is compiled to a function, because
listing ten thousand objects calls it ten thousand times.

The syntax is in `selector_syntax`.

Not here: which fields a kind supports in selectors, and the labels and fields of objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from restow.apimachinery.selector_syntax import (
    Requirement,
    check_count,
    int64,
    read_field_requirements,
    read_label_requirements,
    requirement_of,
)
from restow.apimachinery.status import bad_request

# Longer selectors are rare, and would fill the memory of the cache.
_CACHED_LENGTH_MAX: Final = 512

Matcher = Callable[[Mapping[str, str]], bool]


class LabelSelector:
    """Label requirements."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda each: each.key))
        self.matches: Matcher = _all_of([_label_matcher(each) for each in self.requirements])
        """Reports whether an object with these labels is selected."""

    def __bool__(self) -> bool:
        """Report whether there is any requirement."""
        return bool(self.requirements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)

    def __str__(self) -> str:
        """Return the canonical form: selectors with equal strings select the same objects."""
        return ",".join(map(str, self.requirements))

    def requires(self, key: str) -> str | None:
        """Return the only value that a label may have; None if the selector does not fix it."""
        for requirement in self.requirements:
            is_equality = requirement.operator in ("=", "==", "in")
            if requirement.key == key and is_equality and len(requirement.values) == 1:
                return requirement.values[0]
        return None


class FieldSelector:
    """Field requirements, each `=` or `!=`."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        self.requirements = tuple(requirements)
        self.matches: Matcher = _all_of([_field_matcher(each) for each in self.requirements])
        """Reports whether an object with these fields is selected; a missing field is empty."""

    def __bool__(self) -> bool:
        """Report whether there is any requirement."""
        return bool(self.requirements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSelector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)

    def __str__(self) -> str:
        """Return the selector as a client would write it."""
        return ",".join(
            f"{each.key}{each.operator}{_escaped(each.values[0])}" for each in self.requirements
        )

    def requires(self, field: str) -> str | None:
        """Return the only value that a field may have; None if the selector does not fix it."""
        for requirement in self.requirements:
            if requirement.key == field and requirement.operator == "=":
                return requirement.values[0]
        return None

    def refuse_others(self, supported: Collection[str]) -> None:
        """Raise BadRequest if the selector uses other fields."""
        for requirement in self.requirements:
            if requirement.key not in supported:
                raise bad_request(f"field label not supported: {requirement.key[:256]}")


def parse_label_selector(text: str) -> LabelSelector:
    """Parse `a=b,c in (d,e),!f`."""
    if len(text) <= _CACHED_LENGTH_MAX:
        return _parse_label_selector_cached(text)
    return LabelSelector(read_label_requirements(text))


@lru_cache(maxsize=1024)
def _parse_label_selector_cached(text: str) -> LabelSelector:
    return LabelSelector(read_label_requirements(text))


def parse_field_selector(text: str) -> FieldSelector:
    """Parse `metadata.name=a,status.phase!=b`; a backslash escapes `,` and `=`."""
    return FieldSelector(read_field_requirements(text))


def label_selector_of(value: Mapping[str, Any] | None) -> LabelSelector:
    """Build the selector of an object's `matchLabels` and `matchExpressions`.

    None selects nothing, an empty one everything. An invalid one is a 400, because objects were
    validated before.
    """
    if value is None:
        return NOTHING
    found = []
    for key, expected in _of_type(value.get("matchLabels"), dict).items():
        found.append(requirement_of(_of_type(key, str), "=", [_of_type(expected, str)]))
    for expression in _of_type(value.get("matchExpressions"), list):
        name = _of_type(_of_type(expression, dict).get("operator"), str)
        operator = _EXPRESSION_OPERATORS.get(name)
        if operator is None:
            raise bad_request(f'"{name[:64]}" is not a valid label selector operator')
        expected = [_of_type(each, str) for each in _of_type(expression.get("values"), list)]
        found.append(requirement_of(_of_type(expression.get("key"), str), operator, expected))
    check_count(len(found))
    return LabelSelector(found)


_EXPRESSION_OPERATORS: Final = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}


def _of_type(value: Any, expected: type) -> Any:
    """Return the value, or the type's empty value for null."""
    if value is None:
        return expected()
    if type(value) is not expected:
        raise bad_request(f"a label selector has a value of a wrong type: {str(value)[:64]}")
    return value


def _label_matcher(requirement: Requirement) -> Matcher:
    key, operator, values = requirement
    match operator:
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
        case "<" | ">":
            return _order_matcher(requirement)
        case "!=" | "notin":
            unwanted = frozenset(values)
            return lambda labels: labels.get(key) not in unwanted
        case _ if len(values) == 1:
            value = values[0]
            return lambda labels: labels.get(key) == value
        case _:
            expected = frozenset(values)
            return lambda labels: labels.get(key) in expected


def _order_matcher(requirement: Requirement) -> Matcher:
    key, operator, values = requirement
    bound = int(values[0])

    def matches(labels: Mapping[str, str]) -> bool:
        value = labels.get(key)
        number = None if value is None else int64(value)
        if number is None:
            return False
        return number < bound if operator == "<" else number > bound

    return matches


def _field_matcher(requirement: Requirement) -> Matcher:
    field, operator, (value,) = requirement
    if operator == "=":
        return lambda fields: fields.get(field, "") == value
    return lambda fields: fields.get(field, "") != value


def _all_of(matchers: list[Matcher]) -> Matcher:
    if not matchers:
        return lambda _: True
    if len(matchers) == 1:
        return matchers[0]
    if len(matchers) == 2:
        first, second = matchers
        return lambda labels: first(labels) and second(labels)

    def matches(labels: Mapping[str, str]) -> bool:
        for each in matchers:  # noqa: SIM110 - a generator costs more than the loop
            if not each(labels):
                return False
        return True

    return matches


def _escaped(value: str) -> str:
    return re.sub(r"([\\=,])", r"\\\1", value)


# The meaning of an optional selector that is None: a requirement that nothing satisfies.
NOTHING: Final = LabelSelector([Requirement("", "in", ())])
EVERYTHING: Final = LabelSelector([])
