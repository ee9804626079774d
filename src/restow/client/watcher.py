"""Watches: the events of a resource from a version on, across streams that end and break.

A stream ends every few minutes, and whenever a server stops. The next one goes on after the last
version seen, so nothing is lost and nothing comes twice. When the server has forgotten that version
it says 410, and `Expired` tells the caller to list anew.

A watch needs a version to begin with. Without one a server would send what exists in the order of
names, and no version of it would be a place to go on from.

Not here: lists, and what becomes of the objects (`informer`).
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

# A stream that ends before this, without an event, counts as a failure: do not spin.
_STREAM_SECONDS_MIN: Final = 1.0
# How long a server may be late in ending a stream before it counts as dead.
_GRACE_SECONDS: Final = 30.0
_ERROR: Final = "ERROR"
_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=15, jitter=0.5)


class EventType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing, but all before this version has been told."""


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
    """How long a stream lasts, and how often one that failed is opened again."""

    stream_seconds_min: int = 300
    stream_seconds_max: int = 600
    """Each stream gets a time between, so that watches do not all end at once."""
    failures_max: int = 10
    """In a row; then the error goes to the caller."""
    backoff: Backoff = _BACKOFF

    def __post_init__(self) -> None:
        if not 1 <= self.stream_seconds_min <= self.stream_seconds_max or self.failures_max < 0:
            raise ValueError("1 <= stream_seconds_min <= stream_seconds_max, failures_max >= 0")


class Watcher:
    """One watch: where it is, and how it goes on."""

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
            raise ValueError("a watch begins at the version of a list")
        self.version = resource_version
        """All up to here has been told."""
        self._caller = caller
        self._path = path
        self._query = query
        self._policy = policy
        self._accept = PARTIAL if metadata_only else JSON
        self._failures = 0

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """The events, without end; Expired when the server cannot go on from the version."""
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
            raise self._no_event(line)
        if kind == _ERROR:
            raise status_from_dict(found)
        try:
            return WatchEvent(EventType(str(kind)), found)
        except ValueError as error:
            raise self._no_event(line) from error

    def _next_wait(self, error: ConnectionFailed | StatusError | None) -> float:
        """How long to wait before the next stream; raises what waiting does not mend."""
        asked_seconds = 0.0
        if isinstance(error, StatusError):
            if error.code == 410:
                raise _expired(error) from error
            if error.code != 429 and error.code < 500:
                raise error
            asked_seconds = error.retry_after_seconds
        if error is not None and self._failures >= self._policy.failures_max:
            raise error
        # A stream that ends early again and again waits longer and longer, but is no error.
        randomness = self._caller.runtime.randomness
        wait_seconds = self._policy.backoff.delay_seconds(self._failures, randomness)
        self._failures += 1
        return max(wait_seconds, min(asked_seconds, self._policy.backoff.max_seconds))

    def _no_event(self, line: bytes) -> ConnectionFailed:
        return ConnectionFailed(
            self._caller.transport.server,
            f"the stream has something that is no event: {line[:64]!r}",
            advice="Check that the address is that of a Kubernetes API server",
        )


def _expired(error: StatusError) -> Expired:
    """Old servers say Gone where newer ones say Expired."""
    if isinstance(error, Expired):
        return error
    return Expired(error.message, details=error.details, causes=error.causes)
