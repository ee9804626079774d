"""Tolerant access to JSON values, and the texts in table cells.

Every reader takes any value and a path, and returns an empty value of its own type when the path is
missing or has a value of another type: a table shows stored data, and must never fail on it.

Not here: columns, and anything about one kind.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"
INVALID: Final = "<invalid>"

# A cell shows this many members of a list, and counts the rest.
SHOWN_MAX: Final = 3

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

# Go's zero time; a client that writes it means "not set".
_YEAR_OF_ZERO_TIME: Final = 1


def read(value: object, *path: str) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text(value: object, *path: str) -> str:
    """A string at a path, or the empty string."""
    found = read(value, *path)
    return found if isinstance(found, str) else ""


def number(value: object, *path: str) -> int:
    """An integer at a path, or zero. A boolean is not an integer here."""
    found = read(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def flag(value: object, *path: str) -> bool:
    """Whether a path holds the boolean true."""
    return read(value, *path) is True


def items(value: object, *path: str) -> list[Any]:
    """A list at a path, or an empty one."""
    found = read(value, *path)
    return found if isinstance(found, list) else []


def mapping(value: object, *path: str) -> dict[str, Any]:
    """A map at a path, or an empty one."""
    found = read(value, *path)
    return found if isinstance(found, dict) else {}


def texts(value: object, *path: str) -> list[str]:
    """The strings of a list at a path."""
    return [item for item in items(value, *path) if isinstance(item, str)]


def scalar(value: object) -> str:
    """A number or a string as text, as for an IntOrString or a Quantity; otherwise empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return ""


def yes_or_no(value: object) -> str:
    """A boolean that may be absent."""
    if value is True:
        return "True"
    return "False" if value is False else UNSET


def moment(value: object) -> datetime | None:
    """An RFC 3339 time, or None if it is absent, zero or invalid."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    if found.year == _YEAR_OF_ZERO_TIME:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def since(value: object, now: datetime) -> str:
    """The time since a stored time."""
    then = moment(value)
    return UNKNOWN if then is None else human_duration(now - then)


def age(obj: object, now: datetime) -> str:
    """The time since an object was created."""
    return since(read(obj, "metadata", "creationTimestamp"), now)


def human_duration(duration: timedelta) -> str:
    """A duration in the form kubectl prints: two units while both matter, then one."""
    seconds = int(duration.total_seconds())  # towards zero: tolerates a clock one second ahead
    if seconds < -1:
        return INVALID
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < 10 * _MINUTE:
        return _two_units(seconds, _MINUTE, unit="m", rest_size=1, rest_unit="s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two_units(seconds, _HOUR, unit="h", rest_size=_MINUTE, rest_unit="m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two_units(seconds, _DAY, unit="d", rest_size=_HOUR, rest_unit="h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two_units(seconds, _YEAR, unit="y", rest_size=_DAY, rest_unit="d")
    return f"{seconds // _YEAR}y"


def _two_units(seconds: int, size: int, *, unit: str, rest_size: int, rest_unit: str) -> str:
    whole, rest = divmod(seconds, size)
    rest //= rest_size
    return f"{whole}{unit}{rest}{rest_unit}" if rest else f"{whole}{unit}"


def some_of(members: Iterable[str], *, separator: str = ",", empty: str = NONE) -> str:
    """The first few members, and the number of the others."""
    known = list(members)
    if not known:
        return empty
    shown = separator.join(known[:SHOWN_MAX])
    more = len(known) - SHOWN_MAX
    return f"{shown} + {more} more..." if more > 0 else shown


def labels(value: object) -> str:
    """A map of labels in the syntax of a selector."""
    pairs = [f"{key}={word}" for key, word in mapping(value).items() if isinstance(word, str)]
    return ",".join(sorted(pairs)) or NONE


def label_selector(value: object) -> str:
    """A LabelSelector in the syntax of the command line."""
    matched = mapping(value, "matchLabels")
    terms = [(key, f"{key}={word}") for key, word in matched.items() if isinstance(word, str)]
    for expression in items(value, "matchExpressions"):
        key, operator = text(expression, "key"), text(expression, "operator")
        values = ",".join(sorted(texts(expression, "values")))
        match operator:
            case "In":
                terms.append((key, f"{key} in ({values})"))
            case "NotIn":
                terms.append((key, f"{key} notin ({values})"))
            case "Exists":
                terms.append((key, key))
            case "DoesNotExist":
                terms.append((key, f"!{key}"))
            case _:
                pass
    terms.sort(key=lambda term: term[0])
    return ",".join(term for _, term in terms) or NONE


def condition(obj: object, kind: str) -> dict[str, Any]:
    """The status condition of one type, or an empty map."""
    for found in items(obj, "status", "conditions"):
        if text(found, "type") == kind:
            return mapping(found)
    return {}


def containers(template: object) -> tuple[str, str]:
    """Names and images of the containers of a pod spec, each in one text."""
    members = items(template, "containers")
    names = ",".join(text(member, "name") for member in members)
    images = ",".join(text(member, "image") for member in members)
    return names, images
