"""A work queue of keys: each key is queued at most once and processed by one worker at a time.

For level-triggered reconciliation: a key only means "reconcile", not what has changed, so adding it
twice has the same effect as once. Not for items that must each be processed (see queues.py).
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from restow.aio.backoff import Backoff
from restow.aio.clock import Clock, Timer
from restow.aio.queues import QueueClosed, QueueFull
from restow.aio.randomness import Randomness
from restow.aio.wait_queue import WaitQueue

K = TypeVar("K", bound=Hashable)

KEYS_MAX_DEFAULT = 100_000
RETRY_BACKOFF_DEFAULT = Backoff(initial_seconds=0.005, factor=2, max_seconds=300, jitter=0.1)


@dataclass(slots=True)
class _Entry:
    """The state of one key; dropped when it is empty."""

    wanted: bool = False  # queued or, while in work, to be queued after `done`
    in_work: bool = False
    timer: Timer | None = None
    timer_deadline: float = 0.0
    failures: int = 0

    def is_empty(self) -> bool:
        return not (self.wanted or self.in_work or self.timer or self.failures)


class WorkQueue(Generic[K]):
    """Keys to reconcile. A worker loops: `get`, work, then `retry` or `forget`, then `done`.

    A key that is added while it is processed is queued again after `done`. The limit counts every
    key with a state: queued, delayed, in work, or with failures that were not forgotten.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        randomness: Randomness,
        retry_backoff: Backoff = RETRY_BACKOFF_DEFAULT,
        keys_max: int = KEYS_MAX_DEFAULT,
    ) -> None:
        self.name = name
        self.keys_max = keys_max
        self._clock = clock
        self._randomness = randomness
        self._retry_backoff = retry_backoff
        self._entries: dict[K, _Entry] = {}
        self._ready: deque[K] = deque()
        self._closed = False
        self._getters = WaitQueue(lambda: bool(self._ready) or self._closed)

    def __len__(self) -> int:
        """The number of keys that can be taken now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Queue the key; QueueFull if the limit is exceeded. Does nothing if closed."""
        if not self._closed:
            self._request(key, self._entry(key))

    def add_after(self, key: K, seconds: float) -> None:
        """Queue the key after a delay; of several delays of one key the shortest applies."""
        if seconds <= 0:
            self.add(key)
        elif not self._closed:
            self._delay(key, seconds)

    def retry(self, key: K) -> float:
        """Count a failure of the key and queue it after its backoff; return the delay."""
        if self._closed:
            return 0.0
        entry = self._entry(key)
        delay_seconds = self._retry_backoff.delay_seconds(entry.failures, self._randomness)
        entry.failures += 1
        self.add_after(key, delay_seconds)
        return delay_seconds

    def forget(self, key: K) -> None:
        """Reset the failures of the key, after a success or when giving up."""
        if (entry := self._entries.get(key)) is not None:
            entry.failures = 0
            self._drop_if_empty(key, entry)

    def failures(self, key: K) -> int:
        """Return the number of calls of `retry` for the key since it was last forgotten."""
        entry = self._entries.get(key)
        return 0 if entry is None else entry.failures

    async def get(self) -> K:
        """Take the key that has waited longest; QueueClosed when closed and empty."""
        await self._getters.wait()
        if not self._ready:
            self._getters.wake()
            raise QueueClosed(self.name)
        key = self._ready.popleft()
        entry = self._entries[key]
        entry.wanted, entry.in_work = False, True
        self._getters.wake()
        return key

    def done(self, key: K) -> None:
        """End the work on a key; it is queued now if it was added meanwhile."""
        entry = self._entries.get(key)
        if entry is None or not entry.in_work:
            raise ValueError(f"{self.name}: {key!r} is not in work")
        entry.in_work = False
        if entry.wanted:
            self._enqueue(key)
        self._drop_if_empty(key, entry)

    def close(self) -> None:
        """Drop delayed keys and accept no more; consumers get the queued keys first."""
        self._closed = True
        for key, entry in list(self._entries.items()):
            if entry.timer is not None:
                entry.timer.cancel()
                entry.timer = None
                self._drop_if_empty(key, entry)
        self._getters.wake()

    def _entry(self, key: K) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) >= self.keys_max:
                raise QueueFull(f"{self.name}: {len(self._entries)} of {self.keys_max} keys")
            entry = self._entries[key] = _Entry()
        return entry

    def _request(self, key: K, entry: _Entry) -> None:
        if not entry.wanted:
            entry.wanted = True
            if not entry.in_work:
                self._enqueue(key)

    def _enqueue(self, key: K) -> None:
        self._ready.append(key)
        self._getters.wake()

    def _delay(self, key: K, seconds: float) -> None:
        entry = self._entry(key)
        deadline = self._clock.monotonic() + seconds
        if entry.timer is not None:
            if entry.timer_deadline <= deadline:
                return
            entry.timer.cancel()
        entry.timer_deadline = deadline
        entry.timer = self._clock.call_later(seconds, lambda: self._on_timer(key, entry))

    def _on_timer(self, key: K, entry: _Entry) -> None:
        entry.timer = None
        self._request(key, entry)

    def _drop_if_empty(self, key: K, entry: _Entry) -> None:
        if entry.is_empty():
            del self._entries[key]
