"""Pushed and pulled streams, with fast, slow, HTTP/1.0 and disconnected clients."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from restow.httpserver import (
    HttpRequest,
    HttpResponse,
    PullStream,
    PushStream,
    StreamWriter,
    encode_chunk,
    header_block,
)
from restow.httpserver.stream import decode_chunks
from tests.unit.httpserver.conftest import Client, Harness, request_bytes, short, until

JSON = header_block([("Content-Type", "application/json")])


class Watchers:
    """An application that opens a pushed stream for each request."""

    def __init__(self) -> None:
        self.writers: list[StreamWriter] = []
        self.closed: list[StreamWriter] = []

    def __call__(self, _: HttpRequest) -> PushStream:
        return PushStream(200, self._start, JSON)

    def _start(self, writer: StreamWriter) -> None:
        self.writers.append(writer)
        writer.on_close = lambda: self.closed.append(writer)


async def open_watch(client: Client) -> None:
    client.get("/watch")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked\r\n" in head


async def test_a_pushed_stream(harness: Harness) -> None:
    """The head is sent at once, a write is a chunk, the end is clean, the connection stays open."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    listener = await harness.start()
    client = await harness.connect()
    for _ in range(2):
        await open_watch(client)
        [writer] = watchers.writers
        assert listener.counters.streams_open == 1
        assert writer.write(b'{"type":"ADDED"}\n')
        assert await client.chunk() == b'{"type":"ADDED"}\n'
        assert writer.write(b"")
        writer.send_raw_chunk(encode_chunk(b"a") + encode_chunk(b"bc"))
        assert [await client.chunk() for _ in range(2)] == [b"a", b"bc"]
        writer.close()
        writer.close()
        assert not writer.write(b"late")
        assert await client.chunk() == b""
        assert watchers.closed == []
        watchers.writers.clear()
    client.get("/after")
    assert (await client.answer()).body == b"/after|"


async def test_one_chunk_for_many_streams(harness: Harness) -> None:
    """The same encoded chunk is sent to every stream, also to HTTP/1.0, without its framing."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    await harness.start()
    clients = [await harness.connect() for _ in range(20)]
    for client in clients:
        await open_watch(client)
    old = await harness.connect()
    old.send(b"GET /watch HTTP/1.0\r\n\r\n")
    head = await old.reader.readuntil(b"\r\n\r\n")
    assert b"chunked" not in head
    chunk = encode_chunk(b"event\n") + encode_chunk(b"another\n")
    for writer in watchers.writers:
        assert writer.send_raw_chunk(chunk)
        writer.close()
    for client in clients:
        assert [await client.chunk() for _ in range(3)] == [b"event\n", b"another\n", b""]
    assert await old.rest() == b"event\nanother\n"


def test_chunks_are_read_back() -> None:
    """`split_chunks` and `decode_chunks` return the data of encoded chunks."""
    parts = [b"a", b"b\r\n" * 20, b"c" * 4096]
    assert decode_chunks(b"".join(map(encode_chunk, parts))) == b"".join(parts)
    assert encode_chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


@pytest.mark.parametrize("junk", [b"", b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_a_watcher_that_leaves_is_noticed(harness: Harness, junk: bytes) -> None:
    """The producer is notified at once, even if the client had sent more bytes."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    listener = await harness.start()
    client = await harness.connect()
    await open_watch(client)
    client.send(junk)
    await asyncio.sleep(0.02)
    await client.close()
    await until(lambda: len(watchers.closed) == 1)
    assert watchers.writers[0].closed
    assert not watchers.writers[0].write(b"x")
    assert listener.counters.streams_open == 0
    assert harness.app.lines() == ["GET /watch"]


async def test_a_watcher_that_talks_too_much_is_cut(harness: Harness) -> None:
    """Bytes that a client sends during its stream are kept, up to a limit."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    await harness.start(limits=short(pipelined_bytes_max=1000))
    client = await harness.connect()
    await open_watch(client)
    client.send(request_bytes("GET", "/next"))
    await asyncio.sleep(0.02)
    watchers.writers[0].close()
    assert await client.chunk() == b""
    assert (await client.answer()).body == b"/next|"
    await open_watch(client)
    client.send(b"x" * 2000)
    await until(lambda: len(watchers.closed) == 1)


async def test_a_slow_watcher_pushes_back(harness: Harness) -> None:
    """A full transport asks for a pause, notifies when it can take more, and aborts a producer that
    ignores it."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    limits = short(write_high_water_bytes=64_000, write_bytes_max=1_000_000)
    await harness.start(limits=limits)
    client = await harness.connect()
    await open_watch(client)
    [writer] = watchers.writers
    drained: list[bool] = []
    writer.on_writable = lambda: drained.append(True)
    event = b"x" * 10_000
    sent = 0
    while writer.write(event):
        sent += 1
        await asyncio.sleep(0)
        assert sent < 10_000
    assert (writer.writable, drained) == (False, [])
    for _ in range(sent):
        assert await client.chunk() == event
    await until(lambda: bool(drained))
    assert (writer.writable, drained) == (True, [True])
    # From here on the producer ignores both the result and the flag.
    accepted = 0
    while not writer.closed and accepted < 10_000:
        writer.write(event)
        accepted += 1
        await asyncio.sleep(0)
    assert watchers.closed == [writer]
    assert accepted < 10_000


