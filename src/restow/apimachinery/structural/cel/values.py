"""Values of CEL expressions: types that Python lacks, errors, and equality.

JSON values represent themselves: int, float, str, bool, None, list and dict. Strings with a time or
duration format become values of the types here when a rule reads them.

Not here: functions (`functions`), and type checking (`checker`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from restow.apimachinery.type_values import INT64_MAX, INT64_MIN

UINT64_MAX: Final = 2**64 - 1
NANOSECOND: Final = 1_000_000_000


class CelError(Exception):
    """Evaluation failed: a missing key, a number out of range, a malformed string."""


class CostExceeded(Exception):
    """An expression exceeded the cost limit of one call; aborts the evaluation."""


class TrialOver(Exception):
    """An expression exceeded its trial budget; its value is unknown."""


def no_such_overload() -> CelError:
    """Return the error for arguments whose runtime types match no overload."""
    return CelError("no such overload")


class Uint(int):
    """An unsigned integer, distinct from signed ones."""

    __slots__ = ()


@dataclass(slots=True, frozen=True, order=True)
class Duration:
    """A duration in nanoseconds."""

    nanoseconds: int

    def __str__(self) -> str:
        seconds, rest = divmod(abs(self.nanoseconds), NANOSECOND)
        sign = "-" if self.nanoseconds < 0 else ""
        return f"{sign}{seconds}.{rest:09d}".rstrip("0").rstrip(".") + "s"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# From 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999999Z.
_TIME_MIN: Final = -62135596800 * NANOSECOND
_TIME_MAX: Final = 253402300800 * NANOSECOND - 1


@dataclass(slots=True, frozen=True, order=True)
class Timestamp:
    """A point in time, in nanoseconds since 1970."""

    nanoseconds: int

    def at_utc(self) -> datetime:
        """Return the time as a datetime, truncated to microseconds."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)

    def __str__(self) -> str:
        rest = self.nanoseconds % NANOSECOND
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{self.at_utc():%Y-%m-%dT%H:%M:%S}{fraction}Z".rjust(20, "0")


def timestamp(nanoseconds: int) -> Timestamp:
    """Return a timestamp; CelError if it is outside of the years 1 to 9999."""
    if not _TIME_MIN <= nanoseconds <= _TIME_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(nanoseconds)


def duration(nanoseconds: int) -> Duration:
    """Return a duration; CelError if it exceeds 64 bits."""
    if not INT64_MIN <= nanoseconds <= INT64_MAX:
        raise CelError("duration overflow")
    return Duration(nanoseconds)


@dataclass(slots=True, frozen=True)
class TypeValue:
    """A type as a value, as `type(x)` returns it."""

    name: str


class Optional:
    """An optional value."""

    __slots__ = ("has_value", "value")

    def __init__(self, value: Any = None, *, has_value: bool) -> None:
        self.value = value
        self.has_value = has_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.has_value != other.has_value:
            return False
        return not self.has_value or cel_equal(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.has_value)


NONE: Final = Optional(has_value=False)


def some(value: Any) -> Optional:
    """Return an optional that holds a value."""
    return Optional(value, has_value=True)


def cel_equal(one: Any, other: Any) -> bool:
    """Compare two values: numbers by value across types, everything else within its type."""
    kind = type(one)
    if kind is type(other):
        if kind is list:
            return len(one) == len(other) and all(map(cel_equal, one, other))
        if kind is dict:
            return len(one) == len(other) and all(
                key in other and cel_equal(value, other[key]) for key, value in one.items()
            )
        return bool(one == other)
    if kind is bool or type(other) is bool:
        return False
    return isinstance(one, int | float) and isinstance(other, int | float) and bool(one == other)


def contains(items: list[Any], value: Any) -> bool:
    """Report whether a list contains an item equal to a value."""
    if type(value) is str:
        return value in items
    return any(cel_equal(item, value) for item in items)


def size_of(value: Any) -> int:
    """Return the size of a value for cost computation; 1 if it has no size."""
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is bytes:
        return len(value)
    if kind is Optional and value.has_value:
        return size_of(value.value)
    return 1


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_of(value: Any) -> TypeValue:
    """Return the type of a value."""
    name = _TYPE_NAMES.get(type(value)) or getattr(value, "CEL_NAME", None)
    if name is None:
        raise no_such_overload()
    return TypeValue(name)


Convert = Callable[[Any], Any]
