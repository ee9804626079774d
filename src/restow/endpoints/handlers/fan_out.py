"""The watchers of one watch cache: flushed together, so that they share encoded bytes.

Not here: the events that a watcher sends (`watch`), and conversion (`watch_conversion`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from restow.aio import Runtime, StepSubject, Tasks
from restow.aio.loop_steps import LONG_SECONDS
from restow.endpoints.handlers.long_encodings import LongEncodings
from restow.endpoints.handlers.watch_conversion import Translation, WaitingWatcher
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import WatchCache
from restow.request.offload import Offload

WATCHERS_PER_CHECK: Final = 16
STEP_SECONDS: Final = 0.004
"""How long watchers are flushed before other work of the event loop."""


class Host(Protocol):
    """The parts of a server that watches use."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def store(self) -> ResourceStore: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def offload(self) -> Offload: ...

    @property
    def fan_outs(self) -> dict[str, FanOut]:
        """By root of keys: the watchers of each resource."""


class FanOut:
    """All watchers of one cache, flushed together once per iteration of the event loop."""

    def __init__(self, host: Host, cache: WatchCache) -> None:
        self._host = host
        self._clock = host.runtime.clock
        self._steps = host.runtime.steps
        self._flush_steps = self._steps.kind("watch-events", _describe)
        self.cache = cache
        self._watchers: dict[WaitingWatcher, None] = {}  # in order of arrival
        self._scheduled = False
        self._is_changed = False
        """Whether the cache has changed since the current flush began."""
        self._left: list[WaitingWatcher] = []
        """Watchers that the current flush has not reached, the next one last."""
        self._shared: dict[object, bytes] | None = None
        """Bytes encoded in this step of a flush; None outside of one."""

        self._translations: dict[str, Translation] = {}
        self.long_encodings: Final = LongEncodings(host)

    def __len__(self) -> int:
        return len(self._watchers)

    def translation(self, resource: Resource, api_version: str) -> Translation:
        """The conversion to a version, which all watchers in that version share."""
        found = self._translations.get(api_version)
        if found is None:
            found = Translation(
                resource, api_version, store=self._host.store, tasks=self._host.tasks
            )
            self._translations[api_version] = found
        return found

    def add(self, watcher: WaitingWatcher) -> None:
        if not self._watchers:
            self.cache.listen(self._changed)
            if not self.cache.is_closed:  # else another cache replaces it, and the watch ends
                self._host.fan_outs[self.cache.root] = self
        self._watchers[watcher] = None

    def discard(self, watcher: WaitingWatcher) -> None:
        self._watchers.pop(watcher, None)
        self.long_encodings.discard(watcher)
        if not self._watchers:
            self.cache.unlisten(self._changed)
            # Otherwise it would keep the objects of a deleted kind in memory.
            if self._host.fan_outs.get(self.cache.root) is self:
                del self._host.fan_outs[self.cache.root]

    def shared(self, cursor: int, key: object, make: Callable[[], bytes]) -> bytes:
        """Bytes that several watchers need in one flush, encoded once.

        Outside of a flush nothing is cached: a change may come before the next call, which would
        then get bytes without that change.
        """
        if self._shared is None:
            return make()
        place = (cursor, key)
        found = self._shared.get(place)
        if found is None:
            found = self._shared[place] = make()
        return found

    def _changed(self) -> None:
        self._is_changed = True
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_later(0, self._flush)

    def _flush(self) -> None:
        """Flush watchers for `STEP_SECONDS`; the rest in another step.

        A change that comes meanwhile starts again with the watchers that wait longest: none of them
        is flushed twice before all others were.
        """
        self._shared = {}
        left = self._left
        if not left:
            left.extend(reversed(self._watchers))
            self._is_changed = False
        begin = self._steps.monotonic()
        end = begin + STEP_SECONDS
        try:
            while left:
                left.pop().flush()
                if len(left) % WATCHERS_PER_CHECK == 0 and self._steps.monotonic() >= end:
                    break
        finally:
            self._shared = None
            self._scheduled = bool(left) or self._is_changed
            if self._scheduled:
                self._clock.call_later(0, self._flush)
            ended = self._steps.monotonic()
            if ended - begin >= LONG_SECONDS:
                self._steps.note(self._flush_steps, begin, ended, self)


def fan_out_of(host: Host, cache: WatchCache) -> FanOut:
    """The fan-out of a cache; it exists while the cache has watchers."""
    found = host.fan_outs.get(cache.root)
    return found if found is not None and found.cache is cache else FanOut(host, cache)


def _describe(fan_out: FanOut) -> StepSubject:
    return StepSubject(text=f"under {fan_out.cache.root} for {len(fan_out)} watches")
