"""Graceful stop: requests in progress are finished, streams end cleanly, nothing hangs."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import run_eagerly
from restow.httpserver import (
    HttpRequest,
    HttpResponse,
    PushStream,
    StreamWriter,
)
from tests.unit.httpserver.conftest import Harness, promised, request_bytes, shielded, until


async def test_a_stop_finishes_started_requests(harness: Harness) -> None:
    """Idle connections close, a partly sent request and a slow response are finished, streams
    end."""
    listener = await harness.start()
    ended: list[str] = []

    async def slow() -> HttpResponse:
        await asyncio.sleep(0.2)
        return HttpResponse(200, b"slow")

    def start(writer: StreamWriter) -> None:
        writer.write(b"event")
        writer.on_close = lambda: ended.append("stream")

    harness.app.paths["/slow"] = lambda _: slow()
    harness.app.paths["/watch"] = lambda _: PushStream(200, start)
    idle, slowly, half, watch = [await harness.connect() for _ in range(4)]
    idle.get()
    await idle.answer()
    slowly.get("/slow")
    half.send(request_bytes("POST", "/half", "Content-Length: 4") + b"ab")
    watch.get("/watch")
    await watch.reader.readuntil(b"\r\n\r\n")
    assert await watch.chunk() == b"event"
    await until(lambda: listener.counters.answers_pending == 1)
    stopping = asyncio.create_task(listener.stop(grace_seconds=5))
    assert await idle.rest() == b""
    half.send(b"cd")
    answer = await half.answer()
    assert (answer.body, answer.headers["connection"]) == (b"/half|abcd", "close")
    assert ended == []
    answer = await slowly.answer()
    assert (answer.body, answer.headers["connection"]) == (b"slow", "close")
    assert await watch.chunk() == b""
    assert await watch.rest() == b""
    assert ended == ["stream"]
    await stopping
    with pytest.raises(ConnectionRefusedError):
        await harness.connect()


async def test_a_stop_does_not_wait_for_ever(harness: Harness) -> None:
    """After the grace period, work is cancelled, futures released and connections closed."""
    listener = await harness.start()
    ended: list[str] = []

    async def stuck(name: str) -> HttpResponse:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)
        return HttpResponse(200)

    harness.app.paths["/task"] = lambda _: stuck("task")
    harness.app.paths["/shield"] = lambda request: shielded(request, stuck("shield"))
    harness.app.paths["/deferred"] = lambda _: promised(lambda: ended.append("deferred"))
    clients = []
    for path in ("/task", "/shield", "/deferred"):
        clients.append(await harness.connect())
        clients[-1].get(path)
    await until(lambda: listener.counters.answers_pending == 3)
    async with asyncio.timeout(5):
        await listener.stop(grace_seconds=0.1)
    assert sorted(ended) == ["deferred", "shield", "task"]
    for client in clients:
        assert await client.rest() == b""


@pytest.mark.parametrize("is_left", [False, True])
async def test_a_stop_cancels_writes_without_a_task(
    harness: Harness, caplog: pytest.LogCaptureFixture, *, is_left: bool
) -> None:
    """A write that waits for a future cleans up before the stop returns, whether its client is
    connected or not; work that it starts during cleanup is cancelled as well."""
    listener = await harness.start()
    ended: list[str] = []

    async def write() -> HttpResponse:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.Event().wait()
        finally:
            ended.append("closed")
        return HttpResponse(200)

    def begin(request: HttpRequest) -> object:
        request.is_shielded = True
        return run_eagerly(write())

    harness.app.paths["/"] = begin
    client = await harness.connect()
    client.get()
    await until(lambda: listener.counters.answers_pending == 1)
    if is_left:
        client.writer.close()
        await until(lambda: listener.counters.answers_pending == 0)
    assert ended == []
    async with asyncio.timeout(5):
        await listener.stop(grace_seconds=0.1)
    assert ended == ["cancelled", "closed"]
    assert "failed" not in caplog.text


async def test_a_stop_waits_for_the_write_of_a_disconnected_client(harness: Harness) -> None:
    """A write that waits for a future is finished in the grace period, like one with a task."""
    listener = await harness.start()
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended: list[str] = []

    async def write() -> HttpResponse:
        try:
            await committed
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        ended.append("done")
        return HttpResponse(200)

    def begin(request: HttpRequest) -> object:
        request.is_shielded = True
        return run_eagerly(write())

    harness.app.paths["/"] = begin
    client = await harness.connect()
    client.get()
    await until(lambda: listener.counters.answers_pending == 1)
    await client.close()
    await until(lambda: not listener.counters.connections_open)
    stopping = asyncio.ensure_future(listener.stop(grace_seconds=5))
    await asyncio.sleep(0.1)
    if not committed.done():
        committed.set_result(None)
    await stopping
    assert ended == ["done"]


async def test_streams_can_be_ended_before_the_stop(harness: Harness) -> None:
    """Watches can be ended before the stop; their connections stay usable."""
    listener = await harness.start()
    ended: list[HttpRequest] = []

    def watch(request: HttpRequest) -> PushStream:
        def start(writer: StreamWriter) -> None:
            writer.on_close = lambda: ended.append(request)

        return PushStream(200, start)

    harness.app.paths["/watch"] = watch
    client = await harness.connect()
    client.get("/watch")
    await client.reader.readuntil(b"\r\n\r\n")
    listener.end_streams()
    assert await client.chunk() == b""
    assert len(ended) == 1
    client.get("/after")
    assert (await client.answer()).body == b"/after|"


async def test_two_listeners_share_a_port(harness: Harness) -> None:
    """With `reuse_port` several processes may listen on one port."""
    first = await harness.start(reuse_port=True)
    from restow.aio import Runtime
    from restow.httpserver import Listener

    second = await Listener.start(
        harness.app, bind="127.0.0.1", port=first.port, runtime=Runtime.system(), reuse_port=True
    )
    harness.listeners.append(second)
    for _ in range(20):
        client = await harness.connect()
        client.get()
        assert (await client.answer()).status == 200
    totals = [listener.counters.connections_total for listener in (first, second)]
    assert sum(totals) == 20


def test_the_standard_loop_serves_too() -> None:
    """uvloop is optional: responses, streams and the stop work on asyncio's own loop."""
    from restow.aio import Runtime
    from restow.httpserver import Listener, PullStream
    from tests.unit.httpserver.conftest import Client

    def app(request: HttpRequest) -> HttpResponse | PullStream:
        if request.path == "/list":
            return PullStream(200, iter([b"x" * 100_000] * 50))
        return HttpResponse(200, b"ok")

    async def run() -> None:
        listener = await Listener.start(app, bind="127.0.0.1", port=0, runtime=Runtime.system())
        client = await Client.connect(listener.port)
        for path, size in (("/", 2), ("/list", 5_000_000), ("/", 2)):
            client.get(path)
            assert len((await client.answer()).body) == size
        await listener.stop()
        assert await client.rest() == b""
        await client.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(run())
