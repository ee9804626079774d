"""YAML is encoded as by `yaml.dump`, in small steps."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery import yaml_encoder

TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(
        ["yes", "null", "~", "0644", "1e3", "2026-01-01", "=", "- a", "a: b", "a\nb\n"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)


def dumped(value: Any) -> bytes:
    """Encode with the library."""
    text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True)
    return text.encode()


@given(VALUES)
def test_as_the_library_does_it(value: Any) -> None:
    """The bytes equal those of `yaml.dump`."""
    assert yaml_encoder.encode(value) == dumped(value)


@given(st.lists(VALUES, max_size=3))
def test_sequences(items: list[Any]) -> None:
    """The pieces of a sequence add up to the list."""
    assert b"".join(yaml_encoder.encode_sequence(iter(items))) == dumped(items)


@pytest.mark.parametrize(
    "items",
    [
        [{f"key-{number}": number for number in range(20_000)}],
        [[1] for _ in range(20_000)],
        ["x" * 10_000] * 1_000,
    ],
)
def test_small_steps(items: list[Any]) -> None:
    """However values are split into items, there is a piece per step."""
    pieces = list(yaml_encoder.encode_sequence(items))
    assert len(pieces) > 50
    assert max(map(len, pieces)) < 512 * 1024
    assert b"".join(pieces) == dumped(items)


def test_items_are_taken_one_by_one() -> None:
    """The first piece does not wait for the last item."""
    taken = 0

    def items() -> Any:
        nonlocal taken
        for number in range(10_000):
            taken = number
            yield {"number": number}

    pieces = yaml_encoder.encode_sequence(items())
    next(pieces)
    assert taken < 250
