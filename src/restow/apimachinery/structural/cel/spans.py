"""Ranges of costs and sizes, of which only bounds are known.

Not here: computing them (`cost`, `call_cost`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

UNBOUNDED: Final = 2**64 - 1


class CostBounds(NamedTuple):
    """A minimum and maximum of a cost or size; both saturate at 64 bits."""

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
    """Limit a cost or size to 64 bits."""
    return min(number, UNBOUNDED)


def _scaled(number: int, factor: float) -> int:
    return capped(math.ceil(number * factor))


def fixed(number: int) -> CostBounds:
    """Return the bounds of an exactly known cost or size."""
    return CostBounds(number, number)


UNKNOWN: Final = CostBounds(0, UNBOUNDED)
ONE: Final = fixed(1)
NOTHING: Final = CostBounds()
