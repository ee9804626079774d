"""Event channels: how one part tells others of what happens, without knowing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class EventChannel(Generic[P]):
    """Calls all subscribers, in the order in which they came, in the step of the one who emits."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, subscriber: Callable[P, None]) -> None:
        """Have every later event told."""
        self._subscribers.append(subscriber)

    def emit(self, *args: P.args, **options: P.kwargs) -> None:
        """Tell all subscribers."""
        for each in self._subscribers:
            each(*args, **options)
