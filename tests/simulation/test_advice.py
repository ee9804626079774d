"""Results of preflight, upgrades and status, compared with the raw values of simulated clusters."""

from __future__ import annotations

import asyncio
import os
import sys

import orjson
import pytest

from tests.sizes import SIZES
from tests.support.sim.advice.plan import make_advice_plan
from tests.support.sim.advice.scenarios import SCENARIOS, VARIED
from tests.support.sim.campaign import HASH_SEED, play_seeds
from tests.support.sim.coverage import advice_gaps
from tests.support.sim.invariants import BY_ID
from tests.support.sim.mutants import ADVICE_MUTANTS as MUTANTS
from tests.support.sim.mutants import CAUGHT_BY, SHOWN_IN, switched
from tests.support.sim.mutants.mutant import Mutant
from tests.support.sim.play import play_plan

pytestmark = pytest.mark.area("simulation")

OPEN: frozenset[str] = frozenset()
"""Scenarios that the current code fails. A fix removes its scenario, and adds a mutant of its rule
(`tests.support.sim.mutants.advice`)."""


def _scenario(name: str) -> object:
    marks = [pytest.mark.xfail(reason="not fixed yet", strict=True)] if name in OPEN else []
    return pytest.param(name, marks=marks, id=name)


@pytest.mark.parametrize("name", [_scenario(name) for name in SCENARIOS])
def test_a_scenario_violates_no_invariant(name: str) -> None:
    """After any actions of operators, "safe" or "ok" is never reported wrongly, and a healthy
    cluster is
    soon reported as safe."""
    assert play_plan(SCENARIOS[name]).problems == ()


@pytest.mark.timeout(600)
async def test_no_random_world_with_advice_violates_an_invariant() -> None:
    """The same for random orders of operators' actions, while servers are killed and paused."""
    tally = await play_seeds(range(SIZES.advice_worlds), jobs=2, is_advised=True)
    assert not tally.failed, "\n".join(
        f"python -m tests.support.sim play {seed} --advice --shrink: {problems}"
        for seed, problems in tally.failed.items()
    )
    assert advice_gaps(tally) == []


async def test_a_world_with_advice_is_reproducible() -> None:
    """With the same seed, another process executes exactly the same steps."""
    traces: list[str] = []
    for _ in range(2):
        await play_seeds([1], is_advised=True, on_result=lambda line: traces.append(line["trace"]))
    assert len(traces) == 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.name in CAUGHT_BY], ids=lambda each: each.name
)
def test_a_mutant_is_detected(mutant: Mutant) -> None:
    """The scenario, which finds no violation in the real implementation, finds one in the
    mutant."""
    plan = SCENARIOS[CAUGHT_BY[mutant.name]]
    with switched(mutant):
        assert play_plan(plan).problems
    assert CAUGHT_BY[mutant.name] not in OPEN


@pytest.mark.timeout(300)  # for changed code, when many variants must be tried
@pytest.mark.parametrize("name", SHOWN_IN)
async def test_a_mutant_is_detected_by_a_variant(name: str) -> None:
    """For timing-dependent mutants: one of many plans finds a violation, and none in the real
    implementation. If the code changes, another plan may be the one."""
    scenario, plan = SHOWN_IN[name]
    command = ("variants", scenario, "--mutant", name, "--first", str(plan))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.sim", *command),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
    )
    output, _ = await child.communicate()
    assert child.returncode == 0, f"{name} is not caught by {scenario}"
    assert orjson.loads(output)["without"] == []


def test_every_mutant_has_a_scenario() -> None:
    """Each mutant is listed once, and names existing invariants."""
    assert SCENARIOS.keys() >= {*OPEN, *CAUGHT_BY.values()}
    assert VARIED.keys() >= {name for name, _ in SHOWN_IN.values()}
    assert sorted((*CAUGHT_BY, *SHOWN_IN)) == sorted(each.name for each in MUTANTS)
    assert {row for each in MUTANTS for row in each.rows.split()} <= BY_ID.keys()


def test_a_plan_is_printed_as_a_list() -> None:
    """Every plan can be printed, and shortened."""
    plan = make_advice_plan(3)
    assert len(str(plan).splitlines()) == len(plan.steps) + 1
    assert plan.with_steps(plan.steps[:1]).is_advised
