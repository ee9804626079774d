"""Whether and when a refused request is sent again: pure, with chance as an argument.

Only a refusal is retried, where the server has said that it did nothing, or where nothing can be
done twice. A lost answer is the caller's to think about: it may have been carried out.

Not here: sleeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Randomness
from restow.apimachinery.status_error import StatusError

# The server refused before it began.
_NOTHING_DONE: Final = frozenset({429, 503})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long to wait at most. Only answers with `Retry-After` are retried."""

    attempts_max: int = 10
    wait_seconds_max: float = 30.0
    """A server that wants a longer wait is not waited for: the caller is told."""
    jitter: float = 0.25
    """The share by which a wait is made longer by chance, so that clients come back apart."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1 or self.wait_seconds_max < 0 or not 0 <= self.jitter <= 1:
            raise ValueError("attempts_max >= 1, wait_seconds_max >= 0, 0 <= jitter <= 1")

    def wait_seconds(
        self, error: StatusError, *, method: str, attempts: int, randomness: Randomness
    ) -> float | None:
        """How long to wait before the next attempt, after so many; None is: give up."""
        asked = float(error.retry_after_seconds)
        if asked <= 0 or attempts >= self.attempts_max or asked > self.wait_seconds_max:
            return None
        is_safe = method in _SAFE_METHODS and error.code >= 500
        if error.code not in _NOTHING_DONE and not is_safe:
            return None
        return asked + randomness.uniform(0, self.jitter * asked)


NO_RETRY: Final = RetryPolicy(attempts_max=1)
"""For callers that read the server's load from its refusals, or have no time to wait."""
