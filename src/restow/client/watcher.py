"""Watches: the events of a resource from a version on, over streams that end and break.

A stream ends every few minutes, and whenever a server stops. The next one resumes after the last
version, so that no event is lost or repeated. When that version is compacted the server returns
410, and `Expired` is raised: the caller must list again.

A watch needs an initial version. Without one, a server sends all existing objects in the order of
their names, and none of their versions can be resumed from.

Not here: lists, and the use of the objects (`informer`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from restow.aio import Backoff
from restow.apimachinery.status import Expired
from restow.apimachinery.status_decoder import status_from_dict
from restow.apimachinery.status_error import StatusError
from restow.client.caller import Caller
from restow.client.errors import ConnectionFailed
from restow.client.objects import Object, ObjectKey, key_of, version_of
from restow.client.paths import JSON, PARTIAL, with_query

# A stream that ends earlier without an event counts as a failure, to avoid a busy loop.
_STREAM_SECONDS_MIN: Final = 1.0
# How late a server may end a stream before the connection counts as dead.
_GRACE_SECONDS: Final = 30.0
_ERROR: Final = "ERROR"
_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=15, jitter=0.5)


class EventType(StrEnum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """No change; all events up to this version have been sent."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event; the object of a bookmark has only a version."""

    type: EventType
    object: Object

    @property
    def key(self) -> ObjectKey:
        return key_of(self.object)

    @property
    def resource_version(self) -> str:
        return version_of(self.object)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPolicy:
    """The duration of a stream, and the retries after failures."""

    stream_seconds_min: int = 300
    stream_seconds_max: int = 600
    """Each stream has a random duration in between, so that watches do not all end at once."""
    failures_max: int = 10
    """Consecutive failures; then the error is raised."""
    backoff: Backoff = _BACKOFF

    def __post_init__(self) -> None:
        if not 1 <= self.stream_seconds_min <= self.stream_seconds_max or self.failures_max < 0:
            raise ValueError("1 <= stream_seconds_min <= stream_seconds_max, failures_max >= 0")


class Watcher:
    """One watch, with the resource version that it resumes from."""

    def __init__(
        self,
        caller: Caller,
        path: str,
        *,
        query: dict[str, str],
        resource_version: str,
        policy: WatchPolicy,
        metadata_only: bool,
    ) -> None:
        if resource_version in {"", "0"}:
            raise ValueError("a watch needs the resource version of a list")
        self.version = resource_version
        """All events up to this version have been delivered."""
        self._caller = caller
        self._path = path
        self._query = query
        self._policy = policy
        self._accept = PARTIAL if metadata_only else JSON
        self._failures = 0

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Iterate over events without end; Expired if the server cannot resume from the version."""
        clock = self._caller.runtime.clock
        while True:
            began, before = clock.monotonic(), self.version
            wait_seconds = 0.0
            try:
                async with aclosing(self._stream()) as stream:
                    async for event in stream:
                        self._failures = 0
                        yield event
                is_short = clock.monotonic() - began < _STREAM_SECONDS_MIN
                if is_short and self.version == before:
                    wait_seconds = self._next_wait(None)
            except (ConnectionFailed, StatusError) as error:
                wait_seconds = self._next_wait(error)
            await clock.sleep(wait_seconds)

    async def _stream(self) -> AsyncGenerator[WatchEvent, None]:
        randomness, policy = self._caller.runtime.randomness, self._policy
        spread = policy.stream_seconds_max - policy.stream_seconds_min + 1
        seconds = policy.stream_seconds_min + randomness.randrange(spread)
        query = self._query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(seconds),
        }
        async with self._caller.stream(
            with_query(self._path, query),
            accept=self._accept,
            seconds_max=seconds + _GRACE_SECONDS,
        ) as lines:
            async for line in lines:
                event = self._read(line)
                self.version = event.resource_version or self.version
                yield event

    def _read(self, line: bytes) -> WatchEvent:
        value = self._caller.decode(line)
        kind, found = value.get("type"), value.get("object")
        if not isinstance(found, dict):
            raise self._invalid_event(line)
        if kind == _ERROR:
            raise status_from_dict(found)
        try:
            return WatchEvent(EventType(str(kind)), found)
        except ValueError as error:
            raise self._invalid_event(line) from error

    def _next_wait(self, error: ConnectionFailed | StatusError | None) -> float:
        """The wait before the next stream; raises errors that a retry cannot resolve."""
        requested_seconds = 0.0
        if isinstance(error, StatusError):
            if error.code == 410:
                raise _expired(error) from error
            if error.code != 429 and error.code < 500:
                raise error
            requested_seconds = error.retry_after_seconds
        if error is not None and self._failures >= self._policy.failures_max:
            raise error
        # Streams that repeatedly end early get longer waits, but are not an error.
        randomness = self._caller.runtime.randomness
        wait_seconds = self._policy.backoff.delay_seconds(self._failures, randomness)
        self._failures += 1
        return max(wait_seconds, min(requested_seconds, self._policy.backoff.max_seconds))

    def _invalid_event(self, line: bytes) -> ConnectionFailed:
        return ConnectionFailed(
            self._caller.transport.server,
            f"the stream contains an invalid event: {line[:64]!r}",
            advice="Check that this is the address of a Kubernetes API server",
        )


def _expired(error: StatusError) -> Expired:
    """Convert to Expired: old servers send the reason Gone instead."""
    if isinstance(error, Expired):
        return error
    return Expired(error.message, details=error.details, causes=error.causes)
