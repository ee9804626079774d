"""The preflight page explains every reason and every grade of evidence."""

from pathlib import Path

import pytest

from restow.migration.preflight import Evidence, Reason

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "preflight.md").read_text()


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_explained(reason: Reason) -> None:
    """Each has a row of its own in one of the tables."""
    assert f"\n| `{reason}` | " in PAGE


@pytest.mark.parametrize("evidence", Evidence)
def test_an_evidence_grade_is_explained(evidence: Evidence) -> None:
    """Each has a row of its own."""
    assert f"\n| `{evidence}` | " in PAGE
