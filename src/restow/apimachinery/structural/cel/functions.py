"""Functions and operators of the core language: their types, implementation and cost.

A function has overloads; the checker selects those that match the argument types. If a type is only
known at runtime, `dispatch` selects one. The libraries define further functions.

Not here: `&&`, `||`, `?:` and macros, which do not evaluate all their arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from restow.apimachinery.structural.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
)
from restow.apimachinery.structural.cel.values import (
    UINT64_MAX,
    CelError,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    cel_equal,
    contains,
    duration,
    no_such_overload,
    size_of,
    timestamp,
)
from restow.apimachinery.structural.patterns import compile_pattern
from restow.apimachinery.type_values import INT64_MAX, INT64_MIN

TRAVERSAL: Final = 0.1
"""Cost of reading one character."""
REGEX: Final = 0.25
"""Cost of one character of a regular expression, per unit of the string's cost."""

Cost = Callable[[tuple[Any, ...], Any], int]


def ceil(number: float) -> int:
    """Round up to a whole cost."""
    return math.ceil(number)


@dataclass(slots=True, frozen=True, eq=False)
class Overload:
    """One overload of a function; the first parameter of a member function is its target."""

    function: str
    id: str
    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    is_member: bool = False
    cost: Cost | None = None
    """Computes the cost of a call from arguments and result; None means 1."""
    has_nominal_cost: bool = False
    """Whether the cost is nominal: a call takes far less time than others of the same cost, so it
    does not count towards offloading the evaluation to a thread.
    """


def member(  # noqa: PLR0917 - a row of a table
    name: str,
    id_: str,
    params: tuple[Type, ...],
    result: Type,
    run: Callable[..., Any],
    cost: Cost | None = None,
) -> Overload:
    """Return an overload that is called as a method of its first parameter."""
    return Overload(name, id_, params, result, run, is_member=True, cost=cost)


def dispatch(overloads: list[Overload], args: tuple[Any, ...]) -> Overload:
    """Return the overload that matches the runtime types of the arguments."""
    for each in overloads:
        if all(map(_is_a, args, each.params)):
            return each
    raise no_such_overload()


def _is_a(value: Any, wanted: Type) -> bool:
    if wanted.is_dyn:
        return True
    kind = _PYTHON.get(wanted.name)
    if kind is None:
        return getattr(value, "CEL_NAME", None) == wanted.name
    return type(value) is kind


_PYTHON: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "list": list,
    "map": dict,
    "object": dict,
    "null": type(None),
    "type": TypeValue,
    "optional_type": Optional,
    "google.protobuf.Duration": Duration,
    "google.protobuf.Timestamp": Timestamp,
}


def checked_int(number: int) -> int:
    """Return the number; CelError if it exceeds 64 bits."""
    if not INT64_MIN <= number <= INT64_MAX:
        raise CelError("integer overflow")
    return number


def checked_uint(number: int) -> Uint:
    """Return the number; CelError if it exceeds 64 bits without a sign."""
    if not 0 <= number <= UINT64_MAX:
        raise CelError("unsigned integer overflow")
    return Uint(number)


def _divide(one: int, other: int) -> int:
    if other == 0:
        raise CelError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _modulo(one: int, other: int) -> int:
    if other == 0:
        raise CelError("modulus by zero")
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _divide_floats(one: float, other: float) -> float:
    if other == 0:
        if one == 0 or math.isnan(one):
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1.0, other)
    return one / other


def _item(items: list[Any], index: Any) -> Any:
    if type(index) is float and index.is_integer():
        index = int(index)
    if type(index) is not int and type(index) is not Uint:
        raise no_such_overload()
    if not 0 <= index < len(items):
        raise CelError(f"index out of bounds: {index}")
    return items[index]


def key_of(entries: dict[Any, Any], key: Any) -> Any:
    """Return the map key that equals a value in CEL; KeyError if there is none."""
    if type(key) is bool:
        found = [each for each in entries if each is key]
        if not found:
            raise KeyError
        return key
    if isinstance(key, int | float) and key in (0, 1):
        # In Python these equal false and true.
        for each in entries:
            if type(each) is not bool and each == key:
                return each
        raise KeyError
    if key.__hash__ is None or key not in entries:
        raise KeyError
    return key


