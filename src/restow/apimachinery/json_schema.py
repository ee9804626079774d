"""Plain JSON Schema, for schemas that are not structural.

Not here: structural schemas of CRDs (`structural`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jsonschema_rs


class SchemaError(NamedTuple):
    """One violation: the path of names and indexes to the value, and the message."""

    path: Sequence[str | int]
    message: str


class JsonSchema:
    """A compiled schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError for an invalid schema."""
        self._validator = jsonschema_rs.validator_for(dict(schema))

    def accepts(self, value: Any) -> bool:
        """Report whether a value is valid. Faster than `errors`."""
        return bool(self._validator.is_valid(value))

    def errors(self, value: Any) -> Iterator[SchemaError]:
        for error in self._validator.iter_errors(value):
            yield SchemaError(error.instance_path, error.message)
