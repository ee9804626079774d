"""Event channels: decouple the code that emits events from its subscribers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, ParamSpec

P = ParamSpec("P")


class EventChannel(Generic[P]):
    """Calls all subscribers synchronously, in the order of their subscription."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, subscriber: Callable[P, None]) -> None:
        """Call the subscriber for every later event."""
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Callable[P, None]) -> None:
        """Undo a subscription; a no-op without one."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)

    def __iter__(self) -> Iterator[Callable[P, None]]:
        """The subscribers, for an emitter that handles their failures one by one."""
        return iter(tuple(self._subscribers))

    def emit(self, *args: P.args, **options: P.kwargs) -> None:
        """Call all subscribers."""
        for each in self:
            each(*args, **options)
