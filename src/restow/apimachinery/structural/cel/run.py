"""One evaluation of an expression: its variables, and what it cost so far.

Not here: what the parts of an expression do (`evaluate`, `loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.apimachinery.structural.cel.values import CostExceeded

LIST_COST: Final = 10
MAP_COST: Final = 30


class Evaluation:
    """One evaluation: variables, and the cost so far."""

    __slots__ = ("cost", "cost_max", "variables", "whole_cost_max")

    def __init__(
        self, variables: dict[str, Any], cost_max: int, whole_cost_max: int | None = None
    ) -> None:
        """`whole_cost_max`: what it may cost, if it ends before that because it is tried."""
        self.variables = variables
        self.cost = 0
        self.cost_max = cost_max
        self.whole_cost_max = cost_max if whole_cost_max is None else whole_cost_max

    def spend(self, cost: int) -> None:
        """Counts, and ends the run if it was too much."""
        self.cost += cost
        if self.cost > self.cost_max:
            raise CostExceeded

    def spend_by_decree(self, cost: int) -> None:
        """Counts what is dear by decree but takes no time: no trial ends for it."""
        self.cost_max = min(self.cost_max + cost, self.whole_cost_max)
        self.spend(cost)


class Trial:
    """A try to evaluate something cheaply; what is left of what it may cost."""

    __slots__ = ("cost_left",)

    def __init__(self, cost_max: int) -> None:
        self.cost_left = cost_max


Evaluate = Callable[[Evaluation], Any]