async def test_a_stalled_client_is_cut(harness: Harness) -> None:
    """A client that reads nothing for too long is disconnected, streaming or not."""
    watchers = Watchers()
    harness.app.paths["/watch"] = watchers
    harness.app.paths["/large"] = lambda _: HttpResponse(200, b"x" * 20_000_000)
    listener = await harness.start(limits=short(stall_seconds=0.2))
    watcher, reader = await harness.connect(), await harness.connect()
    await open_watch(watcher)
    reader.get("/large", "Connection: close")
    for client in (watcher, reader):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    [writer] = watchers.writers

    def fill() -> None:
        while writer.write(b"x" * 100_000):
            pass

    writer.on_writable = fill
    fill()
    await until(lambda: listener.counters.connections_open == 0)
    assert watchers.closed == [writer]


class Pieces:
    """Pieces of a list that count the requested ones, and record whether they were closed."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self.asked = 0
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.asked == self.count:
            raise StopIteration
        self.asked += 1
        return b"%06d" % self.asked + b"x" * (self.size - 6)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("sized", [False, True])
async def test_a_long_list_is_pulled(harness: Harness, sized: bool) -> None:
    """Pieces are requested only as the client reads; all arrive in order, then the end."""
    pieces = Pieces(300, 100_000)
    length = pieces.count * pieces.size if sized else None
    harness.app.paths["/list"] = lambda _: PullStream(200, iter(pieces), JSON, length=length)
    listener = await harness.start()
    client = await harness.connect()
    client.get("/list")
    await asyncio.sleep(0.1)
    assert pieces.asked < pieces.count
    assert listener.counters.sent_bytes < pieces.asked * 101_000
    answer = await client.answer()
    assert ("content-length" in answer.headers) == sized
    assert len(answer.body) == pieces.count * pieces.size
    assert answer.body[::100_000] == b"0" * 300
    assert answer.body[-100_000:-99_994] == b"000300"
    assert pieces.closed
    client.get("/after")
    assert (await client.answer()).body == b"/after|"


async def test_others_are_served_during_a_list(harness: Harness) -> None:
    """Pieces that take long to make, of several lists at once, do not block the event loop: one
    iteration has time for a piece or two, and requests of others are handled meanwhile."""
    made = 0

    def pieces() -> Iterator[bytes]:
        nonlocal made
        for _ in range(40):
            time.sleep(0.003)
            made += 1
            yield b"x"

    harness.app.paths["/list"] = lambda _: PullStream(200, pieces(), JSON)
    await harness.start()
    lists = [await harness.connect() for _ in range(5)]
    other = await harness.connect()
    for client in lists:
        client.get("/list")
    at_once: list[int] = []
    while made < 200:
        before = made
        await asyncio.sleep(0)
        at_once.append(made - before)
        if len(at_once) == 20:
            other.get("/other")
            assert (await other.answer()).body == b"/other|"
            assert made < 200
    assert max(at_once) <= 2
    for client in lists:
        assert (await client.answer()).body == b"x" * 40


@pytest.mark.parametrize("seconds", [1e-9, 1.0])
async def test_a_stream_that_goes_on_lets_others_have_their_turn(
    harness: Harness, seconds: float
) -> None:
    """A producer that always has more does one step per turn, never one inside another, and a
    request of another user is handled meanwhile; it stops when its stream ends."""
    steps, depths = 0, [0]

    def stream(request: HttpRequest) -> PushStream:
        request.peer.admit("producer", is_privileged=False)
        return PushStream(200, go_on)

    def go_on(writer: StreamWriter) -> None:
        nonlocal steps
        if writer.closed:
            return
        steps += 1
        depths.append(depths[-1] + 1)
        writer.do_later(lambda: go_on(writer))
        depths.append(depths[-1] - 1)

    def other(request: HttpRequest) -> HttpResponse:
        request.peer.admit("other", is_privileged=False)
        return HttpResponse(200, b"%d" % steps)

    harness.app.paths |= {"/watch": stream, "/other": other}
    listener = await harness.start(limits=short(authenticated_work_seconds=seconds))
    producer, client = await harness.connect(), await harness.connect()
    await open_watch(producer)
    before = 0
    for _ in range(3):
        client.get("/other")
        now = int((await client.answer()).body)
        assert now > before
        before = now
    assert max(depths) == 1
    await producer.close()
    await until(lambda: listener.counters.streams_open == 0)
    await until(lambda: not len(listener._shared.work.authenticated))


async def test_a_client_that_leaves_between_two_steps(harness: Harness) -> None:
    """A list that waits for the budget of streams is closed with its connection."""
    closed: list[bool] = []

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                time.sleep(0.003)
                yield b""
        finally:
            closed.append(True)

    harness.app.paths["/list"] = lambda _: PullStream(200, pieces(), JSON)
    await harness.start()
    client = await harness.connect()
    client.get("/list")
    await client.reader.readuntil(b"\r\n\r\n")
    client.writer.transport.abort()
    await until(lambda: closed == [True])


async def test_short_lists_pipelined(harness: Harness) -> None:
    """Many pulled streams that end at once, one after the other, neither recurse nor mix."""
    harness.app.paths["/list"] = lambda _: PullStream(200, iter([b"a", b"", b"b"]), JSON)
    await harness.start()
    client = await harness.connect()
    client.send(request_bytes("GET", "/list") * 2000)
    for _ in range(2000):
        assert (await client.answer()).body == b"ab"


async def test_a_list_for_an_old_client(harness: Harness) -> None:
    """HTTP/1.0 gets plain bytes, ended by the close; HEAD gets no piece at all."""
    made = [Pieces(3, 1000), Pieces(3, 1000)]
    todo = iter(made)
    harness.app.paths["/list"] = lambda _: PullStream(200, iter(next(todo)), JSON)
    await harness.start()
    client = await harness.connect()
    client.send(b"GET /list HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert len(await client.rest()) == 3000
    client = await harness.connect()
    client.send(request_bytes("HEAD", "/list") + request_bytes("GET", "/after"))
    assert (await client.answer(head_only=True)).headers["transfer-encoding"] == "chunked"
    assert (await client.answer()).body == b"/after|"
    assert [pieces.asked for pieces in made] == [3, 0]
    assert all(pieces.closed for pieces in made)


async def test_a_client_that_leaves_in_a_list(harness: Harness) -> None:
    """The producer is closed, and no further piece is requested."""
    pieces = Pieces(100_000, 100_000)
    harness.app.paths["/list"] = lambda _: PullStream(200, iter(pieces), JSON)
    await harness.start()
    client = await harness.connect()
    client.get("/list")
    await client.reader.readexactly(200_000)
    client.writer.transport.abort()
    await until(lambda: pieces.closed)
    assert pieces.asked < 1000


async def test_a_stream_that_fails_is_seen_to_fail(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """An error after the head aborts the connection instead of ending the body."""

    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("lost")

    def start(writer: StreamWriter) -> None:
        writer.write(b"a")
        raise RuntimeError("lost")

    def abort(writer: StreamWriter) -> None:
        writer.abort()

    harness.app.paths["/pull"] = lambda _: PullStream(200, pieces())
    harness.app.paths["/push"] = lambda _: PushStream(200, start)
    harness.app.paths["/abort"] = lambda _: PushStream(200, abort)
    await harness.start()
    for path in ("/pull", "/push", "/abort"):
        client = await harness.connect()
        client.get(path)
        assert not (await client.rest()).endswith(b"0\r\n\r\n")
    assert caplog.text.count("RuntimeError: lost") == 2


async def test_a_stream_after_waiting(harness: Harness) -> None:
    """A pending response may turn out to be a stream."""

    async def open_later() -> PullStream:
        await asyncio.sleep(0.01)
        return PullStream(200, iter([b"x"] * 3))

    harness.app.paths["/list"] = lambda _: open_later()
    await harness.start()
    client = await harness.connect()
    client.send(request_bytes("GET", "/list") * 2)
    assert [(await client.answer()).body for _ in range(2)] == [b"xxx", b"xxx"]


class Producer:
    """Holds its writer, as a watch does, and is held by it."""

    def __init__(self, writer: StreamWriter) -> None:
        self.writer = writer
        self.left = False
        writer.on_close, writer.on_writable = self.leave, self.go_on

    def leave(self) -> None:
        self.left = True

    def go_on(self) -> None:
        """The client can take more."""


class Connection:
    """The connection of a stream."""

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None: ...

    def stream_abort(self) -> None: ...


@pytest.mark.parametrize("end", [StreamWriter.close, StreamWriter.abort, StreamWriter.cut])
def test_an_ended_stream_is_freed(end: Callable[[StreamWriter], None]) -> None:
    """However it ends, no part of it is left for cycle collection: the connection with its buffers
    would be kept too, and in a server that can be for hours."""
    connection = Connection()
    producer = Producer(StreamWriter(connection, lambda _: None, chunked=True))
    gone = weakref.ref(connection)
    del connection
    gc.disable()
    try:
        end(producer.writer)
        assert producer.left is (end is StreamWriter.cut)
        assert gone() is not None, "the producer still has the writer"
        del producer
        assert gone() is None
    finally:
        gc.enable()
