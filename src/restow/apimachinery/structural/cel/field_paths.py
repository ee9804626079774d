"""Parses the `fieldPath` of a rule: `.spec.x` or `.spec['a-b']`, which must exist in the schema.

Not here: the paths of `selectableFields` and printer columns.
"""

from __future__ import annotations

import re
from typing import Final

from restow.apimachinery.structural import paths
from restow.apimachinery.structural.schema import Schema

_PART: Final = re.compile(r"\.([^.\[\]']+)|\[('(?:[^'\\]|\\.)*')\]")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = dict(zip("abfnrtv'\\", "\a\b\f\n\r\t\v'\\", strict=True))


class FieldPathError(ValueError):
    """A path that is malformed, or not in the schema."""


def read_field_path(text: str, schema: Schema) -> str:
    """Return the path in the form of field errors; FieldPathError if the schema lacks the field."""
    at, path = 0, ""
    node: Schema | None = schema
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise FieldPathError(f"expected [ or . but got: {text[at : at + 20]}")
        at = match.end()
        plain, quoted = match.groups()
        name = plain if plain is not None else _unquoted(quoted)
        if node is None:
            raise FieldPathError("does not refer to a valid field")
        if node.properties:
            if name not in node.properties:
                raise FieldPathError("does not refer to a valid field")
            path, node = paths.child(path, name), node.properties[name]
        elif node.additional is not None:
            path, node = paths.key(path, name), node.additional_schema
        else:
            raise FieldPathError("does not refer to a valid field")
    return path


def _unquoted(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        found = _ESCAPES.get(match.group(1))
        if found is None:
            raise FieldPathError(f"invalid string literal: invalid escape char {match.group()}")
        return found

    return _ESCAPED.sub(plain, text[1:-1])
