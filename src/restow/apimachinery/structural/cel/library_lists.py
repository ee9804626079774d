"""CEL functions on lists, sets and optional values.

Not here: macros, which are nodes of their own (`syntax`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from restow.apimachinery.structural.cel.functions import (
    TRAVERSAL,
    Overload,
    has_key,
    key_of,
    member,
)
from restow.apimachinery.structural.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    list_of,
    map_of,
    optional_of,
)
from restow.apimachinery.structural.cel.values import (
    NONE,
    CelError,
    Duration,
    Optional,
    Timestamp,
    Uint,
    cel_equal,
    contains,
    duration,
    no_such_overload,
    size_of,
    some,
)
from restow.apimachinery.type_values import INT64_MAX, INT64_MIN

# `lists.range` and `flatten` can create huge lists from small input; longer ones are rejected.
LIST_LENGTH_MAX: Final = 1_000_000

_ORDERED: Final = {bool, int, Uint, float, str, bytes, Duration, Timestamp}
_NUMBERS: Final = {int, Uint, float}


def compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1; CelError for types without a common order."""
    if type(one) is not type(other) and not {type(one), type(other)} <= _NUMBERS:
        raise no_such_overload()
    if type(one) not in _ORDERED:
        raise no_such_overload()
    return int(one > other) - int(one < other)


def walk_cost(value: Any) -> int:
    """Return the cost of reading all of a value."""
    if type(value) in (str, bytes):
        return int(len(value) * TRAVERSAL)
    if type(value) is list:
        return sum(map(walk_cost, value))
    if type(value) is dict:
        return sum(walk_cost(key) + walk_cost(each) for key, each in value.items())
    return 1


def _walk(args: tuple[Any, ...], _: Any) -> int:
    return walk_cost(args[0])


def _is_sorted(items: list[Any]) -> bool:
    return all(compare(one, other) <= 0 for one, other in pairwise(items))


