"""Interleaved rounds: load changes within seconds, so compared measurements alternate.

A ratio is the median of the rounds' ratios, each from two consecutive measurements.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

Measure = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of `measure_both`, in the unit of the measures."""

    ours: float
    theirs: float
    ratio: float


async def measure_both(ours: Measure, theirs: Measure, *, rounds: int) -> Comparison:
    """Medians of both measures, and of their ratios round by round."""
    pairs = [(await ours(), await theirs()) for _ in range(rounds)]
    return Comparison(
        ours=median(pair[0] for pair in pairs),
        theirs=median(pair[1] for pair in pairs),
        ratio=median(mine / other for mine, other in pairs),
    )


async def rate(work: Awaitable[object], *, operations: int) -> float:
    """Operations per second while this work is done."""
    begin = time.perf_counter()
    await work
    return operations / (time.perf_counter() - begin)
