"""The trigger's scenario files: the KEPs' examples row by row, and further cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.trigger.runner import Runner, ScenarioFailed

FILES = sorted(Path(__file__).parent.glob("*.txt"))

pytestmark = pytest.mark.area("controllers")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_matches_its_expectations(path: Path) -> None:
    """Every row is as expected, and no action violates an invariant."""
    Runner(path).play()


def test_a_failed_expectation_is_reported_with_its_position(tmp_path: Path) -> None:
    """The error has file, line, expected and actual value."""
    path = tmp_path / "made-up.txt"
    path.write_text("source discovery\n\nexpect persisted v1 # wrong\n", encoding="utf-8")
    with pytest.raises(ScenarioFailed) as failed:
        Runner(path).play()
    assert str(failed.value) == (
        "made-up.txt:3: expect persisted v1 # wrong\n  expected v1\n  seen     none"
    )
