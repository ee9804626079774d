"""Helpers for validation rules, and rules that several kinds share.

Types were checked before; values of a wrong shape count as absent.

Not here: the rules of any single kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.status import StatusCause

Object = dict[str, Any]
Causes = errors.Causes

_PORT_MAX: Final = 65535
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_PORT_RULE: Final = f"must be between 1 and {_PORT_MAX}, inclusive"


def part(obj: Object | None, *path: str) -> Object:
    """Return a nested object; empty if it is absent."""
    found: Any = obj
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def listed(obj: Object, name: str, field: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects in a list, each with its path."""
    found = obj.get(name)
    if isinstance(found, list):
        for index, each in enumerate(found):
            if isinstance(each, dict):
                yield f"{field}[{index}]", each


def require(causes: Causes, obj: Object, *, field: str, names: tuple[str, ...]) -> None:
    """Require fields that are present and not empty."""
    for name in names:
        if not obj.get(name):
            causes.required(f"{field}.{name}" if field else name)


def require_not_negative(
    causes: Causes, obj: Object, *, field: str, names: tuple[str, ...]
) -> None:
    """Require that numbers, if present, are not negative."""
    for name in names:
        value = obj.get(name)
        if isinstance(value, int) and value < 0:
            causes.invalid(f"{field}.{name}", value, NOT_NEGATIVE)


def require_one_of(
    causes: Causes, obj: Object, *, field: str, name: str, values: tuple[str, ...]
) -> None:
    """Require that a text, if present, is one of the values."""
    value = obj.get(name)
    if value is not None and value not in values:
        causes.not_supported(f"{field}.{name}" if field else name, value, values)


def check_length(
    causes: Causes, obj: Object, *, field: str, names: tuple[str, ...], length_max: int
) -> None:
    """Require that texts, if present, have at most `length_max` bytes."""
    for name in names:
        value = obj.get(name)
        if isinstance(value, str) and len(value.encode()) > length_max:
            path = f"{field}.{name}" if field else name
            causes.too_long(path, length_max=length_max)


def keep(causes: Causes, new: Object, old: Object, *, field: str, names: tuple[str, ...]) -> None:
    """Require that fields do not change in an update."""
    for name in names:
        if new.get(name) != old.get(name):
            causes.immutable(f"{field}.{name}" if field else name, new.get(name))


def port_problem(value: Any, field: str) -> StatusCause | None:
    """Return the error of an invalid port number; None if it is valid."""
    if isinstance(value, int) and 1 <= value <= _PORT_MAX:
        return None
    return errors.invalid(field, value, _PORT_RULE)


def selects(selector: Object, labels: Object) -> bool:
    """Whether a label selector matches. Requirements of an unknown kind match nothing."""
    for name, value in part(selector, "matchLabels").items():
        if labels.get(name) != value:
            return False
    expressions = selector.get("matchExpressions")
    for each in expressions if isinstance(expressions, list) else ():
        if not isinstance(each, dict) or not _fulfils(each, labels):
            return False
    return True


def _fulfils(requirement: Object, labels: Object) -> bool:
    name = requirement.get("key")
    values = requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return name not in labels or labels[name] not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
    return False


def is_empty_selector(selector: Object) -> bool:
    """Whether a selector has no requirements, and so matches everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")
