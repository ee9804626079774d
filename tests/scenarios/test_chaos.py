"""Random scenarios: no fault violates an invariant, and afterwards the cluster recovers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.chaos import check_healed, check_history, check_keys_agree, random_scenario
from tests.scenarios.cluster import open_cluster
from tests.scenarios.runner import Runner, Scenario
from tests.sizes import SIZES
from tests.unit.storageversion.world import RELEASES

GROUPS = 10
"""Seeds are divided among this many tests, to locate failures."""

pytestmark = pytest.mark.area("coordination")


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
async def test_servers_recover_from_whatever_happens(mode: str, group: int, tmp_path: Path) -> None:
    """Two minutes after all faults have ended every running server is registered, the agreement
    matches
    the entries, no entry of an expired server is left, and writes succeed. The audited store checks
    every commit, and the history is checked at its end."""
    for seed in range(group, SIZES.coordination_seeds, GROUPS):
        text = random_scenario(seed, mode=mode, steps=SIZES.coordination_steps)
        try:
            await _play(text, seed, tmp_path, is_fenced=mode != "loose")
        except Exception as error:
            raise AssertionError(f"{mode}, seed {seed}: {error}\n{text}") from error


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_no_release_stores_versions_that_a_running_one_cannot_read(
    mode: str, tmp_path: Path
) -> None:
    """Servers of all four releases start and stop in an unsupported order: some never become ready,
    and none
    violates an invariant."""
    for seed in range(SIZES.coordination_seeds // 3):
        text = random_scenario(
            seed, mode=mode, steps=SIZES.coordination_steps, releases=tuple(RELEASES)
        )
        try:
            await _play(text, seed, tmp_path, is_fenced=True, heals=False)
        except Exception as error:
            raise AssertionError(f"{mode}, seed {seed}: {error}\n{text}") from error


@pytest.mark.parametrize("mode", ["report", "strict"])
async def test_keys_change_whatever_happens(mode: str, tmp_path: Path) -> None:
    """Servers encrypt with keys that change under all other faults, in arbitrary order: no object
    is stored
    that a server cannot decrypt, or written with a key that is not agreed on. Afterwards all get
    the
    same keys, and agree."""
    for seed in range(SIZES.coordination_seeds // 3):
        text = random_scenario(seed, mode=mode, steps=SIZES.coordination_steps, with_keys=True)
        try:
            await _play_keys(text, seed, tmp_path)
        except Exception as error:
            raise AssertionError(f"{mode}, seed {seed}: {error}\n{text}") from error


async def _play_keys(text: str, seed: int, directory: Path) -> None:
    scenario = Scenario.of_text(f"seed {seed}", f"{text}heal\n")
    async with open_cluster(directory, seed=seed) as cluster:
        runner = Runner(cluster)
        await runner.play(scenario)
        files = [f"keys {name} k2,k1,identity\n" for name in cluster.running()]
        await runner.play(Scenario.of_text("the same keys", f"{''.join(files)}heal\n"))
        await check_keys_agree(cluster)
        await check_healed(cluster)
        check_history(cluster, is_fenced=True)


async def _play(
    text: str, seed: int, directory: Path, *, is_fenced: bool, heals: bool = True
) -> None:
    scenario = Scenario.of_text(f"seed {seed}", f"{text}heal\n")
    async with open_cluster(directory, seed=seed) as cluster:
        await Runner(cluster).play(scenario)
        if heals:
            await check_healed(cluster)
        check_history(cluster, is_fenced=is_fenced)
