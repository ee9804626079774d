"""The table of invariants: complete, with a valid reference to the check of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.sim.invariants import BY_ID, ROWS, Row

pytestmark = pytest.mark.area("simulation")

ROOT = Path(__file__).parents[2]
COUNTS = {"R": 7, "F": 9, "G": 12, "M": 17, "D": 4, "A": 8, "L": 8, "S": 10}
"""The number of invariants of each kind."""


def test_no_invariant_is_missing() -> None:
    """Every row exists exactly once, in order."""
    wanted = [f"{kind}{1 + number}" for kind, count in COUNTS.items() for number in range(count)]
    assert [row.id for row in ROWS] == wanted
    assert len(BY_ID) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_an_invariant_is_checked(row: Row) -> None:
    """By the simulator, or by existing tests."""
    assert row.is_simulated or row.tests
    for test in row.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert name == "*" or re.search(rf"def {name}\b", text), f"{row.id} names {test}"
