"""What preflight, upgrades and status say, against the raw values of simulated clusters."""

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
"""Scenarios that the present code fails. A fix takes its scenario out, and adds a mutant of its
rule (`tests.support.sim.mutants.advice`)."""


def _scenario(name: str) -> object:
    marks = [pytest.mark.xfail(reason="not fixed yet", strict=True)] if name in OPEN else []
    return pytest.param(name, marks=marks, id=name)


@pytest.mark.parametrize("name", [_scenario(name) for name in SCENARIOS])
def test_a_scenario_breaks_no_promise(name: str) -> None:
    """Whatever operators have done, they are not told "safe" or "ok" wrongly, and a healthy cluster
    is told "safe" soon."""
    assert play_plan(SCENARIOS[name]).problems == ()


@pytest.mark.timeout(600)
async def test_no_world_about_advice_breaks_a_promise() -> None:
    """The same, for what operators do in any order, while servers are killed and paused."""
    tally = await play_seeds(range(SIZES.advice_worlds), jobs=2, is_advised=True)
    assert not tally.failed, "\n".join(
        f"python -m tests.support.sim play {seed} --advice --shrink: {problems}"
        for seed, problems in tally.failed.items()
    )
    assert advice_gaps(tally) == []


async def test_a_seed_is_one_world_about_advice() -> None:
    """Played again, in another process, it is the same to the last step."""
    traces: list[str] = []
    for _ in range(2):
        await play_seeds([1], is_advised=True, on_result=lambda line: traces.append(line["trace"]))
    assert len(traces) == 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    "mutant", [each for each in MUTANTS if each.name in CAUGHT_BY], ids=lambda each: each.name
)
def test_a_build_without_the_rule_is_caught(mutant: Mutant) -> None:
    """A scenario that breaks nothing in the real thing breaks a promise in this one."""
    plan = SCENARIOS[CAUGHT_BY[mutant.name]]
    with switched(mutant):
        assert play_plan(plan).problems
    assert CAUGHT_BY[mutant.name] not in OPEN


@pytest.mark.timeout(300)  # for when the code has changed, and many moments must be tried
@pytest.mark.parametrize("name", SHOWN_IN)
async def test_a_build_without_the_rule_is_caught_at_some_moment(name: str) -> None:
    """Where a moment decides: one of many plans breaks a promise, and not in the real thing. With
    other code another of them may be the one."""
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
    """Each is named once, after promises that exist."""
    assert SCENARIOS.keys() >= {*OPEN, *CAUGHT_BY.values()}
    assert VARIED.keys() >= {name for name, _ in SHOWN_IN.values()}
    assert sorted((*CAUGHT_BY, *SHOWN_IN)) == sorted(each.name for each in MUTANTS)
    assert {row for each in MUTANTS for row in each.rows.split()} <= BY_ID.keys()


def test_a_plan_reads_as_a_list() -> None:
    """Every plan can be shown, and made shorter."""
    plan = make_advice_plan(3)
    assert len(str(plan).splitlines()) == len(plan.steps) + 1
    assert plan.with_steps(plan.steps[:1]).is_advised
