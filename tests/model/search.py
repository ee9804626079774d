"""Breadth-first search of a state space, with the shortest way to whatever is looked for."""

import gc
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class TooLarge(Exception):
    """The space has more states than was allowed for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Generic[S]):
    """One action, and the state after it."""

    action: str
    state: S


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[S]):
    """How a search ended. Without a trace, all states were seen and none was looked for."""

    states: int
    depth: int
    trace: tuple[Step[S], ...] | None
    found: str | None

    @property
    def steps(self) -> int:
        """Length of the trace: the first step is the initial state."""
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
    """See every state that can be reached, or stop at the first that is sought.

    `sought` names what it finds. `canonical` gives states that differ only in names the same
    form; the trace is played again without it, so that names stay the same from step to step.
    """
    collected = gc.isenabled()
    gc.disable()  # states are tuples without cycles; looking for some takes half of the time
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
    """The way as a play of real states: each is one whose canonical form is the way's."""
    steps = [Step(action="in the beginning", state=initial)]
    for wanted in way[1:]:
        for action, after in successors(steps[-1].state):
            if canonical(after) == wanted:
                steps.append(Step(action=action, state=after))
                break
        else:
            raise AssertionError("canonical forms do not keep successors apart")
    return tuple(steps)
