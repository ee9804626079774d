"""Watches: no event is lost or repeated, over streams that end and break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import orjson
import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.client import (
    ApiClient,
    ClientLimits,
    ConnectionFailed,
    InProcessResponse,
    InProcessTransport,
    ListOptions,
    WatchEvent,
    WatchPolicy,
)
from tests.unit.client.fake_api import CONFIG_MAPS, FakeApi, Sent, new_client

PATH = "/api/v1/namespaces/n/configmaps"


async def take(
    client: ApiClient, count: int, *, version: str, policy: WatchPolicy | None = None
) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with client.watch(CONFIG_MAPS, resource_version=version, policy=policy) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_events() -> None:
    """The events after a version arrive in order, each with its type and its object."""
    api = FakeApi()
    client, clock = new_client(api)
    api.put(f"{PATH}/before", {})
    version = str(api.version)
    api.put(f"{PATH}/a", {})
    api.put(f"{PATH}/a", {})
    api.remove(f"{PATH}/a")
    found = await clock.run_until_done(take(client, 3, version=version))
    assert [(str(each.type), each.key.name) for each in found] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert api.watches == 0
    query = api.sent[-1].query
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_a_broken_stream_goes_on_where_it_was() -> None:
    """After a cut the watch resumes after the last event, so each event arrives once."""
    api = FakeApi()
    client, clock = new_client(api)
    found: list[int] = []

    async def work() -> None:
        async with client.watch(CONFIG_MAPS, resource_version="10") as events:
            async for event in events:
                found.append(int(event.resource_version))
                if len(found) == 20:
                    return

    async def change() -> None:
        for number in range(20):
            api.put(f"{PATH}/{number}", {})
            if number % 3 == 0:
                api.cut()
            await clock.sleep(0.1)

    await clock.run_until_done(asyncio.gather(work(), change()))
    assert found == list(range(11, 31))
    assert len(api.sent) > 3


async def test_bookmarks_move_the_version() -> None:
    """A watch resumes from a bookmark, though no object of the resource has that version."""
    sent: list[Sent] = []

    async def serve(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        sent.append(Sent.of(method, target, headers, body))

        async def stream() -> AsyncIterator[bytes]:
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}
            line = orjson.dumps(bookmark) + b"\n"
            for begin in range(len(line)):  # in pieces, as on a connection
                yield line[begin : begin + 1]
            yield b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"100"'  # truncated

        return InProcessResponse(200, stream())

    clock = SimulatedClock()
    client = ApiClient(
        InProcessTransport(serve), runtime=Runtime.simulated("bookmarks", clock=clock)
    )
    found = await clock.run_until_done(take(client, 2, version="5"))
    assert [each.resource_version for each in found] == ["99", "99"]
    assert [each.query["resourceVersion"] for each in sent] == ["5", "99"]


@pytest.mark.parametrize(
    "error",
    [status.expired("old"), status.gone("old"), status.resource_version_too_old(1, 2)],
    ids=["expired", "gone", "too-old"],
)
async def test_a_forgotten_version(error: status.StatusError) -> None:
    """A compacted version is Expired, as an event or as a response, with any reason."""
    api = FakeApi()
    client, clock = new_client(api)
    api.refuse = [error]
    with pytest.raises(status.Expired):
        await clock.run_until_done(take(client, 1, version="10"))
    api.compacted = 20
    with pytest.raises(status.Expired, match="too old resource version: 10"):
        await clock.run_until_done(take(client, 1, version="10"))


async def test_passing_failures_are_waited_out() -> None:
    """Failed and broken streams are reopened with backoff; Retry-After is respected."""
    api = FakeApi()
    client, clock = new_client(api)
    api.put(f"{PATH}/a", {})
    api.refuse = [
        ConnectionResetError(),
        status.too_many_requests(retry_after_seconds=9),
        status.internal("?"),
    ]
    assert len(await clock.run_until_done(take(client, 1, version="10"))) == 1
    assert clock.monotonic() >= 9


@pytest.mark.parametrize(
    "error", [status.unauthorized(), status.forbidden("no"), status.resource_not_found()]
)
async def test_lasting_failures_are_told(error: status.StatusError) -> None:
    """Errors that a retry cannot resolve are raised at once."""
    api = FakeApi()
    client, clock = new_client(api)
    api.refuse = [error]
    with pytest.raises(type(error)):
        await clock.run_until_done(take(client, 1, version="10"))
    assert clock.monotonic() == 0


async def test_failures_are_bounded() -> None:
    """After too many consecutive failures the last one is raised."""
    api = FakeApi()
    client, clock = new_client(api)
    api.refuse = [ConnectionResetError() for _ in range(9)]
    with pytest.raises(ConnectionFailed):
        await clock.run_until_done(
            take(client, 1, version="10", policy=WatchPolicy(failures_max=3))
        )
    assert len(api.sent) == 4


async def test_only_failures_in_a_row_count() -> None:
    """An event in between resets the count of failures."""
    api = FakeApi()
    client, clock = new_client(api)
    found: list[WatchEvent] = []

    async def work() -> None:
        policy = WatchPolicy(failures_max=2)
        async with client.watch(CONFIG_MAPS, resource_version="10", policy=policy) as events:
            async for event in events:
                found.append(event)
                api.refuse = [ConnectionResetError()]
                api.cut()
                if len(found) == 5:
                    return
                api.put(f"{PATH}/a", {})

    api.put(f"{PATH}/a", {})
    await clock.run_until_done(work())
    assert [each.resource_version for each in found] == ["11", "12", "13", "14", "15"]


async def test_streams_that_end_at_once_do_not_spin() -> None:
    """A server that ends every stream at once is queried with backoff, without an error."""
    count = 0

    async def serve(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        nonlocal count
        count += 1
        return InProcessResponse(200)

    clock = SimulatedClock()
    client = ApiClient(InProcessTransport(serve), runtime=Runtime.simulated("spin", clock=clock))
    with pytest.raises(TimeoutError):
        await clock.run_until_done(take(client, 1, version="5"), seconds_max=600)
    assert 30 < count < 120


async def test_a_silent_server_is_noticed() -> None:
    """A stream that exceeds its duration is closed and reopened."""
    opened = 0

    async def serve(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        nonlocal opened
        opened += 1

        async def stream() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        return InProcessResponse(200, stream())

    clock = SimulatedClock()
    client = ApiClient(InProcessTransport(serve), runtime=Runtime.simulated("mute", clock=clock))
    policy = WatchPolicy(stream_seconds_min=10, stream_seconds_max=10)
    with pytest.raises(TimeoutError):
        await clock.run_until_done(take(client, 1, version="5", policy=policy), seconds_max=130)
    assert opened == 4


@pytest.mark.parametrize(
    "line", [b"<html>", b'{"type":"ADDED"}', b'{"type":"WHAT","object":{}}', b"[]"]
)
async def test_invalid_events_are_connection_failures(line: bytes) -> None:
    """Lines that are not events are failures of the connection."""

    async def serve(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        return InProcessResponse(200, line + b"\n")

    clock = SimulatedClock()
    client = ApiClient(InProcessTransport(serve), runtime=Runtime.simulated("noise", clock=clock))
    policy = WatchPolicy(failures_max=0)
    with pytest.raises(ConnectionFailed):
        await clock.run_until_done(take(client, 1, version="5", policy=policy))


async def test_an_event_has_a_size_limit() -> None:
    """An event without an end is aborted."""
    clock = SimulatedClock()

    async def endless(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        return InProcessResponse(200, b"x" * 200)

    client = ApiClient(
        InProcessTransport(endless),
        runtime=Runtime.simulated("large", clock=clock),
        limits=ClientLimits(event_bytes_max=100),
    )
    with pytest.raises(ConnectionFailed, match="larger than 100 bytes"):
        await clock.run_until_done(take(client, 1, version="5", policy=WatchPolicy(failures_max=0)))


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_needs_a_version(version: str) -> None:
    """Without a version a watch could not be resumed, so it is rejected."""
    client, _ = new_client(FakeApi())
    with pytest.raises(ValueError, match="version of a list"):
        await take(client, 1, version=version)


async def test_selectors_go_along() -> None:
    """A watch has the selectors of its list, but neither its limit nor its version match."""
    api = FakeApi()
    client, clock = new_client(api)
    api.put(f"{PATH}/a", {})

    async def work() -> None:
        options = ListOptions(label_selector="a=b", limit=3, resource_version_match="Exact")
        async with client.watch(CONFIG_MAPS, resource_version="10", options=options) as events:
            await anext(events)

    await clock.run_until_done(work())
    assert api.sent[-1].query.keys() == {
        "labelSelector",
        "watch",
        "allowWatchBookmarks",
        "resourceVersion",
        "timeoutSeconds",
    }
