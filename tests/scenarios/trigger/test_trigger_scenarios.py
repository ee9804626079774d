"""The trigger's scenario files: the proposals' stories row by row, and the paths around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.trigger.runner import Runner, ScenarioFailed

FILES = sorted(Path(__file__).parent.glob("*.txt"))

pytestmark = pytest.mark.area("controllers")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_goes_as_written(path: Path) -> None:
    """Every row is as expected, and no action breaks a promise."""
    Runner(path).play()


def test_a_wrong_row_is_shown_with_its_place(tmp_path: Path) -> None:
    """Whoever reads the failure sees file, line, what was expected and what is there."""
    path = tmp_path / "made-up.txt"
    path.write_text("source discovery\n\nexpect persisted v1 # wrong\n", encoding="utf-8")
    with pytest.raises(ScenarioFailed) as failed:
        Runner(path).play()
    assert str(failed.value) == (
        "made-up.txt:3: expect persisted v1 # wrong\n  expected v1\n  seen     none"
    )
