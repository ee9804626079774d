"""Watchers: each lists, watches, and resumes from its last resource version after interruptions.

Most watch one namespace, some all of them; each in one of the versions. Whenever a stream ends, the
next one is opened at another server, which may be behind the last one. Not here: checks of the
events (`watch_view`).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from restow.aio import SeededRandomness, SystemClock
from tests.support.api_client import JSON, WatchStream
from tests.support.fire.clients import Connections, Health, NoAnswer, NotSent, Target
from tests.support.fire.objects import END, NAMESPACES, WIDGETS
from tests.support.fire.record import Seen, Shown, Stretch, WatcherRecord
from tests.support.fire.writers import show

WATCHERS: Final = 100
OF_EVERYTHING: Final = 12
"""Number of watchers of all namespaces."""
STREAM_SECONDS: Final = (10, 30)
"""Minimum and maximum of `timeoutSeconds`."""
SILENCE_SECONDS_MAX: Final = 20.0
"""Timeout after which a watcher reconnects."""
AGAIN_SECONDS: Final = 0.1
_EXPIRED_STATUS: Final = 410


class _Expired(Exception):
    """410 (Gone): list again."""


class Watchers:
    """All watchers of a load."""

    def __init__(
        self,
        target: Target,
        *,
        tls: ssl.SSLContext,
        seed: int,
        has_record: bool = True,
        count: int = WATCHERS,
    ) -> None:
        self._has_record = has_record
        self._clock = SystemClock()
        self._health = Health(len(target.ports), self._clock)
        self._seed = seed
        self._target, self._tls = target, tls
        self.open = 0
        """Currently open streams."""
        self.records = [
            WatcherRecord(
                number=number,
                namespace="" if number < OF_EVERYTHING else NAMESPACES[number % len(NAMESPACES)],
            )
            for number in range(count)
        ]

    @property
    def begun(self) -> int:
        """Number of watchers that have begun."""
        return sum(bool(record.stretches) for record in self.records)

    @property
    def cuts(self) -> int:
        return sum(len(record.cuts) for record in self.records)

    @property
    def events(self) -> int:
        return sum(len(each.seen) for record in self.records for each in record.stretches)

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        return [
            group.create_task(self._watch(record), name=f"watcher {record.number}")
            for record in self.records
        ]

    async def _watch(self, record: WatcherRecord) -> None:
        chance = SeededRandomness(f"{self._seed}/watcher/{record.number}")
        connections = Connections(self._target, self._tls)
        path = WIDGETS.path_of(
            WIDGETS.versions[record.number % len(WIDGETS.versions)], record.namespace
        )
        server = record.number % len(self._target.ports)
        is_expired = True
        while not has_ended(record):
            try:
                if is_expired:
                    await self._list(connections, server, path, record)
                    is_expired = False
                seconds = STREAM_SECONDS[0] + chance.randrange(STREAM_SECONDS[1])
                query = f"timeoutSeconds={seconds}&allowWatchBookmarks=true"
                query += f"&resourceVersion={_position(record)}"
                await self._follow(await connections.watch(server, f"{path}?{query}"), record)
            except _Expired:
                is_expired = True
            except (NotSent, NoAnswer):
                self._health.avoid(server)
                await self._clock.sleep(chance.uniform(0, AGAIN_SECONDS))
            server = self._health.pick(chance)
        connections.abort()
        record.reached_end = True

    async def _list(
        self, connections: Connections, server: int, path: str, record: WatcherRecord
    ) -> None:
        reply = await connections.request(server, "GET", path, None, JSON)
        if reply.status != 200:
            record.refusals += 1
            raise NoAnswer
        note_list(record, reply.version, tuple(show(WIDGETS, item) for item in reply.json["items"]))

    async def _follow(self, stream: WatchStream, record: WatcherRecord) -> None:
        """Read until the stream ends, or is interrupted, or all is seen."""
        self.open += 1
        try:
            self._check_status(stream.status, record)
            while (event := await stream.next(seconds=SILENCE_SECONDS_MAX)) is not None:
                if event["type"] == "ERROR":
                    self._check_status(event["object"].get("code", 0), record)
                seen = _seen(event)
                note_event(record, seen)
                if has_ended(record):
                    return
                if not self._has_record:
                    del record.stretches[-1].seen[:-1]
        except (OSError, EOFError, ValueError, AssertionError):
            record.cuts.append(self._clock.monotonic())
        finally:
            self.open -= 1
            stream.abort()

    def _check_status(self, status: int, record: WatcherRecord) -> None:
        if status == _EXPIRED_STATUS:
            raise _Expired
        if status != 200:
            record.refusals += 1
            raise NoAnswer


def has_ended(record: WatcherRecord) -> bool:
    """Whether the last objects of all its namespaces were seen."""
    return record.ends >= ({record.namespace} if record.namespace else set(NAMESPACES))


def note_list(record: WatcherRecord, after: int, shown: tuple[Shown, ...]) -> None:
    """Begin a new stretch with a list."""
    record.stretches.append(Stretch(after=after, initial=shown))
    record.ends = {each.namespace for each in shown if each.name == END}


def note_event(record: WatcherRecord, seen: Seen) -> None:
    """Append to the current stretch."""
    record.stretches[-1].seen.append(seen)
    if seen.name == END:
        record.ends.add(seen.namespace)


def _position(record: WatcherRecord) -> int:
    """The resource version that a watcher has reached."""
    stretch = record.stretches[-1]
    return stretch.seen[-1].revision if stretch.seen else stretch.after


def _seen(event: dict[str, Any]) -> Seen:
    shown = event["object"]
    metadata = shown["metadata"]
    revision = int(metadata["resourceVersion"])
    if event["type"] == "BOOKMARK":
        return Seen("BOOKMARK", revision)
    return Seen(
        event["type"], revision, metadata["namespace"], metadata["name"], WIDGETS.content_of(shown)
    )
