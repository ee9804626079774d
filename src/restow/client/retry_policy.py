"""When to retry a rejected request: pure, with randomness as an argument.

Only rejected requests are retried: the server did nothing, or the request is idempotent. A lost
response is left to the caller, because the request may have been executed.

Not here: sleeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from restow.aio import Randomness
from restow.apimachinery.status_error import StatusError

# The server rejected the request before execution.
_NOTHING_DONE: Final = frozenset({429, 503})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of retries. Only responses with `Retry-After` are retried."""

    attempts_max: int = 10
    wait_seconds_max: float = 30.0
    """With a longer Retry-After the error is raised instead."""
    jitter: float = 0.25
    """Random share added to each wait, so that clients do not retry at the same time."""

    def __post_init__(self) -> None:
        if self.attempts_max < 1 or self.wait_seconds_max < 0 or not 0 <= self.jitter <= 1:
            raise ValueError("attempts_max >= 1, wait_seconds_max >= 0, 0 <= jitter <= 1")

    def wait_seconds(
        self, error: StatusError, *, method: str, attempts: int, randomness: Randomness
    ) -> float | None:
        """The wait before the next attempt, after `attempts`; None: do not retry."""
        requested = float(error.retry_after_seconds)
        if requested <= 0 or attempts >= self.attempts_max or requested > self.wait_seconds_max:
            return None
        is_safe = method in _SAFE_METHODS and error.code >= 500
        if error.code not in _NOTHING_DONE and not is_safe:
            return None
        return requested + randomness.uniform(0, self.jitter * requested)


NO_RETRY: Final = RetryPolicy(attempts_max=1)
"""For callers that measure the server's load by its 429s, or cannot wait."""