def _entry(entries: dict[Any, Any], key: Any) -> Any:
    try:
        return entries[key_of(entries, key)]
    except KeyError:
        raise CelError(f"no such key: {shown(key)}") from None


def has_key(key: Any, entries: dict[Any, Any]) -> bool:
    """Report whether a map has a key."""
    try:
        key_of(entries, key)
    except KeyError:
        return False
    return True


def shown(value: Any) -> str:
    """Format a value for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return to_text(value)
        case bytes():
            return value.decode(errors="replace")
    return str(value)


def to_text(number: float) -> str:
    """Format a double: no fraction if it is integral, an exponent from 21 digits on."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if number.is_integer() and abs(number) < 1e21:
        return str(int(number)) if number or math.copysign(1, number) > 0 else "-0"
    mantissa, e, exponent = repr(number).partition("e")
    if not e:
        return mantissa
    sign, digits = (exponent[0], exponent[1:]) if exponent[0] in "+-" else ("+", exponent)
    return f"{mantissa}e{sign}{digits:0>2}"


def matches(text: str, pattern: str) -> bool:
    """Report whether a regular expression matches anywhere in a string."""
    try:
        return compile_pattern(pattern).found_in(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def _smaller(args: tuple[Any, ...], _: Any) -> int:
    return ceil(min(size_of(args[0]), size_of(args[1])) * TRAVERSAL)


def traversal(factor: float = 1) -> Cost:
    """Return the cost function of reading the first argument `factor` times."""
    return lambda args, _: ceil(size_of(args[0]) * factor * TRAVERSAL)


def _added(args: tuple[Any, ...], _: Any) -> int:
    return ceil((size_of(args[0]) + size_of(args[1])) * TRAVERSAL)


def regex_cost(args: tuple[Any, ...], _: Any) -> int:
    """Return the cost of a regular expression: string size times pattern size."""
    return ceil((1.0 + size_of(args[0])) * TRAVERSAL) * ceil(size_of(args[1]) * REGEX)


def _substring_cost(args: tuple[Any, ...], _: Any) -> int:
    return ceil(size_of(args[0]) * TRAVERSAL) * ceil(size_of(args[1]) * TRAVERSAL)


def _comparisons() -> list[Overload]:
    names = {"int": "int64", "uint": "uint64", "double": "double"}
    found = []
    for sign, word, compare in (
        ("_<_", "less", lambda one, other: one < other),
        ("_<=_", "less_equals", lambda one, other: one <= other),
        ("_>_", "greater", lambda one, other: one > other),
        ("_>=_", "greater_equals", lambda one, other: one >= other),
    ):
        for kind, name, cost in (
            (BOOL, "bool", None),
            (STRING, "string", _smaller),
            (BYTES, "bytes", _smaller),
            (TIMESTAMP, "timestamp", None),
            (DURATION, "duration", None),
        ):
            found.append(Overload(sign, f"{word}_{name}", (kind, kind), BOOL, compare, cost=cost))
        for one in (INT, UINT, DOUBLE):
            for other in (INT, UINT, DOUBLE):
                mine, theirs = names[one.name], names[other.name]
                name = f"{word}_{mine}" if mine == theirs else f"{word}_{mine}_{theirs}"
                found.append(Overload(sign, name, (one, other), BOOL, compare))
    return found


def _arithmetic() -> list[Overload]:
    found = []
    for sign, word, run in (
        ("_+_", "add", lambda one, other: one + other),
        ("_-_", "subtract", lambda one, other: one - other),
        ("_*_", "multiply", lambda one, other: one * other),
    ):
        for kind, name, checked in ((INT, "int64", checked_int), (UINT, "uint64", checked_uint)):
            found.append(_checked(sign, f"{word}_{name}", kind, run, checked))
        found.append(Overload(sign, f"{word}_double", (DOUBLE, DOUBLE), DOUBLE, run))
    for sign, word, whole in (("_/_", "divide", _divide), ("_%_", "modulo", _modulo)):
        for kind, name, checked in ((INT, "int64", checked_int), (UINT, "uint64", checked_uint)):
            found.append(_checked(sign, f"{word}_{name}", kind, whole, checked))
    found += [
        Overload("_/_", "divide_double", (DOUBLE, DOUBLE), DOUBLE, _divide_floats),
        Overload("-_", "negate_int64", (INT,), INT, lambda value: checked_int(-value)),
        Overload("-_", "negate_double", (DOUBLE,), DOUBLE, lambda value: -value),
        Overload("!_", "logical_not", (BOOL,), BOOL, lambda value: not value),
        _sum("add_string", STRING, lambda one, other: one + other, _added),
        _sum("add_bytes", BYTES, lambda one, other: one + other, _added),
        _sum("add_list", list_of(A), lambda one, other: one + other, None),
    ]
    return found


def _checked(
    sign: str, name: str, kind: Type, run: Callable[[int, int], int], checked: Callable[[int], int]
) -> Overload:
    return Overload(
        sign, name, (kind, kind), kind, lambda one, other: checked(run(int(one), int(other)))
    )


def _sum(name: str, kind: Type, run: Callable[[Any, Any], Any], cost: Cost | None) -> Overload:
    return Overload("_+_", name, (kind, kind), kind, run, cost=cost)


def _times() -> list[Overload]:
    def plus(one: Any, other: Any) -> Any:
        total = one.nanoseconds + other.nanoseconds
        both = isinstance(one, Duration) and isinstance(other, Duration)
        return duration(total) if both else timestamp(total)

    def minus(one: Any, other: Any) -> Any:
        total = one.nanoseconds - other.nanoseconds
        is_moment = isinstance(one, Timestamp) and isinstance(other, Duration)
        return timestamp(total) if is_moment else duration(total)

    return [
        Overload("_+_", "add_duration_duration", (DURATION, DURATION), DURATION, plus),
        Overload("_+_", "add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, plus),
        Overload("_+_", "add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, plus),
        Overload("_-_", "subtract_duration_duration", (DURATION, DURATION), DURATION, minus),
        Overload("_-_", "subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, minus),
        Overload("_-_", "subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, minus),
    ]


def _sizes() -> list[Overload]:
    found = []
    for kind, name in (
        (STRING, "string"),
        (BYTES, "bytes"),
        (list_of(A), "list"),
        (map_of(A, B), "map"),
    ):
        found.append(Overload("size", f"size_{name}", (kind,), INT, len))
        found.append(Overload("size", f"{name}_size", (kind,), INT, len, is_member=True))
    return found


def _texts() -> list[Overload]:
    found = []
    for name, id_, run, cost in (
        ("contains", "contains_string", lambda text, part: part in text, _substring_cost),
        ("startsWith", "starts_with_string", str.startswith, traversal()),
        ("endsWith", "ends_with_string", str.endswith, traversal()),
        ("matches", "matches_string", matches, regex_cost),
    ):
        params = (STRING, STRING)
        found.append(Overload(name, id_, params, BOOL, run, is_member=True, cost=cost))
    found.append(Overload("matches", "matches", (STRING, STRING), BOOL, matches, cost=regex_cost))
    return found


STANDARD: Final[list[Overload]] = [
    Overload("_==_", "equals", (A, A), BOOL, cel_equal, cost=_smaller),
    Overload(
        "_!=_",
        "not_equals",
        (A, A),
        BOOL,
        lambda one, other: not cel_equal(one, other),
        cost=_smaller,
    ),
    Overload("_[_]", "index_list", (list_of(A), INT), A, _item),
    Overload("_[_]", "index_map", (map_of(A, B), A), B, _entry),
    Overload(
        "@in",
        "in_list",
        (A, list_of(A)),
        BOOL,
        lambda value, items: contains(items, value),
        cost=lambda args, _: size_of(args[1]),
    ),
    Overload("@in", "in_map", (A, map_of(A, B)), BOOL, has_key),
    *_comparisons(),
    *_arithmetic(),
    *_times(),
    *_sizes(),
    *_texts(),
]
