"""Random scenarios with a definition: whatever happens no promise breaks, and all is well again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.custom_chaos import (
    check_custom_healed,
    check_understanding,
    random_scenario,
)
from tests.scenarios.custom_cluster import CustomRunner, open_custom_cluster
from tests.scenarios.runner import Scenario
from tests.sizes import SIZES

SEEDS = SIZES.coordination_seeds * 2 // 3
"""Fewer than without definitions: one scenario takes longer."""
GROUPS = 5
"""Seeds are tested in so many tests, to see roughly where one fails."""

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
async def test_custom_resources_survive_whatever_happens(
    mode: str, group: int, tmp_path: Path
) -> None:
    """The stored version changes, versions come and go, the definition goes and comes back, while
    servers write, suffer and die. The audited store checks every commit. Two minutes after all
    faults have ended all that run serve what is defined, agree on its version, and write it."""
    for seed in range(group, SEEDS, GROUPS):
        text = random_scenario(seed, mode=mode, steps=SIZES.coordination_steps)
        try:
            await _play(text, seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"{mode}, seed {seed}: {error}\n{text}") from error


async def _play(text: str, seed: int, directory: Path) -> None:
    scenario = Scenario.of_text(f"seed {seed}", f"{text}heal\n")
    async with open_custom_cluster(directory, seed=seed) as cluster:
        await CustomRunner(cluster).play(scenario)
        await check_custom_healed(cluster)
        check_understanding(cluster)
