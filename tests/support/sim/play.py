"""Plays one world from its seed to its end, and returns the result."""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.sim.advice.director import AdviceDirector
from tests.support.sim.advice.ledger import EXCUSED, LenientLedger
from tests.support.sim.director import Director
from tests.support.sim.loop import Stuck
from tests.support.sim.plan import Plan, Step, make_plan
from tests.support.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of one world."""

    seed: int
    problems: tuple[str, ...]
    steps: int
    """Steps of the loop."""
    seconds: float
    """Seconds of virtual time."""
    trace: str
    """Equal for equal worlds, to the last step."""
    settled_seconds: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    phases: Counter[tuple[str, str]] = field(default_factory=Counter)


def play(seed: int, *, is_structural: bool = True) -> Played:
    """The world of a seed."""
    return play_plan(make_plan(seed), is_structural=is_structural)


def play_plan(plan: Plan, *, is_structural: bool = True) -> Played:
    """The world of a plan. `is_structural`: each transaction must also carry its fence."""
    world, director = (
        _make_advised(plan) if plan.is_advised else _make(plan, is_structural=is_structural)
    )
    with _collecting_later():
        try:
            world.loop.run_until_complete(director.run())
        except Stuck as error:
            world.problem(f"L7: {error}")
        except AssertionError as error:
            world.problem(f"a check has failed: {error}")
        for failure in world.loop.failures:
            world.problem(f"uncaught: {failure.get('exception') or failure.get('message')}")
        trace = hashlib.sha256(
            repr(
                (
                    world.loop.steps,
                    world.loop.time(),
                    [(each.name, each.steps) for each in world.loop.processes],
                    [(entry.revision, entry.events) for entry in world.storage._log],
                )
            ).encode()
        ).hexdigest()
        played = Played(
            seed=plan.seed,
            problems=tuple(world.problems),
            steps=world.loop.steps,
            seconds=world.loop.time(),
            trace=trace,
            settled_seconds=director.settled_seconds,
            counts=world.ledger.counts,
            checked=world.ledger.checked,
            hits=world.hits,
            phases=director.phases,
        )
        world.loop.end()
    return played


def _make(plan: Plan, *, is_structural: bool) -> tuple[World, Director]:
    is_fenced = plan.mode != "loose"
    world = World(plan.seed, is_structural=is_structural and is_fenced)
    world.ledger.is_fenced = is_fenced
    world.ledger.loose_seconds = 20.0
    return world, Director(world, plan)


def _make_advised(plan: Plan) -> tuple[World, Director]:
    world = World(plan.seed, is_structural=False, is_audited=False, ledger=LenientLedger)
    world.excused = EXCUSED
    return world, AdviceDirector(world, plan)


def shrink(plan: Plan, *, plays_max: int = 60, is_structural: bool = True) -> Plan:
    """A shorter plan with a problem too: as many steps are removed as possible."""
    steps: tuple[Step, ...] = plan.steps
    plays, size = 0, max(len(steps) // 2, 1)
    while size and plays < plays_max:
        start = 0
        while start < len(steps) and plays < plays_max:
            tried = steps[:start] + steps[start + size :]
            plays += 1
            if play_plan(plan.with_steps(tried), is_structural=is_structural).problems:
                steps = tried
            else:
                start += size
        size //= 2
    return plan.with_steps(steps)


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Disable garbage collection while a world is played: it would run cleanup at another step each
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
