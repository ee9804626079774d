"""Objects for watches in a version that somebody else converts to.

All watchers of a cache that want the same version share one translation. It asks for what they
lack, all at once, and lets those go on who have it; what they lack then is asked for next. So there
is one question under way for each version, and a watch of another version, or of another kind, does
not wait for it. A watch whose objects cannot be converted is failed: nothing is left out.

Not here: what a watcher sends (`watch`), and how objects are converted.
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
    """A watcher, as a translation sees it."""

    def flush(self) -> None:
        """Go on."""

    def fail(self, error: StatusError) -> None:
        """End with an error."""


class Translation:
    """One version of one resource, for all who watch it so."""

    def __init__(
        self, resource: Resource, api_version: str, *, store: ResourceStore, tasks: Tasks
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._resource = resource
        self._api_version = api_version
        self._wanted: dict[WaitingWatcher, Sequence[Entry]] = {}
        self._at_hand: Mapping[int, Entry] = {}
        """By revision, what was converted just now, for those who are let go on."""
        self._is_running = False

    def seen(self, entries: Sequence[Entry], watcher: WaitingWatcher) -> list[Entry] | None:
        """Objects in the version; None when some must be waited for, and then `flush` is called."""
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
                watcher.fail(status.unavailable("too many watches wait", retry_after_seconds=1))
        return None

    def discard(self, watcher: WaitingWatcher) -> None:
        """A watcher has ended."""
        self._wanted.pop(watcher, None)

    def _known(self, entry: Entry) -> Entry | None:
        if entry[1] == self._api_version:
            return entry
        found = self._at_hand.get(entry[0])
        return found or self._store.known(self._resource, entry, self._api_version)

    async def _run(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                await self._settle(wanted)
        finally:
            self._is_running = False

    async def _settle(self, wanted: dict[WaitingWatcher, Sequence[Entry]]) -> None:
        """Have converted what some watchers lack, and let them go on or end."""
        together = {entry[0]: entry for entries in wanted.values() for entry in entries}
        error = await self._convert(together.values())
        if error is None:
            self._let_go_on(wanted)
        elif not isinstance(error, ConversionRefused) or len(wanted) == 1:
            for watcher in wanted:
                watcher.fail(error)
        else:
            # The answer may be wrong because of an object that not all of them have asked for.
            await self._settle_apart(wanted)

    async def _settle_apart(self, wanted: dict[WaitingWatcher, Sequence[Entry]]) -> None:
        alike: dict[tuple[int, ...], dict[WaitingWatcher, Sequence[Entry]]] = {}
        for watcher, entries in wanted.items():
            key = tuple(entry[0] for entry in entries)
            alike.setdefault(key, {})[watcher] = entries
        for some in alike.values():
            error = await self._convert(next(iter(some.values())))
            if error is None:
                self._let_go_on(some)
                continue
            for watcher in some:
                watcher.fail(error)

    async def _convert(self, entries: Collection[Entry]) -> StatusError | None:
        """Have objects at hand; or why they cannot be had."""
        try:
            found = await self._store.in_version(self._resource, list(entries), self._api_version)
        except StatusError as error:
            return error
        except Exception as error:  # the edge of a task: whoever waits must hear of it
            logger.exception("objects could not be converted to %s", self._api_version)
            return status.internal(f"{type(error).__name__}: {error}")
        self._at_hand = {entry[0]: entry for entry in found}
        return None

    def _let_go_on(self, waiting: Mapping[WaitingWatcher, object]) -> None:
        for watcher in waiting:
            watcher.flush()
        self._at_hand = {}
