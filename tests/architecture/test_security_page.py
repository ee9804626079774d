"""The list of attacks names existing tests, and the page of the reference is generated from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.security_map import PAGE, REPORTS, THREATS, page

ROOT = Path(__file__).parents[2]
ROWS = {**THREATS, **REPORTS}


def test_all_threats_have_a_row() -> None:
    """S1 to S10, and no duplicate reports."""
    assert list(THREATS) == [f"S{number}" for number in range(1, 11)]
    reports = [each for name in REPORTS for each in name.split(", ")]
    assert len(set(reports)) == len(reports)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_a_test_or_a_reason(name: str) -> None:
    """Each row names existing tests, or the reason why there is none."""
    row = ROWS[name]
    assert row.tests or row.why_not
    for each in row.tests:
        path, _, function = each.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), each


def test_the_page_is_current() -> None:
    """The published page is the one that is checked here."""
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run `python -m tests.architecture.security_map`"
    )
