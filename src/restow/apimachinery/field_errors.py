"""Errors of single fields, in the words that clients of Kubernetes know.

Each function makes a `StatusCause`, and each method of `Causes` adds one to what was found before;
`status.invalid` puts causes together into one error. The text
of a cause with its field before it reads `metadata.name: Invalid value: "X": why`.

Not here: the rules themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from restow.apimachinery.status_error import StatusCause

# A wrong value may be megabytes; its beginning tells which one it is.
VALUE_LENGTH_MAX: Final = 512
REASON_LENGTH_MAX: Final = 8192
"""A reason may name other values, which may be as long."""


class Causes(list[StatusCause]):
    """All that is wrong with an object. Checks take it and add what they find, in its order."""

    def required(self, field: str, why: str = "") -> None:
        self.append(required(field, why))

    def invalid(self, field: str, value: Any, why: str) -> None:
        self.append(invalid(field, value, why))

    def not_supported(self, field: str, value: Any, supported: Iterable[str]) -> None:
        self.append(not_supported(field, value, supported))

    def forbidden(self, field: str, why: str) -> None:
        self.append(forbidden(field, why))

    def duplicate(self, field: str, value: Any) -> None:
        self.append(duplicate(field, value))

    def once(self, field: str, value: Any, seen: set[Any]) -> None:
        """Refuses a value that was seen before; remembers it."""
        if value in seen:
            self.duplicate(field, value)
        seen.add(value)

    def duplicate_because(self, field: str, value: Any, why: str) -> None:
        self.append(duplicate_because(field, value, why))

    def not_found(self, field: str, value: Any) -> None:
        self.append(not_found(field, value))

    def too_long(self, field: str, *, length_max: int) -> None:
        self.append(too_long(field, length_max=length_max))

    def too_many(self, field: str, *, count: int, count_max: int) -> None:
        self.append(too_many(field, count=count, count_max=count_max))

    def immutable(self, field: str, value: Any) -> None:
        self.append(immutable(field, value))


def required(field: str, why: str = "") -> StatusCause:
    """A value that must be there is not."""
    return StatusCause("FieldValueRequired", _with_reason("Required value", why), field)


def invalid(field: str, value: Any, why: str) -> StatusCause:
    """A value of the right type that breaks a rule."""
    return StatusCause(
        "FieldValueInvalid", _with_reason(f"Invalid value: {shown(value)}", why), field
    )


def type_invalid(field: str, value: Any, why: str) -> StatusCause:
    """A value of the wrong type."""
    return StatusCause(
        "FieldValueTypeInvalid", _with_reason(f"Invalid value: {shown(value)}", why), field
    )


def not_supported(field: str, value: Any, supported: Iterable[str]) -> StatusCause:
    """A value that is none of a fixed set."""
    listed = ", ".join(_quoted(each) for each in supported)
    why = f"supported values: {listed}" if listed else ""
    return StatusCause(
        "FieldValueNotSupported", _with_reason(f"Unsupported value: {shown(value)}", why), field
    )


def forbidden(field: str, why: str) -> StatusCause:
    """A value where there may be none, or a change where there may be none."""
    return StatusCause("FieldValueForbidden", _with_reason("Forbidden", why), field)


def duplicate(field: str, value: Any) -> StatusCause:
    """A value that another item has already."""
    return StatusCause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def duplicate_because(field: str, value: Any, why: str) -> StatusCause:
    """A value that another item has already, in words that say in what they are alike."""
    return StatusCause(
        "FieldValueDuplicate", _with_reason(f"Duplicate value: {shown(value)}", why), field
    )


def not_found(field: str, value: Any) -> StatusCause:
    """A value that names something that is not there."""
    return StatusCause("FieldValueNotFound", f"Not found: {shown(value)}", field)


def too_long(field: str, *, length_max: int) -> StatusCause:
    """More bytes than there may be; the value itself would make the message too long as well."""
    return StatusCause(
        "FieldValueTooLong", f"Too long: may not be more than {length_max} bytes", field
    )


def too_many(field: str, *, count: int, count_max: int) -> StatusCause:
    """More items than there may be."""
    noun = "item" if count_max == 1 else "items"
    message = f"Too many: {count}: must have at most {count_max} {noun}"
    return StatusCause("FieldValueTooMany", message, field)


def immutable(field: str, value: Any) -> StatusCause:
    """A value that may not change."""
    return invalid(field, value, "field is immutable")


def shown(value: Any) -> str:
    """A value inside a message: text in quotes, all else as JSON, cut when long."""
    if isinstance(value, str):
        return _quoted(value)
    text = _as_json(value)
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}..."


def _as_json(value: Any) -> str:
    if isinstance(value, dict | list) and len(value) > VALUE_LENGTH_MAX:
        return f"({len(value)} items)"
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (RecursionError, ValueError):
        return f"({type(value).__name__})"


def _quoted(text: str) -> str:
    cut = text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}..."
    return json.dumps(cut, ensure_ascii=False)


def _with_reason(message: str, why: str) -> str:
    if len(why) > REASON_LENGTH_MAX:
        why = f"{why[:REASON_LENGTH_MAX]}..."
    return f"{message}: {why}" if why else message
