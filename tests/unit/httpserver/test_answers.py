"""Responses that take time: their order, disconnects of the client, and deadlines."""

from __future__ import annotations

import asyncio
import socket

import pytest

from restow.aio import SystemClock, run_eagerly
from restow.httpserver import Answer, HttpRequest, HttpResponse, PushStream, Tunnel
from tests.unit.httpserver.conftest import (
    Harness,
    promised,
    request_bytes,
    shielded,
    short,
    until,
)


async def later(body: bytes, seconds: float = 0.01) -> HttpResponse:
    await asyncio.sleep(seconds)
    return HttpResponse(200, body)


async def test_pipelined_answers_keep_their_order(harness: Harness) -> None:
    """Synchronous responses, and those of tasks and of completed futures, are sent in request
    order."""
    await harness.start()
    app = harness.app

    def known(request: HttpRequest) -> asyncio.Future[Answer]:
        answer = promised()
        answer.set_result(HttpResponse(200, request.path.encode()))
        return answer

    kinds = {
        "now": lambda request: HttpResponse(200, request.path.encode()),
        "task": lambda request: later(request.path.encode()),
        "shield": lambda request: shielded(request, later(request.path.encode())),
        "known": known,
    }
    paths = []
    for number in range(12):
        for kind, act in kinds.items():
            path = f"/{kind}/{number}"
            app.paths[path] = act
            paths.append(path)
    client = await harness.connect()
    client.send(b"".join(request_bytes("GET", path) for path in paths))
    for path in paths:
        assert (await client.answer()).body == path.encode()
    assert [request.path for request in app.seen] == paths


async def test_one_request_at_a_time(harness: Harness) -> None:
    """The next request of a connection is not started before the response to the previous one."""
    await harness.start()
    waiting: list[asyncio.Future[Answer]] = []

    def wait(_: HttpRequest) -> asyncio.Future[Answer]:
        waiting.append(promised())
        return waiting[-1]

    harness.app.paths["/wait"] = wait
    client = await harness.connect()
    client.send(request_bytes("GET", "/wait") * 2 + request_bytes("POST", "/", body=b"x" * 300_000))
    for number in range(2):
        await until(lambda: len(waiting) > number)  # noqa: B023  (used at once)
        await asyncio.sleep(0.02)
        assert len(harness.app.seen) == number + 1
        waiting[number].set_result(HttpResponse(200, b"%d" % number))
        assert (await client.answer()).body == b"%d" % number
    assert len((await client.answer()).body) == 300_002


async def test_pipelined_requests_that_take_long(harness: Harness) -> None:
    """When a request has taken long, the next one of its connection waits for other connections:
    each starts in a separate iteration of the event loop."""
    iterations = 0
    seen: list[int] = []

    def count() -> None:
        nonlocal iterations
        iterations += 1
        if len(seen) < 5:
            asyncio.get_running_loop().call_soon(count)

    def take_long(request: HttpRequest) -> HttpResponse:
        request.peer.admit("someone", is_privileged=False)
        seen.append(iterations)
        return HttpResponse(200)

    harness.app.paths["/"] = take_long
    await harness.start(limits=short(pipelined_seconds=1e-9, authenticated_work_seconds=1e-9))
    client = await harness.connect()
    count()
    client.send(request_bytes("GET", "/") * 5)
    for _ in range(5):
        assert (await client.answer()).status == 200
    assert len(set(seen)) == 5


async def test_many_pipelined_requests(harness: Harness) -> None:
    """Thousands at once are all handled, in steps between which other connections are served."""
    await harness.start()
    client, other = await harness.connect(), await harness.connect()
    count = 5_000
    client.send(b"".join(request_bytes("GET", f"/{number}") for number in range(count)))
    other.get("/other")
    assert (await other.answer()).body == b"/other|"
    for number in range(count):
        assert (await client.answer()).body == b"/%d|" % number


async def test_a_client_that_does_not_read_is_not_served_on(harness: Harness) -> None:
    """Unread responses stop later requests; when they are read, the others follow."""
    await harness.start(limits=short(write_high_water_bytes=100_000, write_bytes_max=100_000))
    harness.app.paths["/"] = lambda _: HttpResponse(200, b"x" * 1_000_000)
    client = await harness.connect()
    count = 60
    client.send(request_bytes("GET", "/") * count)
    await asyncio.sleep(0.2)
    assert len(harness.app.seen) < count // 2
    for _ in range(count):
        assert len((await client.answer()).body) == 1_000_000


