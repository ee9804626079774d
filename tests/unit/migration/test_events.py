"""Events are recorded in the background, aggregated when repeated, and dropped if not writable."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.client import ApiClient, InProcessResponse, InProcessTransport
from restow.migration.events import (
    ATTEMPTS_MAX,
    EVENTS,
    MESSAGE_LENGTH_MAX,
    NAME_LENGTH_MAX,
    REMEMBERED_MAX,
    REPEAT_SECONDS,
    EventRecorder,
)
from tests.unit.migration.running_process import running_server

REQUEST: dict[str, Any] = {
    "apiVersion": "migration.k8s.io/v1alpha1",
    "kind": "StorageVersionMigration",
    "metadata": {"name": "pods-1", "uid": "u-1", "resourceVersion": "7"},
}
NAMES = GroupResource("", "events")


class Server:
    """A fake server that stores events and fails with the errors in `refuse`."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.refuse: list[Exception] = []
        self.requests = 0

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        self.requests += 1
        if self.refuse:
            error = self.refuse.pop(0)
            if not isinstance(error, status.StatusError):
                raise error
            return InProcessResponse(error.code, error.to_bytes())
        value = orjson.loads(body)
        if method == "POST":
            path = f"{target}/{value['metadata']['name']}"
            self.events[path] = value
            return InProcessResponse(201, body)
        assert method == "PATCH"
        if target not in self.events:
            error = status.not_found(NAMES, target)
            return InProcessResponse(error.code, error.to_bytes())
        self.events[target] |= value
        return InProcessResponse(200, orjson.dumps(self.events[target]))

    def messages(self) -> list[tuple[str, int]]:
        return [(each["message"], each["count"]) for each in self.events.values()]


@asynccontextmanager
async def recorder_of(
    server: Server, clock: SimulatedClock, **options: Any
) -> AsyncIterator[EventRecorder]:
    runtime = Runtime.simulated("events", clock=clock)
    client = ApiClient(InProcessTransport(server.handle), runtime=runtime)
    recorder = EventRecorder(client, component="restow-test", host="here", **options)
    async with runtime.tasks("test") as tasks:
        tasks.spawn("events", recorder.run())
        yield recorder


