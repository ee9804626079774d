"""The scenario files: the proposals' walk-throughs, row by row, and the paths around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.cluster import open_cluster
from tests.scenarios.runner import Runner, Scenario, ScenarioFailed, scenarios_of

FILES = sorted((Path(__file__).parent / "storageversion").glob("*.txt"))
SCENARIOS = [scenario for path in FILES for scenario in scenarios_of(path)]

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_scenario_goes_as_written(scenario: Scenario, tmp_path: Path) -> None:
    """Every row is as expected, and no commit breaks a promise."""
    async with open_cluster(tmp_path, seed=scenario.seed) as cluster:
        await Runner(cluster).play(scenario)


async def test_a_wrong_row_is_shown_with_its_place(tmp_path: Path) -> None:
    """Whoever reads the failure sees file, line, what was expected and what is there."""
    scenario = Scenario.of_text("made-up.txt", "# nothing\nstart s1 x+1\nexpect common v2\n")
    async with open_cluster(tmp_path) as cluster:
        with pytest.raises(ScenarioFailed) as failed:
            await Runner(cluster).play(scenario)
    assert str(failed.value) == ("made-up.txt:3: expect common v2\n  expected v2\n  seen     v1")
