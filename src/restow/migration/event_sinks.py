"""What controllers tell the outside: events about objects, and measurements.

Controllers are given these; who runs them decides where they go. No method blocks or raises: that
something could not be told is no reason to do or to leave anything.

Not here: how events are written to the API, and in which form metrics are shown.
"""

from __future__ import annotations

from typing import Final, Protocol

from restow.client.objects import Object


class EventSink(Protocol):
    """Takes notes for people, each about one object of the API."""

    def event(
        self, about: Object, reason: str, message: str, *, is_warning: bool = False
    ) -> None: ...


class TriggerMetrics(Protocol):
    """What the trigger counts. A resource is named as its StorageState is."""

    def decided(self, resource: str, action: str) -> None:
        """An action was done: its name, such as `Narrow`."""
        ...

    def failed(self, resource: str) -> None:
        """Reading or acting has failed, and is tried again."""
        ...

    def states(self, *, agreed: int, split: int) -> None:
        """For how many resources servers agree on what they write, and for how many not."""
        ...


class PageCounts(Protocol):
    """The objects of one page, by what was done with them."""

    @property
    def scanned(self) -> int: ...

    @property
    def rewritten(self) -> int: ...

    @property
    def unchanged(self) -> int: ...

    @property
    def settled(self) -> int: ...

    @property
    def failed(self) -> int: ...


class MigratorMetrics(Protocol):
    """What the migrator counts, by the resource that is migrated."""

    def page(self, resource: str, done: PageCounts) -> None: ...

    def remaining(self, resource: str, count: int | None) -> None:
        """How many objects follow; None: nobody knows."""
        ...

    def in_flight(self, resource: str, count: int) -> None: ...

    def ended(self, resource: str, status: str, seconds: float) -> None:
        """A request has ended, in this status, so long after it began."""
        ...

    def object_failed(self, resource: str, reason: str) -> None: ...


class _NoRecorder:
    def event(self, about: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        pass


class _NoTriggerMetrics:
    def decided(self, resource: str, action: str) -> None:
        pass

    def failed(self, resource: str) -> None:
        pass

    def states(self, *, agreed: int, split: int) -> None:
        pass


class _NoMigratorMetrics:
    def page(self, resource: str, done: PageCounts) -> None:
        pass

    def remaining(self, resource: str, count: int | None) -> None:
        pass

    def in_flight(self, resource: str, count: int) -> None:
        pass

    def ended(self, resource: str, status: str, seconds: float) -> None:
        pass

    def object_failed(self, resource: str, reason: str) -> None:
        pass


NO_RECORDER: Final[EventSink] = _NoRecorder()
NO_TRIGGER_METRICS: Final[TriggerMetrics] = _NoTriggerMetrics()
NO_MIGRATOR_METRICS: Final[MigratorMetrics] = _NoMigratorMetrics()