async def test_a_note_becomes_an_event() -> None:
    """A note becomes an Event in the namespace for cluster-scoped objects, with all its fields."""
    server, clock = Server(), SimulatedClock()
    async with recorder_of(server, clock) as recorder:
        recorder.event(REQUEST, "MigrationFailed", "2 objects", is_warning=True)
        await clock.settle()
    [(path, event)] = server.events.items()
    assert path.startswith("/api/v1/namespaces/default/events/pods-1.")
    assert event["type"] == "Warning"
    assert event["involvedObject"] == {
        "apiVersion": "migration.k8s.io/v1alpha1",
        "kind": "StorageVersionMigration",
        "name": "pods-1",
        "uid": "u-1",
        "resourceVersion": "7",
    }
    assert event["source"] == {"component": "restow-test", "host": "here"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2024-01-01T00:00:00Z"


async def test_notes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each event is also logged, and a Warning event is logged at the level WARNING."""
    caplog.set_level(logging.INFO)
    async with recorder_of(Server(), SimulatedClock()) as recorder:
        recorder.event(REQUEST, "MigrationStarted", "20 objects")
        recorder.event(REQUEST, "MigrationFailed", "2 objects", is_warning=True)
    logged = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert logged == [
        ("INFO", "pods-1: MigrationStarted: 20 objects"),
        ("WARNING", "pods-1: MigrationFailed: 2 objects"),
    ]


async def test_repeated_notes_are_counted() -> None:
    """A note repeated within ten minutes increments the count; another message, or a repeat after
    more time, makes a new Event."""
    server, clock = Server(), SimulatedClock()
    async with recorder_of(server, clock) as recorder:
        for message in ("a", "a", "b", "a"):
            recorder.event(REQUEST, "Reason", message)
            await clock.advance(1)
        assert server.messages() == [("a", 3), ("b", 1)]
        assert max(each["lastTimestamp"] for each in server.events.values()) > min(
            each["firstTimestamp"] for each in server.events.values()
        )
        await clock.advance(REPEAT_SECONDS)
        recorder.event(REQUEST, "Reason", "a")
        await clock.settle()
    assert server.messages() == [("a", 3), ("b", 1), ("a", 1)]


async def test_an_expired_event_is_recreated() -> None:
    """If the Event to increment has expired on the server, a new Event is created."""
    server, clock = Server(), SimulatedClock()
    async with recorder_of(server, clock) as recorder:
        recorder.event(REQUEST, "Reason", "a")
        await clock.settle()
        server.events.clear()
        recorder.event(REQUEST, "Reason", "a")
        await clock.settle()
    assert server.messages() == [("a", 1)]


async def test_the_caller_is_never_blocked() -> None:
    """Notes that exceed the queue are dropped and counted; the others are written."""
    server, clock, dropped = Server(), SimulatedClock(), []
    async with recorder_of(
        server, clock, notes_max=3, on_dropped=lambda: dropped.append(1)
    ) as recorder:
        for number in range(5):
            recorder.event(REQUEST, "Reason", str(number))
        await clock.settle()
        assert recorder.dropped == len(dropped) == 2
    assert server.messages() == [("0", 1), ("1", 1), ("2", 1)]


async def test_failed_writes_are_retried_a_few_times_and_then_dropped() -> None:
    """A busy server or a lost connection is retried; after a definite refusal, or too many retries,
    the note is dropped."""
    server, clock, written = Server(), SimulatedClock(), []
    async with recorder_of(server, clock, on_written=lambda: written.append(1)) as recorder:
        server.refuse = [status.unavailable("busy"), ConnectionResetError()]
        recorder.event(REQUEST, "Reason", "late")
        await clock.advance(60)
        assert server.messages() == [("late", 1)]
        server.refuse = [status.forbidden("no", resource=NAMES, name="")]
        recorder.event(REQUEST, "Reason", "forbidden")
        await clock.advance(60)
        server.refuse = [status.unavailable("busy") for _ in range(ATTEMPTS_MAX)]
        recorder.event(REQUEST, "Reason", "never")
        await clock.advance(60)
        recorder.event(REQUEST, "Reason", "after")
        await clock.settle()
        await recorder.settle()
        assert recorder.dropped == 2
    assert server.messages() == [("late", 1), ("after", 1)]
    assert len(written) == 2


async def test_a_closed_recorder_writes_queued_notes_only() -> None:
    """When a process stops, queued notes are written, and later notes are dropped."""
    server, clock = Server(), SimulatedClock()
    async with recorder_of(server, clock) as recorder:
        recorder.event(REQUEST, "Reason", "last")
        recorder.close()
        recorder.event(REQUEST, "Reason", "too late")
        await clock.settle()
        await recorder.settle()
        assert recorder.dropped == 1
    assert server.messages() == [("last", 1)]


async def test_remembered_events_are_bounded() -> None:
    """The number of Events whose count can still be incremented is bounded."""
    server, clock = Server(), SimulatedClock()
    async with recorder_of(server, clock, notes_max=2 * REMEMBERED_MAX) as recorder:
        for number in range(REMEMBERED_MAX + 10):
            recorder.event(REQUEST, "Reason", str(number))
        await clock.settle()
        assert len(recorder._written) == REMEMBERED_MAX
        assert len(server.events) == REMEMBERED_MAX + 10


@given(name=st.text(max_size=400), message=st.text(max_size=2000))
def test_any_note_becomes_an_event_within_the_limits(name: str, message: str) -> None:
    """For any object name and message, the Event's name and message are within the limits."""
    runtime = Runtime.simulated("events")
    client = ApiClient(InProcessTransport(Server().handle), runtime=runtime)
    recorder = EventRecorder(client, component="test")
    recorder.event({"metadata": {"name": name}}, "r" * 300, message)
    note = recorder._notes._items[0]
    assert len(note.key.message) <= MESSAGE_LENGTH_MAX
    suffix = 1 + 16
    assert len(note.key.name[: NAME_LENGTH_MAX - suffix]) + suffix <= NAME_LENGTH_MAX


async def test_a_real_server_accepts_events(tmp_path: Path) -> None:
    """A restow server accepts the Event as written, and the update of its count."""
    async with running_server(tmp_path) as config:
        runtime = Runtime.system()
        async with ApiClient.connect(config, runtime=runtime) as client:
            recorder = EventRecorder(client, component="restow-test", host="here")
            async with runtime.tasks("test") as tasks:
                tasks.spawn("events", recorder.run())
                for _ in range(3):
                    recorder.event(REQUEST, "MigrationStarted", "begun")
                await recorder.settle()
            events = [
                each
                async for each in client.items(EVENTS, namespace="default")
                if each["involvedObject"]["name"] == "pods-1"
            ]
    assert [(each["reason"], each["count"]) for each in events] == [("MigrationStarted", 3)]