def _sum(start: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        if isinstance(start, Duration):
            return duration(sum(each.nanoseconds for each in items))
        made = sum(items, start)
        if type(start) is int and not INT64_MIN <= made <= INT64_MAX:
            raise CelError("integer overflow")
        return Uint(made) if type(start) is Uint else made

    return total


def _extreme(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def find(items: list[Any]) -> Any:
        if not items:
            raise CelError(f"{name} called on empty list")
        best = items[0]
        for each in items[1:]:
            if compare(best, each) == sign:
                best = each
        return best

    return find


def _index_of(items: list[Any], value: Any) -> int:
    return next((at for at, each in enumerate(items) if cel_equal(each, value)), -1)


def _last_index_of(items: list[Any], value: Any) -> int:
    indexes = range(len(items) - 1, -1, -1)
    return next((at for at in indexes if cel_equal(items[at], value)), -1)


def _slice(items: list[Any], begin: int, end: int) -> list[Any]:
    if begin < 0 or end < 0:
        raise CelError(f"cannot slice({begin}, {end}), negative indexes not supported")
    if begin > end:
        raise CelError(
            f"cannot slice({begin}, {end}), start index must be less than or equal to end index"
        )
    if end > len(items):
        raise CelError(f"cannot slice({begin}, {end}), list is length {len(items)}")
    return items[begin:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for each in items:
        if type(each) is list and depth:
            flat += _flatten(each, depth - 1)
        else:
            flat.append(each)
        if len(flat) > LIST_LENGTH_MAX:
            raise CelError("list too long")
    return flat


def _sort(items: list[Any]) -> list[Any]:
    return sort_by(items, items)


def sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    """Sort items by their keys, which must all have one type."""
    if any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")

    def order(one: int, other: int) -> int:
        return compare(keys[one], keys[other])

    indexes = sorted(range(len(items)), key=cmp_to_key(order))
    return [items[index] for index in indexes]


def _range(count: int) -> list[Any]:
    if count > LIST_LENGTH_MAX:
        raise CelError("list too long")
    return list(range(count))


def _distinct(items: list[Any]) -> list[Any]:
    seen: set[Any] = set()
    found: list[Any] = []
    others: list[Any] = []
    for each in items:
        if type(each) is str:
            if each not in seen:
                seen.add(each)
                found.append(each)
        elif not contains(others, each):
            others.append(each)
            found.append(each)
    return found


def _has_all(items: list[Any], others: list[Any]) -> bool:
    return all(contains(items, each) for each in others)


def _value(optional: Optional) -> Any:
    if not optional.has_value:
        raise CelError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> Optional:
    is_zero = (
        value in (None, False, 0, "", b"") if not isinstance(value, list | dict) else not value
    )
    if isinstance(value, Duration):
        is_zero = value.nanoseconds == 0
    return NONE if is_zero else some(value)


def optional_entry(container: Any, key: Any) -> Any:
    """Evaluate `a[?k]`: an optional entry or item; empty if the optional container is."""
    if isinstance(container, Optional):
        return optional_entry(container.value, key) if container.has_value else NONE
    if type(container) is dict:
        return some(container[key_of(container, key)]) if has_key(key, container) else NONE
    if type(container) is list and type(key) in (int, Uint):
        return some(container[key]) if 0 <= key < len(container) else NONE
    raise no_such_overload()


def _by_type() -> list[Overload]:
    found = []
    for kind, name, start in (
        (INT, "int", 0),
        (UINT, "uint", Uint(0)),
        (DOUBLE, "double", 0.0),
        (BOOL, "bool", None),
        (DURATION, "duration", Duration(0)),
        (TIMESTAMP, "timestamp", None),
        (STRING, "string", None),
        (BYTES, "bytes", None),
    ):
        items = (list_of(kind),)
        found += [
            member("isSorted", f"list_{name}_is_sorted_bool", items, BOOL, _is_sorted, _walk),
            member("max", f"list_{name}_max_{name}", items, kind, _extreme("max", -1), _walk),
            member("min", f"list_{name}_min_{name}", items, kind, _extreme("min", 1), _walk),
            member("sort", f"list_{name}_sort", items, list_of(kind), _sort),
        ]
        if start is not None:
            found.append(member("sum", f"list_{name}_sum_{name}", items, kind, _sum(start), _walk))
    return found


def _many(name: str, id_: str, run: Callable[..., Any], times: int = 1) -> Overload:
    def cost(args: tuple[Any, ...], _: Any) -> int:
        return times * size_of(args[0]) * size_of(args[1]) + 1

    params = (list_of(A), list_of(A))
    return Overload(name, id_, params, BOOL, run, cost=cost)


def _size(args: tuple[Any, ...], _: Any) -> int:
    return size_of(args[0]) + 1


def _squared(args: tuple[Any, ...], _: Any) -> int:
    return size_of(args[0]) ** 2 + 1


_LIST: Final = list_of(A)
_OPTIONAL: Final = optional_of(A)

LISTS: Final[list[Overload]] = [
    *_by_type(),
    member("indexOf", "list_a_index_of_int", (_LIST, A), INT, _index_of, _walk),
    member("lastIndexOf", "list_a_last_index_of_int", (_LIST, A), INT, _last_index_of, _walk),
    member("slice", "list_slice", (_LIST, INT, INT), _LIST, _slice, _size),
    member("flatten", "list_flatten", (list_of(_LIST),), _LIST, _flatten, _size),
    member("flatten", "list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten, _size),
    member("reverse", "list_reverse", (_LIST,), _LIST, lambda items: items[::-1], _size),
    member("distinct", "list_distinct", (_LIST,), _LIST, _distinct, _squared),
    Overload("lists.range", "lists_range", (INT,), list_of(INT), _range),
    _many("sets.contains", "list_sets_contains_list", _has_all),
    _many(
        "sets.equivalent",
        "list_sets_equivalent_list",
        lambda one, other: _has_all(one, other) and _has_all(other, one),
        times=2,
    ),
    _many(
        "sets.intersects",
        "list_sets_intersects_list",
        lambda one, other: any(contains(one, each) for each in other),
    ),
    Overload("optional.of", "optional_of", (A,), _OPTIONAL, some),
    Overload("optional.none", "optional_none", (), _OPTIONAL, lambda: NONE),
    Overload("optional.ofNonZeroValue", "optional_ofNonZeroValue", (A,), _OPTIONAL, _of_non_zero),
    member("hasValue", "optional_hasValue", (_OPTIONAL,), BOOL, lambda value: value.has_value),
    member("value", "optional_value", (_OPTIONAL,), A, _value),
    member(
        "or",
        "optional_or_optional",
        (_OPTIONAL, _OPTIONAL),
        _OPTIONAL,
        lambda one, other: one if one.has_value else other,
    ),
    member(
        "orValue",
        "optional_orValue_value",
        (_OPTIONAL, A),
        A,
        lambda one, other: one.value if one.has_value else other,
    ),
    member(
        "first", "list_first", (_LIST,), _OPTIONAL, lambda items: some(items[0]) if items else NONE
    ),
    member(
        "last", "list_last", (_LIST,), _OPTIONAL, lambda items: some(items[-1]) if items else NONE
    ),
    Overload("_[?_]", "list_optindex_optional_int", (_LIST, INT), _OPTIONAL, optional_entry),
    Overload(
        "_[?_]", "map_optindex_optional_value", (map_of(A, B), A), optional_of(B), optional_entry
    ),
    Overload(
        "_[?_]", "optional_list_optindex", (optional_of(_LIST), INT), _OPTIONAL, optional_entry
    ),
    Overload(
        "_[?_]",
        "optional_map_optindex",
        (optional_of(map_of(A, B)), A),
        optional_of(B),
        optional_entry,
    ),
    Overload(
        "_[_]", "optional_list_index_int", (optional_of(_LIST), INT), _OPTIONAL, optional_entry
    ),
    Overload(
        "_[_]",
        "optional_map_index_value",
        (optional_of(map_of(A, B)), A),
        optional_of(B),
        optional_entry,
    ),
]
