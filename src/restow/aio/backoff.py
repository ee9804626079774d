"""Exponential backoff: the delays between retries, and a retry loop.

The delays are pure; only `retry` waits. The caller decides which errors are retried.
"""

import itertools
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from restow.aio.clock import Clock
from restow.aio.randomness import Randomness

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays that grow by a factor up to a limit.

    Jitter is the random share of a delay: 0 is none, 1 is anything from zero to the whole delay. It
    only shortens a delay, so `max_seconds` is never exceeded.
    """

    initial_seconds: float
    factor: float
    max_seconds: float
    jitter: float

    def __post_init__(self) -> None:
        if not 0 < self.initial_seconds <= self.max_seconds < math.inf:
            raise ValueError("0 < initial_seconds <= max_seconds < infinity is required")
        if not 1 <= self.factor < math.inf:
            raise ValueError("factor must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError("jitter must be from 0 to 1")

    def ceiling_seconds(self, failures: int) -> float:
        """Return the longest delay after this number of failures (0 for the first delay)."""
        try:
            return min(self.initial_seconds * self.factor**failures, self.max_seconds)
        except OverflowError:
            return self.max_seconds

    def delay_seconds(self, failures: int, randomness: Randomness) -> float:
        """Return one delay, with jitter."""
        ceiling = self.ceiling_seconds(failures)
        return ceiling - randomness.uniform(0, self.jitter * ceiling)

    def delays(self, randomness: Randomness) -> Iterator[float]:
        """Yield the delays after the first failure, the second, and so on without end."""
        failures = 0
        while True:
            yield self.delay_seconds(failures, randomness)
            failures += 1


async def retry(
    operation: Callable[[], Awaitable[T]],
    *,
    retry_on: type[Exception] | tuple[type[Exception], ...],
    attempts_max: int | None,
    backoff: Backoff,
    clock: Clock,
    randomness: Randomness,
    on_retry: Callable[[Exception, float], None] | None = None,
) -> T:
    """Call the operation until it succeeds, at most `attempts_max` times (None: without a limit),
    and raise its last error.

    Other errors are raised at once. `on_retry` is called with each error that is retried, and the
    delay before the next attempt.
    """
    if attempts_max is not None and attempts_max < 1:
        raise ValueError("attempts_max must be at least 1")
    for failures in itertools.count():
        try:
            return await operation()
        except retry_on as error:
            if attempts_max is not None and failures + 1 >= attempts_max:
                error.add_note(f"gave up after {attempts_max} attempts")
                raise
            delay_seconds = backoff.delay_seconds(failures, randomness)
            if on_retry is not None:
                on_retry(error, delay_seconds)
        await clock.sleep(delay_seconds)
    raise AssertionError("unreachable")
