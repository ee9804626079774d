"""Numbers of which only bounds are known: costs and sizes.

Not here: what they are of (`cost`, `call_cost`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNBOUNDED: Final = 2**64 - 1


class CostBounds(NamedTuple):
    """A least and a greatest number, of cost or of size; both stop at 64 bits."""

    low: int = 0
    high: int = 0

    def plus(self, other: CostBounds) -> CostBounds:
        return CostBounds(capped(self.low + other.low), capped(self.high + other.high))

    def times(self, other: CostBounds) -> CostBounds:
        return CostBounds(capped(self.low * other.low), capped(self.high * other.high))

    def scaled(self, factor: float) -> CostBounds:
        return CostBounds(_scaled(self.low, factor), _scaled(self.high, factor))

    def union(self, other: CostBounds) -> CostBounds:
        return CostBounds(min(self.low, other.low), max(self.high, other.high))


def capped(number: int) -> int:
    """Costs and sizes stop at 64 bits."""
    return min(number, UNBOUNDED)


def _scaled(number: int, factor: float) -> int:
    return capped(math.ceil(number * factor))


def fixed(number: int) -> CostBounds:
    """A cost or size that is known."""
    return CostBounds(number, number)


UNKNOWN: Final = CostBounds(0, UNBOUNDED)
ONE: Final = fixed(1)
NOTHING: Final = CostBounds()
