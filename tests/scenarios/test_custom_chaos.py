"""Random scenarios with a CRD: no fault violates an invariant, and afterwards the cluster
recovers."""

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
"""Fewer than without CRDs: one scenario takes longer."""
GROUPS = 5
"""Seeds are divided among this many tests, to locate failures."""

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
async def test_custom_resources_survive_whatever_happens(
    mode: str, group: int, tmp_path: Path
) -> None:
    """The storage version changes, versions are added and removed, the CRD is deleted and
    recreated, while
    servers write, fail and are killed. The audited store checks every commit. Two minutes after all
    faults have ended all running servers serve the CRD, agree on its version, and write it."""
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
