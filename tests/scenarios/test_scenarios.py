"""The scenario files: the KEPs' examples, row by row, and further cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.cluster import open_cluster
from tests.scenarios.runner import Runner, Scenario, ScenarioFailed, scenarios_of

FILES = sorted((Path(__file__).parent / "storageversion").glob("*.txt"))
SCENARIOS = [scenario for path in FILES for scenario in scenarios_of(path)]

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_scenario_matches_its_expectations(scenario: Scenario, tmp_path: Path) -> None:
    """Every row is as expected, and no commit violates an invariant."""
    async with open_cluster(tmp_path, seed=scenario.seed) as cluster:
        await Runner(cluster).play(scenario)


async def test_a_failed_expectation_is_reported_with_its_position(tmp_path: Path) -> None:
    """The error has file, line, expected and actual value."""
    scenario = Scenario.of_text("made-up.txt", "# nothing\nstart s1 x+1\nexpect common v2\n")
    async with open_cluster(tmp_path) as cluster:
        with pytest.raises(ScenarioFailed) as failed:
            await Runner(cluster).play(scenario)
    assert str(failed.value) == ("made-up.txt:3: expect common v2\n  expected v2\n  seen     v1")
