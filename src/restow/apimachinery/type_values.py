"""The canonical JSON form of single values: times, durations, base64, and the zero of each type.

The canonical form is what a Go server would write after decoding the value, so a Go client that
reads an object and sends it back changes nothing. There are three intended differences: an empty
list or map that must be written is `[]` or `{}`, never null; an empty struct with omitempty is
omitted, which Go cannot do; and so is a time or pointer that is null.

Not here: walking over objects, and error responses. Invalid values raise ValueError.
"""

import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from restow.apimachinery.types import Field, ListOf, MapOf, Scalar, Special, Struct, StructRef

# Marks a field that is not written. JSON has no such value, so it cannot be confused with one.
ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda _: "ABSENT"})()

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# Above it not every integer is exactly representable as a float.
FLOAT_EXACT_MAX: Final = 2**53

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Go's zero time, which it writes as null.
ZERO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)

_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.([0-9]{1,30}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_CANONICAL_LENGTH: Final = len("2006-01-02T15:04:05Z")
_TIMES_KEPT_MAX: Final = 1_024
_CANONICAL_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
).fullmatch
_CANONICAL_MICRO_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
).fullmatch
_ZERO_DAY: Final = "0001-01-01T00:00:00"

_DURATION_MAX_CHARACTERS: Final = 100
_DURATION: Final = re.compile(r"([+-]?)((?:[0-9]*\.?[0-9]*(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3_600 * _SECOND,
}


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time with any offset into UTC; digits beyond microseconds are truncated."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f'cannot parse "{text[:40]}" as an RFC 3339 time')
    fraction, zone = match.groups()
    # Python accepts at most six digits; it rejects years below 1 and above 9999 itself.
    plain = text[:19] + (f".{fraction[:6]:0<6}" if fraction else "") + zone.replace("Z", "+00:00")
    try:
        return datetime.fromisoformat(plain).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f'cannot parse "{text[:40]}" as an RFC 3339 time: {error}') from error


def write_time(time: datetime) -> Any:
    """Format a time with seconds and `Z`; ABSENT for the zero time."""
    text = time.isoformat()[:19]
    return ABSENT if text == _ZERO_DAY else text + "Z"


def write_micro_time(time: datetime) -> Any:
    """Format a time with six fractional digits and `Z`; ABSENT for the zero time."""
    if time == ZERO_TIME:
        return ABSENT
    return time.isoformat(timespec="microseconds")[:26] + "Z"


def time_from_unix(seconds: int, nanoseconds: int) -> datetime:
    """Convert a protobuf timestamp; ValueError outside of the years 1 to 9999."""
    try:
        return EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError as error:
        raise ValueError(f"{seconds} seconds is not within the years 1 to 9999") from error


def time_to_unix(time: datetime) -> tuple[int, int]:
    """Return the seconds since 1970, and the nanoseconds within the second."""
    since = time - EPOCH
    return since.days * 86_400 + since.seconds, since.microseconds * 1000


def is_canonical_time(text: str) -> bool:
    """Report whether `write_time(parse_time(text))` would return the same string."""
    return len(text) == _CANONICAL_LENGTH and _is_cached_time(text)


@lru_cache(maxsize=_TIMES_KEPT_MAX)
def _is_cached_time(text: str) -> bool:
    # Objects that are written often repeat the same times.
    return _CANONICAL_TIME(text) is not None and _is_valid_time(text)


def is_canonical_micro_time(text: str) -> bool:
    """Report whether `write_micro_time(parse_time(text))` would return the same string."""
    return _CANONICAL_MICRO_TIME(text) is not None and _is_valid_time(text)


def _is_valid_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return not text.startswith(_ZERO_DAY)


def parse_duration(text: str) -> int:
    """Parse a Go duration such as `1h30m` into nanoseconds."""
    match = _DURATION.fullmatch(text) if len(text) <= _DURATION_MAX_CHARACTERS else None
    if match is None:
        raise ValueError(f'invalid duration "{text[:40]}"')
    total = 0
    for whole, fraction, unit in _DURATION_PART.findall(match[2]):
        if not whole and not fraction:
            raise ValueError(f'invalid duration "{text[:40]}"')
        total += int(whole or "0") * _UNITS[unit]
        if fraction:
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
    if total > INT64_MAX:
        raise ValueError(f'invalid duration "{text[:40]}"')
    return -total if match[1] == "-" else total


def write_duration(nanoseconds: int) -> str:
    """Format a duration as Go does: `1h0m0s`, `1.5s`, `20ms`, `0s`."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < _SECOND:
        for unit in ("ms", "µs", "ns"):
            if rest >= _UNITS[unit]:
                return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
        return "0s"
    minutes, rest = divmod(rest, 60 * _SECOND)
    seconds = f"{_decimal(rest, _SECOND)}s"
    if not minutes:
        return f"{sign}{seconds}"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}}".rstrip("0")


def decode_base64(text: str) -> bytes:
    """Decode standard base64 with padding; line breaks inside are ignored, as in Go."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ValueError("illegal base64 data") from error


def encode_base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def is_canonical_base64(text: str) -> bool:
    """Report whether decoding and encoding would return the same string."""
    try:
        a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    # Only the last group can have unused bits.
    return not text.endswith("=") or encode_base64(a2b_base64(text[-4:])) == text[-4:]


_SCALAR_ZEROS: Final = {
    Scalar.STRING: "",
    Scalar.BOOL: False,
    Scalar.INT32: 0,
    Scalar.INT64: 0,
    Scalar.FLOAT64: 0,
    Scalar.BYTES: "",
}


def zero_of_field(struct: Struct, field: Field) -> Any:
    """Return the value that is written for a missing field; ABSENT for most."""
    if field.pointer:
        return ABSENT
    match field.type:
        case StructRef(name):
            # In Go, omitempty does not apply to structs: an empty one is written.
            return zero_of_struct(struct.table.struct(name))
        case Special.QUANTITY:
            return "0"  # a struct as well, and one without an empty form
        case Special.INT_OR_STRING | Special.DURATION | Scalar() | ListOf() | MapOf():
            return ABSENT if field.omitempty else zero_of_type(struct, field.type)
        case _:
            return ABSENT


def zero_of_type(struct: Struct, type_: Any) -> Any:
    """Return the value that replaces null in a list or a map."""
    match type_:
        case StructRef(name):
            return zero_of_struct(struct.table.struct(name))
        case ListOf():
            return []
        case MapOf():
            return {}
        case Scalar():
            return _SCALAR_ZEROS[type_]
        case Special.QUANTITY:
            return "0"
        case Special.INT_OR_STRING:
            return 0
        case Special.DURATION:
            return "0s"
        case _:
            return None


def zero_of_struct(struct: Struct) -> dict[str, Any]:
    """Return the empty value of a struct. Cached: copy it with `fresh` before returning it."""
    zero: dict[str, Any] | None = struct.compiled.get("zero")
    if zero is None:
        zero = {}
        for field in struct:
            value = zero_of_field(struct, field)
            if value is not ABSENT:
                zero[field.json] = value
        struct.compiled["zero"] = zero
    return zero


def fresh(value: Any) -> Any:
    """Return a copy of a zero value that the caller may modify; zeros are never deep."""
    if type(value) is dict:
        return {key: fresh(item) for key, item in value.items()}
    return [] if type(value) is list else value
