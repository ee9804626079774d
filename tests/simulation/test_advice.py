"""What preflight, upgrades and status say, against the raw values of simulated clusters."""

from __future__ import annotations

import pytest

from tests.sizes import SIZES
from tests.support.sim.advice.plan import make_advice_plan
from tests.support.sim.advice.scenarios import SCENARIOS
from tests.support.sim.campaign import play_seeds
from tests.support.sim.coverage import advice_gaps
from tests.support.sim.invariants import BY_ID
from tests.support.sim.mutants import switched
from tests.support.sim.mutants.advice import CAUGHT_BY, MUTANTS
from tests.support.sim.mutants.mutant import Mutant
from tests.support.sim.playing import play_plan

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
        await play_seeds([1], is_advised=True, told=lambda line: traces.append(line["trace"]))
    assert len(traces) == 2
    assert traces[0] == traces[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_a_build_without_the_rule_is_caught(mutant: Mutant) -> None:
    """A scenario that breaks nothing in the real thing breaks a promise in this one."""
    plan = SCENARIOS[CAUGHT_BY[mutant.name]]
    with switched(mutant):
        assert play_plan(plan).problems
    assert CAUGHT_BY[mutant.name] not in OPEN


def test_every_mutant_has_a_scenario() -> None:
    """Each is named once, after promises that exist."""
    assert SCENARIOS.keys() >= {*OPEN, *CAUGHT_BY.values()}
    assert sorted(CAUGHT_BY) == sorted(each.name for each in MUTANTS)
    assert {row for each in MUTANTS for row in each.rows.split()} <= BY_ID.keys()


def test_a_plan_reads_as_a_list() -> None:
    """Every plan can be shown, and made shorter."""
    plan = make_advice_plan(3)
    assert len(str(plan).splitlines()) == len(plan.steps) + 1
    assert plan.with_steps(plan.steps[:1]).is_advised
