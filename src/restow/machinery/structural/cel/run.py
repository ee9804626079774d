"""One evaluation of an expression: its variables, and what it cost so far.

Not here: what the parts of an expression do (`evaluate`, `loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from restow.machinery.structural.cel.values import CostExceeded

LIST_COST: Final = 10
MAP_COST: Final = 30


class Run:
    """One evaluation: variables, and the cost so far."""

    __slots__ = ("cost", "cost_max", "variables")

    def __init__(self, variables: dict[str, Any], cost_max: int) -> None:
        self.variables = variables
        self.cost = 0
        self.cost_max = cost_max

    def spend(self, cost: int) -> None:
        """Counts, and ends the run if it was too much."""
        self.cost += cost
        if self.cost > self.cost_max:
            raise CostExceeded


Evaluate = Callable[[Run], Any]
