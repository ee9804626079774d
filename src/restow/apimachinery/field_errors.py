"""Errors of single fields, with Kubernetes' wording.

Each function returns a `StatusCause`, and each method of `Causes` appends one; `status.invalid`
combines causes into one error. A cause with its field reads `metadata.name: Invalid value: "X":
why`.

Not here: the rules themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from restow.apimachinery.status_error import StatusCause

# An invalid value may be megabytes; its beginning suffices to identify it.
VALUE_LENGTH_MAX: Final = 512
REASON_LENGTH_MAX: Final = 8192
"""A reason may contain other values, which may be as long."""


class Causes(list[StatusCause]):
    """The validation errors of an object, in the order of the checks."""

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
        """Report a duplicate if the value was seen before; add it to `seen`."""
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
    """A required value is missing."""
    return StatusCause("FieldValueRequired", _with_reason("Required value", why), field)


def invalid(field: str, value: Any, why: str) -> StatusCause:
    """A value of the right type violates a rule."""
    return StatusCause(
        "FieldValueInvalid", _with_reason(f"Invalid value: {shown(value)}", why), field
    )


def type_invalid(field: str, value: Any, why: str) -> StatusCause:
    """A value has the wrong type."""
    return StatusCause(
        "FieldValueTypeInvalid", _with_reason(f"Invalid value: {shown(value)}", why), field
    )


def not_supported(field: str, value: Any, supported: Iterable[str]) -> StatusCause:
    """A value is not one of a fixed set."""
    listed = ", ".join(_quoted(each) for each in supported)
    why = f"supported values: {listed}" if listed else ""
    return StatusCause(
        "FieldValueNotSupported", _with_reason(f"Unsupported value: {shown(value)}", why), field
    )


def forbidden(field: str, why: str) -> StatusCause:
    """A value or a change is not allowed."""
    return StatusCause("FieldValueForbidden", _with_reason("Forbidden", why), field)


def duplicate(field: str, value: Any) -> StatusCause:
    """A value is the same as that of another item."""
    return StatusCause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", field)


def duplicate_because(field: str, value: Any, why: str) -> StatusCause:
    """A value is the same as that of another item; the message includes the reason."""
    return StatusCause(
        "FieldValueDuplicate", _with_reason(f"Duplicate value: {shown(value)}", why), field
    )


def not_found(field: str, value: Any) -> StatusCause:
    """A value refers to something that does not exist."""
    return StatusCause("FieldValueNotFound", f"Not found: {shown(value)}", field)


def too_long(field: str, *, length_max: int) -> StatusCause:
    """A value has too many bytes; it is not included in the message."""
    return StatusCause(
        "FieldValueTooLong", f"Too long: may not be more than {length_max} bytes", field
    )


def too_many(field: str, *, count: int, count_max: int) -> StatusCause:
    """A list has too many items."""
    noun = "item" if count_max == 1 else "items"
    message = f"Too many: {count}: must have at most {count_max} {noun}"
    return StatusCause("FieldValueTooMany", message, field)


def immutable(field: str, value: Any) -> StatusCause:
    """An immutable value was changed."""
    return invalid(field, value, "field is immutable")


def shown(value: Any) -> str:
    """Format a value for a message: strings quoted, others as JSON, truncated if long."""
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
