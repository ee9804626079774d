"""Events of controllers about objects, for users; written to the API asynchronously.

    recorder = EventRecorder(client, component="restow-migrator", host=hostname)
    tasks.spawn("events", recorder.run())
    recorder.event(request, "MigrationStarted", "20,000 objects")

`event` never waits and never fails: notes go through a bounded queue, and a note that does not fit
or that the server rejects is counted and dropped. The same note about the same object within ten
minutes increments the count of one Event.

Not here: which events there are, and their messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from restow.aio import Backoff, BoundedQueue, QueueClosed, QueueFull
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.client import (
    NO_RETRY,
    ApiClient,
    ConnectionFailed,
    Object,
    PatchType,
    key_of,
    metadata_of,
)
from restow.migration.times import time_text

EVENTS: Final = GroupVersionResource("", "v1", "events")
NAMESPACE_OF_CLUSTER_OBJECTS: Final = "default"
NOTES_MAX: Final = 256
"""Limit of the queue of notes to write."""
REMEMBERED_MAX: Final = 1_024
"""Limit of the Events whose count may still be incremented."""
REPEAT_SECONDS: Final = 600.0
ATTEMPTS_MAX: Final = 3
WRITE_SECONDS_MAX: Final = 10.0
MESSAGE_LENGTH_MAX: Final = 1_024
REASON_LENGTH_MAX: Final = 128
NAME_LENGTH_MAX: Final = 253
_NONCE_BYTES: Final = 8
_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=4, max_seconds=5, jitter=0.5)

logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """The fields by which two notes are the same."""

    namespace: str
    name: str
    uid: str
    api_version: str
    kind: str
    type: str
    reason: str
    message: str


class _Note(NamedTuple):
    key: _Key
    resource_version: str
    moment: datetime


@dataclass(slots=True)
class _Written:
    """The recorded properties of an Event in the API."""

    name: str
    count: int
    seen_seconds: float


class EventRecorder:
    """Writes Events of core/v1 as an `EventSink`. The caller owns the task of `run`."""

    def __init__(
        self,
        client: ApiClient,
        *,
        component: str,
        host: str = "",
        notes_max: int = NOTES_MAX,
        on_written: Callable[[], None] | None = None,
        on_dropped: Callable[[], None] | None = None,
    ) -> None:
        # `_write` retries a few times itself: an Event is not worth a long wait.
        self._client = client.with_retry(NO_RETRY)
        self._runtime = client.runtime
        self._component = component
        self._host = host
        self._on_written = on_written
        self._on_dropped = on_dropped
        self._notes: BoundedQueue[_Note] = BoundedQueue("events", items_max=notes_max)
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.dropped = 0

    def event(self, about: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Log a note and queue it to be written; it is dropped if the queue is full."""
        level = logging.WARNING if is_warning else logging.INFO
        logger.log(level, "%s: %s: %s", key_of(about).name, reason, message)
        note = _Note(
            _key(about, reason, message, "Warning" if is_warning else "Normal"),
            str(metadata_of(about).get("resourceVersion") or ""),
            self._runtime.clock.wall(),
        )
        try:
            self._notes.put_nowait(note)
        except (QueueFull, QueueClosed):
            self._drop(note, "the queue is full")
            return
        self._pending += 1
        self._idle.clear()

    async def run(self) -> None:
        """Write queued notes until cancelled."""
        while True:
            try:
                note = await self._notes.get()
            except QueueClosed:
                return
            try:
                await self._write(note)
            finally:
                self._pending -= 1
                if not self._pending:
                    self._idle.set()

    async def settle(self) -> None:
        """Return when every note queued so far was written or dropped."""
        await self._idle.wait()

    def close(self) -> None:
        """Accept no more notes; `run` returns after it has written the last."""
        self._notes.close()

    async def _write(self, note: _Note) -> None:
        clock, problem = self._runtime.clock, ""
        for failures in range(ATTEMPTS_MAX):
            try:
                async with clock.timeout(WRITE_SECONDS_MAX):
                    await self._write_once(note)
            except StatusError as error:
                problem = str(error)
                if error.code < 500 and error.code != 429:
                    break  # the server would reject it again
            except (ConnectionFailed, TimeoutError) as error:
                problem = str(error) or "timeout"
            else:
                if self._on_written is not None:
                    self._on_written()
                return
            await clock.sleep(_BACKOFF.delay_seconds(failures, self._runtime.randomness))
        self._drop(note, problem)

    async def _write_once(self, note: _Note) -> None:
        known = self._written.get(note.key)
        now = self._runtime.clock.monotonic()
        if known is not None and now - known.seen_seconds < REPEAT_SECONDS:
            try:
                await self._count_up(note, known)
            except NotFound:
                pass  # the Event has expired: create it again
            else:
                known.count += 1
                known.seen_seconds = now
                self._written.move_to_end(note.key)
                return
        name = await self._create(note)
        self._written[note.key] = _Written(name, 1, now)
        self._written.move_to_end(note.key)
        while len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)

    async def _count_up(self, note: _Note, known: _Written) -> None:
        change = {"count": known.count + 1, "lastTimestamp": time_text(note.moment)}
        await self._client.patch(
            EVENTS,
            known.name,
            change,
            patch_type=PatchType.MERGE,
            namespace=note.key.namespace or NAMESPACE_OF_CLUSTER_OBJECTS,
        )

    async def _create(self, note: _Note) -> str:
        # Each attempt has its own name: if a response was lost, the Event may exist already.
        suffix = f".{self._runtime.ids.nonce(_NONCE_BYTES)}"
        stem = note.key.name[: NAME_LENGTH_MAX - len(suffix)].rstrip(".-") or "event"
        namespace = note.key.namespace or NAMESPACE_OF_CLUSTER_OBJECTS
        body = self._body(note, namespace=namespace, name=stem + suffix)
        await self._client.create(EVENTS, body, namespace=namespace)
        return stem + suffix

    def _body(self, note: _Note, *, namespace: str, name: str) -> Object:
        key, moment = note.key, time_text(note.moment)
        involved = {
            "apiVersion": key.api_version,
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "uid": key.uid,
            "resourceVersion": note.resource_version,
        }
        source: dict[str, Any] = {"component": self._component, "host": self._host}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {field: value for field, value in source.items() if value},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }

    def _drop(self, note: _Note, why: str) -> None:
        self.dropped += 1
        logger.info(
            "dropped an event about %s %s (%s): %s: %s",
            note.key.kind,
            note.key.name,
            why,
            note.key.reason,
            note.key.message,
        )
        if self._on_dropped is not None:
            self._on_dropped()


def _key(about: Object, reason: str, message: str, kind_of_event: str) -> _Key:
    metadata = metadata_of(about)
    if len(message) > MESSAGE_LENGTH_MAX:
        message = f"{message[: MESSAGE_LENGTH_MAX - 1]}…"
    return _Key(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        api_version=str(about.get("apiVersion") or ""),
        kind=str(about.get("kind") or ""),
        type=kind_of_event,
        reason=reason[:REASON_LENGTH_MAX],
        message=message,
    )
