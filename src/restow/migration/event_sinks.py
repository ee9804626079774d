"""Interfaces through which controllers report: events about objects, and metrics.

The process that runs a controller passes the implementations in. No method blocks or raises: a lost
event or sample never changes what a controller does.

Not here: how events are written to the API, and how metrics are exposed.
"""

from __future__ import annotations

from typing import Final, Protocol

from restow.client.objects import Object


class EventSink(Protocol):
    """Takes events for people, each about one object of the API."""

    def event(
        self, about: Object, reason: str, message: str, *, is_warning: bool = False
    ) -> None: ...


class TriggerMetrics(Protocol):
    """Metrics of the trigger. A resource has the name of its StorageState."""

    def decided(self, resource: str, action: str) -> None:
        """Count an action that was done, by its name, such as `Narrow`."""
        ...

    def failed(self, resource: str) -> None:
        """Count a failure to read or to act; it is retried."""
        ...

    def states(self, *, agreed: int, split: int) -> None:
        """Set the number of resources on which servers agree, and of those on which they do not."""
        ...


class PageCounts(Protocol):
    """The objects of one page, by outcome."""

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
    """Metrics of the migrator, by the resource that is migrated."""

    def page(self, resource: str, done: PageCounts) -> None: ...

    def remaining(self, resource: str, count: int | None) -> None:
        """Set the number of objects that remain; None: not known."""
        ...

    def in_flight(self, resource: str, count: int) -> None: ...

    def ended(self, resource: str, status: str, seconds: float) -> None:
        """Record the end of a migration: its status and its duration."""
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


NO_RECORDER: Final[EventSink] = _NoRecorder()
NO_TRIGGER_METRICS: Final[TriggerMetrics] = _NoTriggerMetrics()
