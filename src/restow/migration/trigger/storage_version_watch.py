"""A watch on all StorageVersions, and readings that miss no change in between.

Where servers keep no epoch, a missed change makes the persisted versions unknown. So this keeps
each state of each StorageVersion that the watch has shown since the last reading. A reading is a
fresh GET; it *follows* the one before if the watch was not interrupted since, and has caught up
with the GET.

Not here: the meaning of a reading (`readings`, and the rules).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from restow.aio import Backoff
from restow.apimachinery.names import GroupResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.internal_v1alpha1 import StorageVersion, name_of, resource_of_name
from restow.apis.names import EPOCH_ANNOTATION
from restow.apis.resources import STORAGE_VERSIONS
from restow.client import (
    ApiClient,
    ConnectionFailed,
    EventType,
    Object,
    WatchEvent,
    key_of,
    uid_of,
    version_of,
)
from restow.migration.migration_objects import marks_of
from restow.migration.trigger.observations import (
    UnreadableObject,
    storage_version_of,
)
from restow.migration.trigger.readings import reading_of
from restow.migration.trigger.values import StorageVersionReading

CATCH_UP_SECONDS_MAX: Final = 5.0
PASSED_MAX: Final = 1_000
"""Limit of the states of one StorageVersion between two readings; more of them count as a gap."""
_BACKOFF: Final = Backoff(initial_seconds=0.8, factor=2, max_seconds=30, jitter=0.5)

logger = logging.getLogger(__name__)


class Behind(Exception):
    """The watch lags behind the server: read again later."""


@dataclass(slots=True)
class _Track:
    """The states of one StorageVersion that the watch has shown."""

    known: Object | None = None
    """The current state; None: it does not exist."""
    was_there: bool = False
    passed: list[Object] = field(default_factory=list)
    """Each state since the last reading, including deleted ones."""
    was_deleted: bool = False
    """Whether it was deleted since the last reading."""
    is_whole: bool = False
    """Whether nothing was missed since the last reading."""


class StorageVersionWatch:
    """The watch. `on_change` is called with the resource of each change."""

    def __init__(self, client: ApiClient, *, on_change: Callable[[GroupResource], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._tracks: dict[str, _Track] = {}
        self._is_running = False
        self._moved = asyncio.Event()
        self._failures = 0
        self.is_synced = False
        """Whether the first list is complete."""
        self.keeps_epochs = False
        """Whether servers record the versions that they write."""

    def has(self, resource: GroupResource) -> bool:
        """Whether a resource has, or had, a StorageVersion."""
        track = self._tracks.get(name_of(resource))
        return track is not None and track.was_there

    async def read(self, resource: GroupResource, kind: str) -> StorageVersionReading:
        """Read the current StorageVersion. Raises Behind, UnreadableObject, StatusError or
        ConnectionFailed."""
        name = name_of(resource)
        try:
            found = await self._client.get(STORAGE_VERSIONS, name)
        except NotFound:
            found = None
        if self._is_kept(found):
            # The watch may have shown older states: adding them now would undo a narrowing since.
            # The servers have recorded them.
            self._forget(name)
            return reading_of(_typed(found), kind=kind, follows=False)
        await self._catch_up(name, found)
        # No await from here on: later events of the watch belong to the next reading.
        track = self._tracks.setdefault(name, _Track())
        reading = reading_of(
            _typed(found),
            kind=kind,
            passed=[storage_version_of(each) for each in track.passed],
            follows=track.is_whole and self._is_running,
        )
        _take(track, found)
        track.is_whole = self._is_running
        return reading

    def _is_kept(self, found: Object | None) -> bool:
        """Whether servers keep an epoch, and record in the state all versions that they wrote."""
        return self.keeps_epochs if found is None else _has_epoch(found)

    def _forget(self, name: str) -> None:
        track = self._tracks.get(name)
        if track is not None:
            track.passed.clear()
            track.was_deleted = False
            track.is_whole = self._is_running

    async def _catch_up(self, name: str, found: Object | None) -> None:
        """Wait until the watch has shown the state that the GET returned. A broken watch is not
        waited for, since changes are missed anyway."""
        try:
            async with self._client.runtime.clock.timeout(CATCH_UP_SECONDS_MAX):
                while self._is_running and not _has_shown(self._tracks.get(name), found):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise Behind(f"the watch has not shown the current StorageVersion {name}") from None

    # The watch.

    async def run(self) -> None:
        """Watch until cancelled."""
        clock, randomness = self._client.runtime.clock, self._client.runtime.randomness
        while True:
            try:
                await self._watch()
            except (StatusError, ConnectionFailed) as error:
                logger.info("StorageVersions are listed again: %s", error)
            finally:
                self._interrupt()
            await clock.sleep(_BACKOFF.delay_seconds(self._failures, randomness))
            self._failures += 1

    async def _watch(self) -> None:
        found: dict[str, Object] = {}
        version = ""
        async for page in self._client.pages(STORAGE_VERSIONS):
            found |= {key_of(each).name: each for each in page.items}
            version = page.resource_version
        self._replace(found)
        self._failures = 0
        async with self._client.watch(STORAGE_VERSIONS, resource_version=version) as events:
            async for event in events:
                self._apply(event)

    def _replace(self, found: dict[str, Object]) -> None:
        for name in self._tracks.keys() | found.keys():
            track = self._tracks.setdefault(name, _Track())
            before, track.known = track.known, found.get(name)
            track.was_there = track.was_there or track.known is not None
            if not self.is_synced or _identity(before) != _identity(track.known):
                self._notify(name)
        self.keeps_epochs = any(map(_has_epoch, found.values())) or self.keeps_epochs
        self._is_running = self.is_synced = True
        self._moved.set()

    def _interrupt(self) -> None:
        """Record that changes until the next list are missed."""
        self._is_running = False
        for track in self._tracks.values():
            track.passed.clear()
            track.is_whole = track.was_deleted = False
        self._moved.set()

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.BOOKMARK:
            return
        name = event.key.name
        track = self._tracks.setdefault(name, _Track())
        is_gone = event.type is EventType.DELETED
        track.known, track.was_there = None if is_gone else event.object, True
        track.was_deleted = track.was_deleted or is_gone
        try:
            storage_version_of(event.object)
            track.passed.append(event.object)
        except UnreadableObject as error:
            logger.warning("a changed StorageVersion is not valid: %s", error)
            track.is_whole = False
        if len(track.passed) > PASSED_MAX:
            track.passed.clear()
            track.is_whole = False
        self.keeps_epochs = self.keeps_epochs or _has_epoch(event.object)
        self._moved.set()
        self._notify(name)

    def _notify(self, name: str) -> None:
        self._on_change(resource_of_name(name))


def _typed(found: Object | None) -> StorageVersion | None:
    return None if found is None else storage_version_of(found)


def _has_epoch(found: Object) -> bool:
    return bool(marks_of(found).get(EPOCH_ANNOTATION))


def _identity(found: Object | None) -> tuple[str, str]:
    return ("", "") if found is None else (uid_of(found), version_of(found))


def _has_shown(track: _Track | None, found: Object | None) -> bool:
    """Whether the watch has shown the state that was read, or a later one."""
    if track is None:
        return found is None
    if found is None:
        return track.known is None or track.was_deleted
    shown = (track.known, *track.passed)
    return any(_identity(each) == _identity(found) for each in shown)


def _take(track: _Track, found: Object | None) -> None:
    """Drop the states up to the reading; later ones belong to the next reading."""
    wanted = _identity(found)
    places = [place for place, each in enumerate(track.passed) if _identity(each) == wanted]
    if places:
        del track.passed[: places[-1] + 1]
    elif found is None and track.known is None:
        track.passed.clear()
    track.was_deleted = track.known is None and found is not None
