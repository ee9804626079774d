"""Batched conversion of objects for watches in a version that a webhook converts to.

All watchers of a cache in one version share a `Translation`. It requests the conversion of all
objects that they miss at once, and resumes the watchers that have all they need; objects missing
then are in the next request. So there is one request in flight per version, and watches of another
version or kind do not wait for it. A watch whose objects cannot be converted fails: no object is
left out.

Not here: the events that a watcher sends (`watch`), and the conversion itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from restow.aio import Tasks, TasksClosed, TasksFull
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.registry.custom.conversion import ConversionRefused
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import Entry

logger = logging.getLogger(__name__)


class WaitingWatcher(Protocol):
    """The interface of a watcher that a translation calls."""

    def flush(self) -> None:
        """Send the changes that were waiting for a conversion."""

    def fail(self, error: StatusError) -> None:
        """End with an error."""


class Translation:
    """Conversion to one version of a resource, shared by all watchers in that version."""

    def __init__(
        self, resource: Resource, api_version: str, *, store: ResourceStore, tasks: Tasks
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._resource = resource
        self._api_version = api_version
        self._wanted: dict[WaitingWatcher, Sequence[Entry]] = {}
        self._converted: Mapping[int, Entry] = {}
        """Objects converted just now, by revision, for the watchers that are resumed."""
        self._is_running = False

    def seen(self, entries: Sequence[Entry], watcher: WaitingWatcher) -> list[Entry] | None:
        """Objects in the version; None when a conversion is pending, and then `flush` is called
        later."""
        found = [self._known(entry) for entry in entries]
        missing = [entry for entry, known in zip(entries, found, strict=True) if known is None]
        if not missing:
            return [entry for entry in found if entry is not None]
        self._wanted[watcher] = missing
        if not self._is_running:
            self._is_running = True
            try:
                self._tasks.spawn(f"convert to {self._api_version}", self._run())
            except (TasksFull, TasksClosed):
                self._is_running = False
                del self._wanted[watcher]
                why = "too many watches wait for conversion"
                watcher.fail(status.unavailable(why, retry_after_seconds=1))
        return None

    def discard(self, watcher: WaitingWatcher) -> None:
        """Remove a watcher that has ended."""
        self._wanted.pop(watcher, None)

    def _known(self, entry: Entry) -> Entry | None:
        if entry[1] == self._api_version:
            return entry
        found = self._converted.get(entry[0])
        return found or self._store.known(self._resource, entry, self._api_version)

    async def _run(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                await self._convert_batch(wanted)
        finally:
            self._is_running = False

    async def _convert_batch(self, wanted: dict[WaitingWatcher, Sequence[Entry]]) -> None:
        """Convert the missing objects of some watchers, then resume or fail the watchers."""
        together = {entry[0]: entry for entries in wanted.values() for entry in entries}
        error = await self._convert(together.values())
        if error is None:
            self._resume(wanted)
        elif not isinstance(error, ConversionRefused) or len(wanted) == 1:
            for watcher in wanted:
                watcher.fail(error)
        else:
            # The error may be caused by an object that only some of them need.
            await self._convert_separately(wanted)

    async def _convert_separately(self, wanted: dict[WaitingWatcher, Sequence[Entry]]) -> None:
        alike: dict[tuple[int, ...], dict[WaitingWatcher, Sequence[Entry]]] = {}
        for watcher, entries in wanted.items():
            key = tuple(entry[0] for entry in entries)
            alike.setdefault(key, {})[watcher] = entries
        for some in alike.values():
            error = await self._convert(next(iter(some.values())))
            if error is None:
                self._resume(some)
                continue
            for watcher in some:
                watcher.fail(error)

    async def _convert(self, entries: Collection[Entry]) -> StatusError | None:
        """Convert objects and keep them; return the error if that failed."""
        try:
            found = await self._store.in_version(self._resource, list(entries), self._api_version)
        except StatusError as error:
            return error
        except Exception as error:  # the boundary of a task: waiting watchers must get the error
            logger.exception("objects could not be converted to %s", self._api_version)
            return status.internal(f"{type(error).__name__}: {error}")
        self._converted = {entry[0]: entry for entry in found}
        return None

    def _resume(self, waiting: Mapping[WaitingWatcher, object]) -> None:
        for watcher in waiting:
            watcher.flush()
        self._converted = {}
