"""Breadth-first search of a state space, with the shortest path to a violation."""

import gc
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class TooLarge(Exception):
    """The space has more states than the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S]):
    """One action and its successor state."""

    action: str
    state: S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[S]):
    """The result of a search. Without a trace, all states were visited without a violation."""

    states: int
    depth: int
    trace: tuple[Step[S], ...] | None
    found: str | None

    @property
    def steps(self) -> int:
        """The length of the trace: the first step is the initial state."""
        assert self.trace is not None
        return len(self.trace) - 1

    def __str__(self) -> str:
        if self.trace is None:
            return f"nothing found: {self.states} states, all seen, up to {self.depth} steps deep"
        lines = [f"{self.found}: after {self.steps} steps, {self.states} states seen"]
        for number, step in enumerate(self.trace):
            lines.append(f"{number:4}  {step.action}\n          {step.state}")
        return "\n".join(lines)


def itself(state: S) -> S:
    return state


def search(
    initial: S,
    successors: Callable[[S], Iterable[tuple[str, S]]],
    sought: Callable[[S], str | None],
    *,
    canonical: Callable[[S], S] = itself,
    states_max: int,
) -> Outcome[S]:
    """Visits every reachable state, or stops at the first that is sought.

    `sought` names its result. `canonical` gives states that differ only in names the same form; the
    trace
    is replayed without it, so that names stay the same from step to step.
    """
    collected = gc.isenabled()
    gc.disable()  # states are tuples without cycles; the collector would take half of the time
    try:
        return _search(initial, successors, sought, canonical=canonical, states_max=states_max)
    finally:
        if collected:
            gc.enable()


def _search(
    initial: S,
    successors: Callable[[S], Iterable[tuple[str, S]]],
    sought: Callable[[S], str | None],
    *,
    canonical: Callable[[S], S],
    states_max: int,
) -> Outcome[S]:
    first = canonical(initial)
    parents: dict[S, S | None] = {first: None}
    depth = 0
    level = [first]
    found = sought(first)
    if found is not None:
        return Outcome(states=1, depth=0, trace=_played([first], initial, successors), found=found)
    while level:
        following: list[S] = []
        for state in level:
            for _, after in successors(state):
                reached = canonical(after)
                if reached in parents:
                    continue
                parents[reached] = state
                found = sought(reached)
                if found is not None:
                    way = _way(parents, reached)
                    return Outcome(
                        states=len(parents),
                        depth=depth + 1,
                        trace=_played(way, initial, successors, canonical),
                        found=found,
                    )
                following.append(reached)
        if len(parents) > states_max:
            raise TooLarge(f"{len(parents)} states at depth {depth + 1}, allowed: {states_max}")
        level = following
        depth += bool(level)
    return Outcome(states=len(parents), depth=depth, trace=None, found=None)


def _way(parents: dict[S, S | None], last: S) -> list[S]:
    way = [last]
    while (parent := parents[way[-1]]) is not None:
        way.append(parent)
    way.reverse()
    return way


def _played(
    way: list[S],
    initial: S,
    successors: Callable[[S], Iterable[tuple[str, S]]],
    canonical: Callable[[S], S] = itself,
) -> tuple[Step[S], ...]:
    """Returns the path as real states: each has the canonical form of the path."""
    steps = [Step(action="in the beginning", state=initial)]
    for wanted in way[1:]:
        for action, after in successors(steps[-1].state):
            if canonical(after) == wanted:
                steps.append(Step(action=action, state=after))
                break
        else:
            raise AssertionError("canonical forms do not keep successors apart")
    return tuple(steps)