@pytest.mark.parametrize("half", [False, True])
async def test_a_client_that_leaves_ends_its_work(harness: Harness, half: bool) -> None:
    """A task is cancelled and a future released when the client closes, fully or by half."""
    listener = await harness.start()
    ended: list[str] = []

    async def work() -> HttpResponse:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("task")
            raise
        return HttpResponse(200)

    harness.app.paths["/task"] = lambda _: work()
    harness.app.paths["/deferred"] = lambda _: promised(lambda: ended.append("deferred"))
    for path in ("/task", "/deferred"):
        client = await harness.connect()
        client.get(path)
        await until(lambda: listener.counters.answers_pending == 1)
        if half:
            client.writer.write_eof()
        else:
            client.writer.close()
        await until(lambda: listener.counters.answers_pending == 0)
    await until(lambda: ended == ["task", "deferred"])


async def test_shielded_work_is_finished(harness: Harness) -> None:
    """A write that was started continues after its client has disconnected."""
    listener = await harness.start()
    done = asyncio.Event()

    async def write() -> HttpResponse:
        await asyncio.sleep(0.05)
        done.set()
        return HttpResponse(201)

    harness.app.paths["/"] = lambda request: shielded(request, write())
    client = await harness.connect()
    client.get()
    await until(lambda: listener.counters.answers_pending == 1)
    await client.close()
    await until(lambda: listener.counters.connections_open == 0)
    async with asyncio.timeout(5):
        await done.wait()


async def test_too_many_answers_are_waited_for(harness: Harness) -> None:
    """Over the limit on pending responses a request gets a 503 with Retry-After."""
    await harness.start(limits=short(unauthenticated_answers_pending_max=1))
    harness.app.paths["/"] = lambda _: later(b"late", 0.3)
    first, second = await harness.connect(), await harness.connect()
    first.get()
    await until(lambda: len(harness.app.seen) == 1)
    second.get()
    answer = await second.answer()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await first.answer()).body == b"late"


async def test_a_forgotten_answer(harness: Harness) -> None:
    """A response that never comes is replaced by a 504, and its work is cancelled."""
    await harness.start(limits=short(answer_seconds=0.1))
    abandoned: list[bool] = []
    harness.app.paths["/"] = lambda _: promised(lambda: abandoned.append(True))
    client = await harness.connect()
    client.get()
    assert (await client.answer()).status == 504
    await until(lambda: abandoned == [True])
    assert await client.rest() == b""


@pytest.mark.parametrize("kind", ["stream", "tunnel"])
async def test_an_abandoned_answer_is_closed(harness: Harness, kind: str) -> None:
    """A stream or a tunnel that is returned after its client has disconnected is closed, so that it
    releases its resources."""
    counters = (await harness.start()).counters
    answer = promised()
    harness.app.paths["/"] = lambda request: shielded(request, answer)
    client = await harness.connect()
    client.get()
    await until(lambda: counters.answers_pending == 1)
    client.writer.close()
    await until(lambda: counters.answers_pending == 0)
    closed: list[str] = []
    answers: dict[str, Answer] = {
        "stream": PushStream(200, lambda _: None, on_dropped=lambda: closed.append("stream")),
        "tunnel": Tunnel(lambda _: None, b"", on_dropped=lambda: closed.append("tunnel")),
    }
    answer.set_result(answers[kind])
    await until(lambda: closed == [kind])


async def test_started_work_is_cancelled_with_its_client(harness: Harness) -> None:
    """A coroutine that ran until its first await is cancelled and cleans up if its client
    disconnects before its task has started; a shielded one continues."""
    await harness.start()
    ended: list[str] = []

    async def work(name: str) -> HttpResponse:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append(f"{name} cancelled")
            raise
        ended.append(f"{name} done")
        return HttpResponse(200)

    def leave(request: HttpRequest) -> object:
        asyncio.get_running_loop().call_soon(harness.connection.abort)
        request.is_shielded = request.path == "/shielded"
        return run_eagerly(work(request.path))

    for path in ("/task", "/shielded"):
        harness.app.paths[path] = leave
        client = await harness.connect()
        client.get(path)
        assert await client.rest() == b""
    await until(lambda: ended == ["/task cancelled", "/shielded done"])


