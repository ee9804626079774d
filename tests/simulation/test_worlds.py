"""Simulated clusters: the production code of servers and controllers, under random faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sizes import SIZES
from tests.support.sim.campaign import Tally, play_seeds
from tests.support.sim.coverage import gaps, table_of
from tests.support.sim.plan import Step, make_plan
from tests.support.sim.play import play_plan

pytestmark = pytest.mark.area("simulation")

GROUPS = 20
"""Seeds are divided among this many tests, to locate failures."""
PLAYED = Tally()


@pytest.mark.parametrize("group", range(GROUPS))
async def test_no_world_violates_an_invariant(group: int) -> None:
    """Every commit and every reply is checked, while servers of two releases are killed, paused,
    disconnected, upgraded and downgraded under load; after all faults have ended, the cluster
    recovers."""
    tally = await play_seeds(
        range(group, SIZES.simulated_worlds, GROUPS), jobs=2, on_result=PLAYED.add
    )
    assert not tally.failed, "\n".join(
        f"python -m tests.support.sim play {seed} --shrink: {problems}"
        for seed, problems in tally.failed.items()
    )


def test_the_worlds_have_exercised_enough() -> None:
    """Every fault has occurred in every phase, and every rule was evaluated; otherwise the tests
    above would
    prove little."""
    if PLAYED.worlds < SIZES.simulated_worlds:
        pytest.skip("not all worlds were played in this run")
    assert gaps(PLAYED) == [], table_of(PLAYED)


@pytest.mark.parametrize("seed", [3, 21])
async def test_a_world_is_reproducible(seed: int) -> None:
    """With the same seed, another process executes exactly the same steps."""
    traces: list[str] = []
    for _ in range(2):
        await play_seeds([seed], on_result=lambda line: traces.append(line["trace"]))
    assert len(traces) == 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize("mode", ["report", "strict"])
def test_registered_servers_write_while_reports_cannot_be_written(mode: str) -> None:
    """An outage of StorageVersions alone does not affect registered servers: no client request is
    rejected."""
    plan = replace(
        make_plan(5, mode="strict" if mode == "strict" else "report"),
        releases=("x+1", "x+1"),
        steps=(Step(1.0, "", 1, "outage", argument=20.0), Step(21.0, "", 1, "request", "", "")),
    )
    played = play_plan(plan)
    assert played.problems == ()
    assert played.seconds > 22
    assert played.counts["answer 503"] == played.counts["unanswered"] == 0
    assert played.counts["writes"] > 20
