"""Removes Events some time after their last write, by ordinary deletes.

As in Kubernetes, the TTL counts from the last write. It is measured with this process' monotonic
clock: each step records the store's revision, and an Event whose revision is not above one recorded
a TTL ago was not written since. Events from before the first record (this process has just started)
are judged by the newest of their own timestamps. Clients write these, so timestamps in the future
are ignored; `creationTimestamp`, which a server sets, always exists.

Not here: the schedule of steps, and the meaning of Events.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

import orjson

from restow.aio import Runtime
from restow.apimachinery.status import Conflict, NotFound
from restow.controllers.object_keys import working_version
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import for_each
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.watch_cache import Entry, WatchCache
from restow.storage.interface import Revision, Span

TTL_SECONDS: Final = 3600.0
STEP_SECONDS_MAX: Final = 60.0
STEPS_PER_TTL: Final = 20
REMOVED_MAX: Final = 2000
"""Limit of the events that one step removes; the others are removed by the next step."""
BACKLOG_SECONDS: Final = 1.0
_SLICE: Final = 500
_CREATED: Final = re.compile(rb'"creationTimestamp":"([0-9TZ:+.-]{20,35})"')


class EventExpiry:
    """Removes expired events. A new one is created for each leader term."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        ttl_seconds: float = TTL_SECONDS,
    ) -> None:
        self._store = store
        self._clock = runtime.clock
        self._events = catalog.of_kind("", "Event")
        self._ttl_seconds = ttl_seconds
        self._marked_at: list[float] = []
        self._marks: list[Revision] = []

    async def step(self) -> float:
        """Remove expired events; return the seconds until the next step."""
        if self._events is None:
            return STEP_SECONDS_MAX
        await self._mark()
        root = Span.of_prefix(self._events.root)
        if not await self._store.storage.count(root):
            return self._step_seconds
        cache = await self._store.loaded(self._events)
        old = await self._find_old(cache)
        await for_each(old, self._remove)
        return BACKLOG_SECONDS if len(old) == REMOVED_MAX else self._step_seconds

    @property
    def _step_seconds(self) -> float:
        return min(STEP_SECONDS_MAX, self._ttl_seconds / STEPS_PER_TTL)

    async def _mark(self) -> None:
        # Read the revision first: everything at or below it was written before `now`.
        revision = await self._store.storage.revision()
        now = self._clock.monotonic()
        outdated = bisect_right(self._marked_at, now - self._ttl_seconds) - 1
        if outdated > 0:
            del self._marked_at[:outdated]
            del self._marks[:outdated]
        self._marked_at.append(now)
        self._marks.append(revision)

    async def _find_old(self, cache: WatchCache) -> list[tuple[str, int]]:
        """Return paths and revisions of expired events; yields to other tasks in between."""
        found: list[tuple[str, int]] = []
        start = ""
        while True:
            page = cache.select(start=start, limit=_SLICE)
            for path, entry in zip(page.keys, page.entries, strict=True):
                if self._is_old(entry):
                    found.append((path, entry[0]))
                    if len(found) == REMOVED_MAX:
                        return found
            if len(page.keys) < _SLICE:
                return found
            start = page.keys[-1] + "\0"
            await self._clock.sleep(0)

    def _is_old(self, entry: Entry) -> bool:
        now = self._clock.monotonic()
        if self._marked_at[0] <= now - self._ttl_seconds and entry[0] <= self._marks[0]:
            return True
        return entry[0] <= self._marks[0] and self._is_old_by_timestamps(entry[2])

    def _is_old_by_timestamps(self, body: bytes) -> bool:
        now = self._clock.wall()
        created = _CREATED.search(body)
        # Set by a server, whose clock may be ahead: a time in the future is recent as well.
        if created is not None and self._age_seconds(created[1].decode(), now) < self._ttl_seconds:
            return False
        ages = (self._age_seconds(each, now) for each in times_of(orjson.loads(body)))
        return not any(0 <= age < self._ttl_seconds for age in ages)

    def _age_seconds(self, time: str, now: datetime) -> float:
        parsed = _parse(time)
        return inf if parsed is None else (now - parsed).total_seconds()

    async def _remove(self, old: tuple[str, int]) -> None:
        path, revision = old
        assert self._events is not None
        options = DeleteOptions(resource_version=str(revision))
        try:
            await self._store.delete(self._events, working_version(self._events), path, options)
        except (NotFound, Conflict):
            return  # removed already, or written again


def times_of(event: dict[str, Any]) -> list[str]:
    """Return the timestamps that clients have set in an event, in either API version."""
    series = event.get("series")
    candidates = (
        event.get("lastTimestamp"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        series.get("lastObservedTime") if isinstance(series, dict) else None,
    )
    return [each for each in candidates if isinstance(each, str)]


def _parse(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