async def test_a_write_that_awaits_futures_has_no_task(harness: Harness) -> None:
    """A shielded coroutine is resumed after each await; it gets a task when something in it
    requires one, and its errors become responses."""
    await harness.start()
    tasks: list[object] = []
    futures: list[asyncio.Future[None]] = []

    async def wait() -> None:
        futures.append(asyncio.get_running_loop().create_future())
        asyncio.get_running_loop().call_later(0.01, futures[-1].set_result, None)
        await futures[-1]
        tasks.append(asyncio.current_task())

    async def work(path: str) -> HttpResponse:
        await wait()
        await wait()
        if path == "/task":
            async with SystemClock().timeout(5):
                await wait()
        if path == "/error":
            raise LookupError("after the second wait")
        return HttpResponse(200, path.encode())

    def begin(request: HttpRequest) -> object:
        request.is_shielded = True
        return run_eagerly(work(request.path))

    client = await harness.connect()
    for path, has_task, status in (
        ("/write", [False] * 2, 200),
        ("/task", [False, False, True], 200),
        ("/error", [False] * 2, 500),
        ("/write", [False] * 2, 200),
    ):
        tasks.clear()
        harness.app.paths[path] = begin
        client.get(path)
        assert (await client.answer()).status == status
        assert [each is not None for each in tasks] == has_task


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 408),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n", 408),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n", 408),
    ],
)
async def test_slow_senders_have_a_deadline(harness: Harness, begin: bytes, status: int) -> None:
    """A head or body that arrives too slowly is rejected at the deadline, however steadily it
    arrives."""
    await harness.start(limits=short(head_seconds=0.2, body_seconds=0.2, idle_seconds=5))
    client = await harness.connect()
    client.send(begin)

    async def trickle() -> None:
        while True:
            client.send(b"a")
            await asyncio.sleep(0.02)

    trickling = asyncio.create_task(trickle())
    try:
        assert (await client.answer()).status == status
    finally:
        trickling.cancel()
    assert harness.app.seen == []


async def test_silent_and_idle_connections_are_closed(harness: Harness) -> None:
    """A connection without any request, and one that is idle after a request, are closed
    silently."""
    await harness.start(limits=short(head_seconds=0.1, idle_seconds=0.2))
    silent, idle, blank = [await harness.connect() for _ in range(3)]
    idle.get()
    assert (await idle.answer()).status == 200
    blank.send(b"\r\n")
    for client in (silent, idle, blank):
        assert await client.rest() == b""


async def test_an_unfinished_request_is_refused(harness: Harness) -> None:
    """A client that stops in the middle of a request gets a 400, and the application is not
    called."""
    await harness.start()
    for data in (b"GET / HT", request_bytes("POST", "/", "Content-Length: 5") + b"abc"):
        client = await harness.connect()
        client.send(data)
        await asyncio.sleep(0.02)
        client.writer.write_eof()
        assert (await client.answer()).status == 400
    assert harness.app.seen == []


async def test_work_that_was_cancelled_elsewhere(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """If something that a task awaits is cancelled elsewhere, the client gets an error at once."""
    await harness.start()

    async def work() -> HttpResponse:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        return HttpResponse(200)

    harness.app.paths["/"] = lambda _: work()
    client = await harness.connect()
    client.get()
    assert (await client.answer()).status == 500
    assert "CancelledError" in caplog.text


async def test_an_error_response_with_a_failing_body(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """An error response is sent even if making its body fails."""

    def form(status: int, message: str) -> tuple[str, bytes]:
        raise RuntimeError("no form")

    await harness.start(error_body=form, limits=short(head_seconds=0.1))
    client = await harness.connect()
    client.send(b"GET / HTT")
    assert (await client.answer()).status == 408
    assert "no form" in caplog.text


async def test_keepalive_detects_vanished_peers(harness: Harness) -> None:
    """Connections use TCP keepalive, so that an open watch does not outlive its client."""
    await harness.start()
    client = await harness.connect()
    client.get()
    await client.answer()
    plug = harness.connection._transport.get_extra_info("socket")
    assert plug.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


@pytest.mark.parametrize("seconds", [0.05, -1.0])
async def test_an_answer_can_have_a_deadline_of_its_own(harness: Harness, seconds: float) -> None:
    """A late response is replaced by a 504, without waiting for the periodic check; shielded work
    continues, and its result is dropped."""
    await harness.start()
    ended: list[str] = []

    async def work(name: str) -> HttpResponse:
        try:
            await asyncio.sleep(0.3)
            ended.append(f"{name} done")
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise
        return HttpResponse(200)

    def due(request: HttpRequest) -> None:
        request.answer_by_seconds = request.received_seconds + seconds

    def task(request: HttpRequest) -> object:
        due(request)
        return work("task")

    def write(request: HttpRequest) -> object:
        due(request)
        return shielded(request, work("shielded"))

    harness.app.paths.update({"/task": task, "/shielded": write})
    async with asyncio.timeout(0.25):
        for path in harness.app.paths:
            answer, rest = await harness.ask(request_bytes("GET", path))
            assert (answer.status, answer.headers["connection"], rest) == (504, "close", b"")
    await until(lambda: len(ended) == 2)
    assert sorted(ended) == ["shielded done", "task cancelled"]


async def test_an_answer_in_time_is_not_disturbed(harness: Harness) -> None:
    """A deadline that was met does not affect later requests."""
    await harness.start()

    def act(request: HttpRequest) -> object:
        request.answer_by_seconds = request.received_seconds + 0.2
        return later(b"in time")

    harness.app.paths["/"] = act
    client = await harness.connect()
    for _ in range(3):
        client.get("/")
        assert (await client.answer()).body == b"in time"
        await asyncio.sleep(0.1)
