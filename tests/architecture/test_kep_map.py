"""The map from proposals to code and tests: every row leads to both."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kep-map.md").read_text()
ROWS_MIN = 50


def _rows() -> list[list[str]]:
    """The rows of tables with three columns: what is asked for, where, shown by."""
    parts = PAGE.partition("## Where restow differs")[0]
    found = (line.strip("| ").split(" | ") for line in parts.splitlines() if line.startswith("| "))
    return [row for row in found if not row[0].startswith("the proposal")]


def test_every_requirement_leads_to_code_and_to_a_test() -> None:
    """Each row names files that exist: code from the sources, and tests from the tests."""
    rows = _rows()
    assert len(rows) > ROWS_MIN
    for asked, where, shown in rows:
        for column, place in ((where, "src/restow/"), (shown, "tests/")):
            named = re.findall(r"`([^`]+)`", column)
            assert named, asked
            for name in named:
                assert name.startswith(place), f"{asked}: {name}"
                assert (ROOT / name.partition("::")[0]).exists(), f"{asked}: {name}"
