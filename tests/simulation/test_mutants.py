"""Mutants, each without one rule: a known seed detects each of them."""

from __future__ import annotations

import pytest

from tests.sizes import SIZES
from tests.support.sim.campaign import play_seeds
from tests.support.sim.invariants import BY_ID
from tests.support.sim.mutants import BY_NAME, MUTANTS, seeds_for, switched
from tests.support.sim.plan import make_plan
from tests.support.sim.play import play_plan, shrink

pytestmark = pytest.mark.area("simulation")

SEEDS: dict[str, int] = {
    "no-fence": 9,
    "fence-on-updates": 9,
    "check-then-write": 27,
    "no-barrier": 0,
    "fence-is-conflict": 9,
    "custom-unfenced": 39,
    "register-first": 44,
    "collect-by-list": 0,
    "no-precondition": 0,
    "report-removed-blindly": 23,
    "lease-renewed-between": 6,
    "error-is-absence": 4,
    "wall-clock-expiry": 0,
    "expired-entries-stay": 0,
    "lease-of-an-hour": 1,
    "identity-of-host": 0,
    "renewal-creates": 4,
    "never-registers-again": 23,
    "writes-without-renewal": 4,
    "encoder-keys-stay": 0,
    "clients-report": 11,
    "epoch-skips-none": 0,
    "append-is-noop": 3,
    "nothing-recorded": 0,
    "stale-vote": 0,
    "blind-reader": 12,
    "loose-for-ever": 139,
    "definition-unguarded": 35,
    "any-success-counts": 0,
    "clients-narrow": 11,
    "narrows-blindly": 11,
    "listed-for-ever": 15,
    "trusts-two-periods": 6,
    "no-epoch": 5,
    "skips-what-reads-the-same": 0,
    "rewrite-without-revision": 25,
    "rewrites-the-deleted": 0,
    "conflict-is-success": 0,
    "ignores-agreement": 5,
    "deletion-does-not-stop": 7,
    "trims-blindly": 50,
    "resumes-anywhere": 8,
    "unknown-is-done": 4,
    "unknown-is-repeated": 20,
    "stale-reads": 0,
    "update-without-revision": 24,
    "discovery-kept": 9,
}
"""For each mutant a seed that detects it, as `python -m tests.support.sim mutants` finds one."""


@pytest.mark.timeout(1200)  # for changed code, when many seeds must be tried
@pytest.mark.parametrize("name", BY_NAME)
async def test_a_mutant_is_detected(name: str) -> None:
    """The seed finds no violation in the real implementation, and one in the mutant. If the code
    changes,
    the seed gives another world: then one of the next seeds must detect it."""
    found = await play_seeds([SEEDS[name]], mutant=name)
    if not found.failed:
        more = [each for each in seeds_for(name, SIZES.mutant_worlds) if each != SEEDS[name]]
        found = await play_seeds(
            more, jobs=2, mutant=name, stops=lambda line: bool(line["problems"])
        )
    assert found.failed, f"{name} is not caught by {make_plan(SEEDS[name])}, nor by others"
    assert (await play_seeds([min(found.failed)])).failed == {}


def test_the_set_of_mutants_is_complete() -> None:
    """All defects found by a search, all deviations of the reference, and more: each with a seed
    and the
    names of existing invariants."""
    assert len(MUTANTS) >= 24
    assert SEEDS.keys() == BY_NAME.keys()
    rows = {row for mutant in MUTANTS for row in mutant.rows.split()}
    assert rows <= {*BY_ID, "E1"}


def test_a_failing_plan_is_made_shorter() -> None:
    """Steps that a failure does not need are removed, and the rest still fails."""
    name = "no-barrier"
    plan = make_plan(SEEDS[name])
    with switched(BY_NAME[name]):
        short = shrink(plan, plays_max=12, is_structural=False)
        assert play_plan(short, is_structural=False).problems
    assert len(short.steps) < len(plan.steps)
    assert play_plan(short).problems == ()
