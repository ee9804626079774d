"""CEL functions on strings and times beyond the core language: substrings, formatting, regex.

Indexes in strings count characters. Not here: functions of the core language (`functions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from restow.apimachinery.structural.cel.functions import (
    TRAVERSAL,
    Overload,
    ceil,
    member,
    regex_cost,
    shown,
    to_text,
    traversal,
)
from restow.apimachinery.structural.cel.types import (
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    list_of,
)
from restow.apimachinery.structural.cel.values import (
    NANOSECOND,
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    no_such_overload,
    size_of,
)
from restow.apimachinery.structural.patterns import Pattern, compile_pattern

# Longer results of `replace` and `format` are rejected before they are built.
TEXT_LENGTH_MAX: Final = 16 << 20
_PRECISION_MAX: Final = 100

_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(text: str, part: str, begin: int = 0) -> int:
    if part and not 0 <= begin <= len(text):
        raise CelError(f"index out of range: {begin}")
    return begin if not part else text.find(part, begin)


def _last_index_of(text: str, part: str, begin: int | None = None) -> int:
    if begin is None:
        return text.rfind(part)
    if not part:
        return begin
    if not 0 <= begin < max(len(text), 1):
        raise CelError(f"index out of range: {begin}")
    return text.rfind(part, 0, begin + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    times = text.count(old) if old else len(text) + 1
    if count >= 0:
        times = min(times, count)
    if len(text) + times * max(0, len(new) - len(old)) > TEXT_LENGTH_MAX:
        raise CelError("string too long")
    return text.replace(old, new, count) if count else text


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if count == 1:
        return [text]
    if not separator:
        letters = list(text)
        if 0 < count < len(letters):
            return [*letters[: count - 1], "".join(letters[count - 1 :])]
        return letters
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, begin: int, end: int | None = None) -> str:
    if end is None:
        end = len(text)
    elif not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    if not 0 <= begin <= len(text):
        raise CelError(f"index out of range: {begin}")
    if begin > end:
        raise CelError(f"invalid substring range. start: {begin}, end: {end}")
    return text[begin:end]


def _join(items: list[Any], separator: str = "") -> str:
    if not all(type(each) is str for each in items):
        raise no_such_overload()
    length = sum(map(len, items)) + len(separator) * len(items)
    if length > TEXT_LENGTH_MAX:
        raise CelError("string too long")
    return separator.join(items)


_QUOTED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


def _pattern(text: str) -> Pattern:
    try:
        return compile_pattern(text)
    except ValueError as error:
        raise CelError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    return _pattern(pattern).first(text)


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    return _pattern(pattern).all(text, count) if count else []


_CLAUSE: Final = re.compile(r"%(?:%|(?:\.([0-9]{1,9}))?(.))?", re.DOTALL)


def _format(template: str, args: list[Any]) -> str:
    used = 0
    length = 0

    def clause(match: re.Match[str]) -> str:
        nonlocal used, length
        if match.group() == "%%":
            return "%"
        precision, letter = match.groups()
        if letter is None:
            raise CelError("unexpected end of format string")
        if used >= len(args):
            raise CelError(f"index {used} out of range")
        formatted = _formatted(args[used], letter, int(precision) if precision else None)
        used += 1
        length += len(formatted)
        if length > TEXT_LENGTH_MAX:
            raise CelError("string too long")
        return formatted

    made = _CLAUSE.sub(clause, template)
    if used < len(args):
        raise CelError(
            f"too many arguments supplied to string.format (expected {used}, got {len(args)})"
        )
    return made


def _formatted(value: Any, letter: str, precision: int | None) -> str:
    if precision is not None and precision > _PRECISION_MAX:
        raise CelError(f"precision of {precision} is too large")
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    match letter:
        case "s":
            return _to_string(value)
        case "d" if is_whole:
            return str(int(value))
        case "f" if isinstance(value, float):
            return f"{value:.{6 if precision is None else precision}f}"
        case "e" if isinstance(value, float):
            return f"{value:.{6 if precision is None else precision}e}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if is_whole:
            return f"{int(value):o}"
        case "x" | "X" if is_whole or isinstance(value, str | bytes):
            formatted = (
                f"{int(value):x}"
                if is_whole
                else (value.encode() if isinstance(value, str) else value).hex()
            )
            return formatted.upper() if letter == "X" else formatted
        case "d" | "f" | "e" | "b" | "o" | "x" | "X":
            raise CelError(f"error during formatting: %{letter} clause cannot take this value")
    raise CelError(f'unrecognized formatting clause "{letter}"')


def _to_string(value: Any) -> str:
    match value:
        case bool() | None | bytes():
            return shown(value)
        case float():
            return to_text(value)
        case list():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            entries = sorted((_nested(key), _nested(each)) for key, each in value.items())
            return "{" + ", ".join(f"{key}: {each}" for key, each in entries) + "}"
        case TypeValue():
            return value.name
    return str(value)


def _nested(value: Any) -> str:
    return _to_string(value)


def _zone(name: str) -> tzinfo:
    match = re.fullmatch(r"([+-]?)([0-9]{1,2}):([0-9]{2})", name)
    if match is not None:
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        try:
            return timezone(-offset if sign == "-" else offset)
        except ValueError:
            raise CelError(f"unknown time zone {name}") from None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name[:40]}") from None


_TIME_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda time: time.year,
    "getMonth": lambda time: time.month - 1,
    "getDate": lambda time: time.day,
    "getDayOfMonth": lambda time: time.day - 1,
    "getDayOfWeek": lambda time: time.isoweekday() % 7,
    "getDayOfYear": lambda time: time.timetuple().tm_yday - 1,
    "getHours": lambda time: time.hour,
    "getMinutes": lambda time: time.minute,
    "getSeconds": lambda time: time.second,
    "getMilliseconds": lambda time: time.microsecond // 1000,
}
_DURATION_UNITS: Final = {
    "getHours": 3600 * NANOSECOND,
    "getMinutes": 60 * NANOSECOND,
    "getSeconds": NANOSECOND,
}


def _time_parts() -> list[Overload]:
    found = []
    for name, part in _TIME_PARTS.items():

        def at_utc(time: Timestamp, part: Callable[[datetime], int] = part) -> int:
            return part(time.at_utc())

        def in_zone(time: Timestamp, zone: str, part: Callable[[datetime], int] = part) -> int:
            try:
                return part(time.at_utc().astimezone(_zone(zone)))
            except OverflowError:
                raise CelError("timestamp overflow") from None

        found.append(member(name, f"timestamp_{name}", (TIMESTAMP,), INT, at_utc))
        found.append(member(name, f"timestamp_{name}_zone", (TIMESTAMP, STRING), INT, in_zone))
    for name, unit in _DURATION_UNITS.items():

        def in_units(span: Duration, unit: int = unit) -> int:
            whole = abs(span.nanoseconds) // unit
            return whole if span.nanoseconds >= 0 else -whole

        found.append(member(name, f"duration_{name}", (DURATION,), INT, in_units))

    def milliseconds(span: Duration) -> int:
        whole = abs(span.nanoseconds) // 1_000_000 % 1000
        return whole if span.nanoseconds >= 0 else -whole

    found.append(
        member("getMilliseconds", "duration_getMilliseconds", (DURATION,), INT, milliseconds)
    )
    return found


def _join_cost(_: tuple[Any, ...], result: Any) -> int:
    return ceil(size_of(result) * 2 * TRAVERSAL)


_S, _SS, _SSI = (STRING,), (STRING, STRING), (STRING, STRING, INT)
_TEXTS: Final = list_of(STRING)

TEXTS: Final[list[Overload]] = [
    member("charAt", "string_char_at_int", (STRING, INT), STRING, _character),
    member("indexOf", "string_index_of_string", _SS, INT, _index_of, traversal()),
    member("indexOf", "string_index_of_string_int", _SSI, INT, _index_of, traversal()),
    member("lastIndexOf", "string_last_index_of_string", _SS, INT, _last_index_of, traversal()),
    member(
        "lastIndexOf", "string_last_index_of_string_int", _SSI, INT, _last_index_of, traversal()
    ),
    member(
        "lowerAscii", "string_lower_ascii", _S, STRING, lambda t: t.translate(_LOWER), traversal()
    ),
    member(
        "upperAscii", "string_upper_ascii", _S, STRING, lambda t: t.translate(_UPPER), traversal()
    ),
    member(
        "replace", "string_replace_string_string", (*_SS, STRING), STRING, _replace, traversal(2)
    ),
    member(
        "replace",
        "string_replace_string_string_int",
        (*_SS, STRING, INT),
        STRING,
        _replace,
        traversal(2),
    ),
    member("split", "string_split_string", _SS, _TEXTS, _split, traversal(2)),
    member("split", "string_split_string_int", _SSI, _TEXTS, _split, traversal(2)),
    member("substring", "string_substring_int", (STRING, INT), STRING, _substring, traversal()),
    member(
        "substring", "string_substring_int_int", (STRING, INT, INT), STRING, _substring, traversal()
    ),
    member("trim", "string_trim", _S, STRING, lambda text: text.strip(_SPACE), traversal()),
    member("format", "string_format", (STRING, list_of(DYN)), STRING, _format, traversal()),
    Overload("strings.quote", "strings_quote", _S, STRING, _quote, cost=traversal()),
    member("join", "list_join", (_TEXTS,), STRING, _join, _join_cost),
    member("join", "list_join_string", (_TEXTS, STRING), STRING, _join, _join_cost),
    member("find", "string_find_string", _SS, STRING, _find, regex_cost),
    member("findAll", "string_find_all_string", _SS, _TEXTS, _find_all, regex_cost),
    member("findAll", "string_find_all_string_int", _SSI, _TEXTS, _find_all, regex_cost),
    *_time_parts(),
]
