"""Plain JSON Schema: checks of values by a schema that is no structural one.

Not here: structural schemas of CRDs (`structural`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jsonschema_rs


class SchemaError(NamedTuple):
    """One violation: the names and indexes that lead to the value, and the problem."""

    path: Sequence[str | int]
    message: str


class JsonSchema:
    """A schema that has been compiled."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ValueError for what is no schema."""
        self._validator = jsonschema_rs.validator_for(dict(schema))

    def accepts(self, value: Any) -> bool:
        """Whether a value has no errors. Faster than finding them."""
        return bool(self._validator.is_valid(value))

    def errors(self, value: Any) -> Iterator[SchemaError]:
        for error in self._validator.iter_errors(value):
            yield SchemaError(error.instance_path, error.message)
