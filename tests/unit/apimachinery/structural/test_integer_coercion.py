"""Coercion of floats without a fraction to integers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.apimachinery.structural.compiled import CompiledSchema
from restow.apimachinery.structural.schema import read_schema

SCHEMA = CompiledSchema(
    read_schema(
        {
            "type": "object",
            "properties": {
                "whole": {"type": "integer"},
                "any": {"type": "number"},
                "either": {"x-kubernetes-int-or-string": True},
                "list": {"type": "array", "items": {"type": "integer"}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
    )
)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"whole": 1.0}, b'{"whole":1}'),
        ({"whole": 1e2}, b'{"whole":100}'),
        ({"whole": -0.0}, b'{"whole":0}'),
        ({"whole": 1.5}, b'{"whole":1.5}'),
        ({"whole": 1e300}, orjson.dumps({"whole": 1e300})),
        ({"whole": 1}, b'{"whole":1}'),
        ({"any": 1.0}, b'{"any":1.0}'),
        ({"either": 2.0}, b'{"either":2}'),
        ({"list": [1.0, 2, 3.0]}, b'{"list":[1,2,3]}'),
        ({"map": {"a": 4.0}}, b'{"map":{"a":4}}'),
        ({"open": {"a": 4.0}}, b'{"open":{"a":4.0}}'),
    ],
)
def test_coerce_integers(sent: dict[str, Any], kept: bytes) -> None:
    """Integer fields become integers; all other values are unchanged."""
    SCHEMA.coerce_integers(sent)
    assert orjson.dumps(sent) == kept
