"""A bounded first-in-first-out queue between tasks of one loop.

For items that must each be processed once and in order. Not for keys to reconcile (see
workqueue.py), and not between threads.
"""

from collections import deque
from typing import Generic, TypeVar

from restow.aio.wait_queue import WaitQueue

T = TypeVar("T")


class QueueFull(Exception):
    """The queue is full, or other producers wait for space already."""


class QueueClosed(Exception):
    """The queue accepts no more items or, for a consumer, has no items left."""


class BoundedQueue(Generic[T]):
    """A named queue with a limit; producers and consumers are each served in order of arrival."""

    def __init__(self, name: str, *, items_max: int) -> None:
        if items_max < 1:
            raise ValueError("items_max must be at least 1")
        self.name = name
        self.items_max = items_max
        self._items: deque[T] = deque()
        self._closed = False
        self._getters = WaitQueue(lambda: bool(self._items) or self._closed)
        self._putters = WaitQueue(lambda: len(self._items) < items_max or self._closed)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        return self._closed

    def put_nowait(self, item: T) -> None:
        """Add an item, or raise QueueFull; does not overtake producers that wait in `put`."""
        if self._closed:
            raise QueueClosed(self.name)
        if not self._putters.is_open():
            raise QueueFull(f"{self.name}: {len(self._items)} of {self.items_max} items")
        self._add(item)

    async def put(self, item: T) -> None:
        """Add an item when there is space; QueueClosed if the queue is closed first."""
        await self._putters.wait()
        if self._closed:
            self._putters.wake()
            raise QueueClosed(self.name)
        self._add(item)
        self._putters.wake()

    async def get(self) -> T:
        """Take the oldest item; QueueClosed when the queue is closed and empty."""
        return (await self.get_batch(1))[0]

    async def get_batch(self, items_max: int) -> list[T]:
        """Take all available items, at least one and at most `items_max`, oldest first."""
        if items_max < 1:
            raise ValueError("items_max must be at least 1")
        await self._getters.wait()
        if not self._items:
            self._getters.wake()
            raise QueueClosed(self.name)
        batch = [self._items.popleft() for _ in range(min(items_max, len(self._items)))]
        self._getters.wake()
        self._putters.wake()
        return batch

    def close(self) -> None:
        """Accept no more items; waiting producers fail, consumers get the remaining items first."""
        self._closed = True
        self._putters.wake()
        self._getters.wake()

    def _add(self, item: T) -> None:
        self._items.append(item)
        self._getters.wake()
