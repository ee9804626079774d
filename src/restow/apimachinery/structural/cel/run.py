"""The state of one evaluation: its variables, and the cost so far.

Not here: the evaluation of nodes (`evaluate`, `loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from restow.apimachinery.structural.cel.values import CostExceeded

LIST_COST: Final = 10
MAP_COST: Final = 30
COST_ON_LOOP_MAX: Final = 5_000
"""Cost limit of an evaluation on the event loop: up to 5 ms. One that exceeds it is repeated in a
thread."""

T = TypeVar("T")


class Evaluation:
    """The variables of one evaluation, and its cost so far."""

    __slots__ = ("cost", "cost_max", "variables", "whole_cost_max")

    def __init__(
        self, variables: dict[str, Any], cost_max: int, whole_cost_max: int | None = None
    ) -> None:
        """`whole_cost_max` is the regular limit, if `cost_max` is the lower one of a trial."""
        self.variables = variables
        self.cost = 0
        self.cost_max = cost_max
        self.whole_cost_max = cost_max if whole_cost_max is None else whole_cost_max

    def spend(self, cost: int) -> None:
        """Add to the cost; raise CostExceeded above the limit."""
        self.cost += cost
        if self.cost > self.cost_max:
            raise CostExceeded

    def spend_nominal(self, cost: int) -> None:
        """Add a nominal cost that takes no time: it does not use up a trial budget."""
        self.cost_max = min(self.cost_max + cost, self.whole_cost_max)
        self.spend(cost)


class Trial:
    """A trial of evaluating inline: the remaining cost budget."""

    __slots__ = ("cost_left",)

    def __init__(self, cost_max: int) -> None:
        self.cost_left = cost_max

    def spend(self, cost: int) -> None:
        self.cost_left -= cost


Evaluate = Callable[[Evaluation], Any]

_trial_on_loop: ContextVar[Trial | None] = ContextVar("_trial_on_loop", default=None)


def try_on_loop(work: Callable[[], T]) -> T:
    """Do work that may run rules, with a budget of `COST_ON_LOOP_MAX` for all of them. Raises
    TrialOver when it is used up."""
    token = _trial_on_loop.set(Trial(COST_ON_LOOP_MAX))
    try:
        return work()
    finally:
        _trial_on_loop.reset(token)


def trial_on_loop() -> Trial | None:
    """Return the budget of `try_on_loop`; None in a thread, where there is none."""
    return _trial_on_loop.get()
