"""The table of promises: complete, and true about where each is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.sim.invariants import BY_ID, ROWS, Row

pytestmark = pytest.mark.area("simulation")

ROOT = Path(__file__).parents[2]
NUMBERS = {"R": 7, "F": 9, "G": 11, "M": 17, "D": 4, "A": 8, "L": 8, "S": 10}
"""How many promises there are of each kind."""


def test_no_promise_is_missing() -> None:
    """Every row is there, once, and says something."""
    wanted = [f"{kind}{1 + number}" for kind, count in NUMBERS.items() for number in range(count)]
    assert [row.id for row in ROWS] == wanted
    assert len(BY_ID) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_promise_is_checked_somewhere(row: Row) -> None:
    """In every simulated world, or by tests that exist."""
    assert row.is_simulated or row.tests
    for test in row.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert name == "*" or re.search(rf"def {name}\b", text), f"{row.id} names {test}"
