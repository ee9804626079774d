"""Valid requests: the application's view, and reuse of connections."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import InvariantViolation
from restow.httpserver import Headers, HttpRequest, HttpResponse, encode_chunk, header_block
from restow.httpserver.chunks import ChunkScanner
from tests.unit.httpserver.conftest import (
    Client,
    Harness,
    promised,
    request_bytes,
    short,
    until,
)


async def test_the_application_sees_the_request_as_sent(harness: Harness) -> None:
    """Path and query stay percent-encoded, header names become lower case, repeats are kept."""
    await harness.start()
    client = await harness.connect()
    lines = ("X-A:  one \t", "x-a: two", "Content-Type: application/json")
    client.send(request_bytes("POST", "/a%2Fb//c;d?x=%20&y", *lines, body=b"{}"))
    answer = await client.answer()
    [request] = harness.app.seen
    assert (request.method, request.path, request.query) == ("POST", "/a%2Fb//c;d", "x=%20&y")
    assert request.body == b"{}"
    assert request.headers.get("x-a") == "one"
    assert request.headers.get_all("x-a") == ["one", "two"]
    assert request.headers.get("X-A") is None
    assert "content-type" in request.headers
    assert dict(request.headers.items())["host"] == "localhost"
    assert request.peer.address == "127.0.0.1"
    assert request.peer.certificate is None
    assert answer.status == 200
    assert answer.headers["date"].endswith(" GMT")


async def test_a_connection_is_used_again(harness: Harness) -> None:
    """Many requests go through one connection, with equal, changed and then equal headers."""
    listener = await harness.start()
    client = await harness.connect()
    for path, line in (("/1", "A: x"), ("/2", "A: x"), ("/3", "A: y"), ("/4", "A: x")):
        client.get(path, line)
        assert (await client.answer()).body == path.encode() + b"|"
        assert harness.app.seen[-1].headers.get("a") == line[3:]
    assert listener.counters.connections_total == 1
    assert listener.counters.requests_total == 4
    assert len({request.peer.connection_id for request in harness.app.seen}) == 1


async def test_equal_header_lines_are_one_object(harness: Harness) -> None:
    """The memo of equal header lines is shared by later requests, even if bodies differ."""
    await harness.start()
    client = await harness.connect()
    for body in (b"", b"", b"{}", b'{"a":1}', b"x" * 1000):
        client.send(request_bytes("PUT" if body else "GET", "/", "A: x", body=body))
        assert (await client.answer()).body == b"/|" + body
    first, second, *writes = (request.headers for request in harness.app.seen)
    assert first is second
    assert len(set(map(id, writes))) == 1


@pytest.mark.parametrize("pause", [False, True])
async def test_bodies_by_length_and_by_chunks(harness: Harness, pause: bool) -> None:
    """Both framings yield the same body, sent at once or in pieces."""
    await harness.start()
    client = await harness.connect()
    body = b"line\r\n\r\nline" * 3000
    whole = request_bytes("POST", "/length", body=body)
    chunks = b"".join(
        b"%x;a=b\r\n%b\r\n" % (9000, body[i : i + 9000]) for i in (0, 9000, 18000, 27000)
    )
    head = request_bytes("POST", "/chunks", "Transfer-Encoding: chunked")
    data = whole + head + chunks + b"0\r\nHost: evil\r\n\r\n" + request_bytes("GET", "/last")
    step = 1111 if pause else len(data)
    for begin in range(0, len(data), step):
        client.send(data[begin : begin + step])
        if pause:
            await asyncio.sleep(0.001)
    for path, expected in (("/length", body), ("/chunks", body), ("/last", b"")):
        assert (await client.answer()).body == path.encode() + b"|" + expected
    assert harness.app.seen[1].headers.get_all("host") == ["localhost"]


async def test_continue_is_sent_once_and_only_when_waited_for(harness: Harness) -> None:
    """A client that expects 100-continue gets it; one that did not wait for it does not."""
    await harness.start()
    client = await harness.connect()
    client.send(request_bytes("POST", "/", "Expect: 100-continue", "Content-Length: 2"))
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"o")
    await asyncio.sleep(0.01)
    client.send(b"k")
    assert (await client.answer()).body == b"/|ok"
    client.send(request_bytes("POST", "/", "Expect: 100-continue", body=b"ok"))
    assert (await client.answer()).body == b"/|ok"


def chunk_bytes(body: bytes, size: int) -> bytes:
    cuts = [body[begin : begin + size] for begin in range(0, len(body), size)]
    return b"".join(map(encode_chunk, cuts)) + b"0\r\n\r\n"


@pytest.mark.parametrize("body", [b"\r\n\r\n" * 20_000, b"x" * 5_000])
async def test_the_gate_comes_before_the_chunks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """No byte of the chunked body of a rejected request is parsed, however much has arrived with
    the head; the body of an accepted one is read completely."""
    scanned: list[int] = []
    scan = ChunkScanner.scan

    def scan_noted(self: ChunkScanner, data: bytes, begin: int, *, chunks_max: int) -> int:
        scanned.append(begin)
        return scan(self, data, begin, chunks_max=chunks_max)

    monkeypatch.setattr(ChunkScanner, "scan", scan_noted)
    await harness.start(gate=lambda request: HttpResponse(403) if request.path == "/no" else None)
    chunks = chunk_bytes(body, 20)
    no, yes = (
        request_bytes("POST", path, "Transfer-Encoding: chunked") for path in ("/no", "/yes")
    )
    answer, _rest = await harness.ask(no + chunks)
    assert (answer.status, scanned) == (403, [])
    client = await harness.connect()
    client.send(yes + chunks + request_bytes("GET", "/after"))
    assert (await client.answer()).body == b"/yes|" + body
    assert (await client.answer()).body == b"/after|"


@pytest.mark.parametrize("known", [True, False])
async def test_others_are_served_while_chunks_are_read(harness: Harness, *, known: bool) -> None:
    """A body of very many chunks is read a few at a time, and other connections are served
    meanwhile."""
    steps = 0

    def gate(request: HttpRequest) -> None:
        if known:
            request.peer.admit("someone", is_privileged=False)

    await harness.start(
        gate=gate,
        limits=short(
            chunks_at_once_max=10,
            unauthenticated_work_seconds=1e-9,
            authenticated_work_seconds=1e-9,
        ),
    )
    client, other = await harness.connect(), await harness.connect()
    head = request_bytes("POST", "/many", "Transfer-Encoding: chunked")
    client.send(head + chunk_bytes(b"x" * 5_000, 1))
    while not harness.app.seen:
        steps += 1
        if steps == 100:
            other.get("/other")
        await asyncio.sleep(0)
    assert harness.app.lines() == ["GET /other"]
    assert (await client.answer()).body == b"/many|" + b"x" * 5_000


async def test_unfinished_heads_leave_authenticated_clients_alone(harness: Harness) -> None:
    """When unauthenticated connections use up their byte budget, a long body of an authenticated
    client is read, whether authenticated by this request or an earlier one; and so are short
    requests of others."""

    def gate(request: HttpRequest) -> None:
        if "authorization" in request.headers:
            request.peer.admit("someone", is_privileged=False)

    limits = short(unauthenticated_bytes_max=200_000, unauthenticated_address_bytes_max=100_000)
    listener = await harness.start(gate=gate, limits=limits)
    budgets = listener._shared.budgets
    for _ in range(10):
        client = await harness.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 30_000)
    await until(lambda: budgets.unauthenticated.displaced == 7)
    assert 90_000 < budgets.unauthenticated.bytes_held <= 100_000
    other = await harness.connect()
    other.get("/other")
    assert (await other.answer()).status == 200
    known = await harness.connect()
    body = b"y" * 1_000_000
    for _ in range(2):
        head = request_bytes("PUT", "/long", "Authorization: x", f"Content-Length: {len(body)}")
        known.send(head + body[:500_000])
        await until(lambda: budgets.authenticated.bytes_held >= 500_000)
        known.send(body[500_000:])
        assert (await known.answer()).body == b"/long|" + body
    assert budgets.unauthenticated.bytes_held <= 100_000


async def test_the_gate_spares_the_body(harness: Harness) -> None:
    """A request that is not allowed gets its response before its body is read, each time."""

    def gate(request: HttpRequest) -> HttpResponse | None:
        return None if request.path == "/ok" else HttpResponse(401, b"no")

    await harness.start(gate=gate)
    client = await harness.connect()
    client.send(request_bytes("POST", "/ok", "Content-Length: 2") + b"1")
    await asyncio.sleep(0.02)
    client.send(
        b"2" + request_bytes("POST", "/secret", "Expect: 100-continue", "Content-Length: 9")
    )
    assert (await client.answer()).body == b"/ok|12"
    refused = await client.answer()
    assert (refused.status, refused.headers["connection"]) == (401, "close")
    client.send(b"123456789")
    assert await client.rest() == b""
    assert harness.app.lines() == ["POST /ok"]


async def test_close_and_old_versions(harness: Harness) -> None:
    """`Connection: close` and HTTP/1.0 end the connection unless the client asks to keep it."""
    await harness.start()
    for data in (
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ):
        answer, rest = await harness.ask(data)
        assert (answer.status, answer.headers["connection"], rest) == (200, "close", b"")
    client = await harness.connect()
    for _ in range(2):
        client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert (await client.answer()).headers["connection"] == "keep-alive"


async def test_nothing_after_close_is_answered(harness: Harness) -> None:
    """Requests after one with `Connection: close` are dropped."""
    await harness.start()
    last = request_bytes("GET", "/1", "Connection: close") + request_bytes("GET", "/2")
    _answer, rest = await harness.ask(last)
    assert rest == b""
    assert harness.app.lines() == ["GET /1"]


async def test_answers_without_a_body(harness: Harness) -> None:
    """HEAD has the length but not the body; 204 and 304 have neither; all keep the connection."""
    await harness.start()
    harness.app.paths["/304"] = lambda _: HttpResponse(304, headers=header_block([("ETag", '"x"')]))
    client = await harness.connect()
    client.send(request_bytes("HEAD", "/abc"))
    answer = await client.answer(head_only=True)
    assert answer.headers["content-length"] == "5"
    client.get("/304")
    answer = await client.answer()
    assert (answer.status, answer.headers["etag"]) == (304, '"x"')
    assert "content-length" not in answer.headers
    client.get("/after")
    assert (await client.answer()).body == b"/after|"


async def test_a_body_of_pieces_is_joined(harness: Harness) -> None:
    """A response body may consist of several pieces of bytes."""
    await harness.start()
    harness.app.paths["/"] = lambda _: HttpResponse(200, [b"a", b"b" * 10, b"c"])
    client = await harness.connect()
    client.get()
    assert (await client.answer()).body == b"a" + b"b" * 10 + b"c"


async def test_upgrades_are_ignored(harness: Harness) -> None:
    """h2c and WebSocket offers get an ordinary response, and the connection stays HTTP/1.1."""
    await harness.start()
    client = await harness.connect()
    for _ in range(2):
        for offer in ("h2c", "websocket"):
            client.get("/up", "Connection: Upgrade", f"Upgrade: {offer}")
            assert (await client.answer()).status == 200
    client.get("/after")
    assert (await client.answer()).body == b"/after|"


async def test_an_application_that_fails(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is a 500 without its text, is logged, and leaves the connection usable."""
    await harness.start()
    client = await harness.connect()

    def fail(_: HttpRequest) -> HttpResponse:
        raise RuntimeError("secret detail")

    async def fail_later() -> HttpResponse:
        raise RuntimeError("secret detail")

    harness.app.paths["/now"] = fail
    harness.app.paths["/later"] = lambda _: fail_later()
    harness.app.paths["/type"] = lambda _: 42
    harness.app.paths["/status"] = lambda _: HttpResponse(42)
    for path in ("/now", "/later", "/type", "/status", "/now"):
        client.get(path)
        answer = await client.answer()
        assert (answer.status, answer.body) == (500, b"500 Internal Server Error\n")
    assert caplog.text.count("RuntimeError: secret detail") == 3
    client.get("/ok")
    assert (await client.answer()).status == 200


async def test_a_broken_invariant_is_fatal() -> None:
    """An InvariantViolation of the application is passed to the handler that ends the process."""
    from dataclasses import replace

    from restow.aio import Runtime
    from restow.httpserver import Listener

    broken: list[InvariantViolation] = []

    def app(_: HttpRequest) -> HttpResponse:
        raise InvariantViolation("cannot be")

    runtime = replace(Runtime.system(), fatal=broken.append)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    listener = await Listener.start(app, bind="127.0.0.1", port=0, runtime=runtime)
    client = await Client.connect(listener.port)
    client.get()
    await until(lambda: bool(broken))
    await client.close()
    await listener.stop(grace_seconds=0)


def test_headers_cannot_be_injected() -> None:
    """A value with a line end, or a name with a space, is rejected before it is sent."""
    for name, value in (
        ("A", "b\r\nC: d"),
        ("A", "b\nc"),
        ("A", "\0"),
        ("A b", "c"),
        ("", "c"),
        ("A", "☃"),
    ):
        with pytest.raises(ValueError, match="header"):
            header_block([(name, value)])
    assert header_block([("Warning", '299 - "a\tb"')]) == b'Warning: 299 - "a\tb"\r\n'


def test_a_request_shows_no_secrets() -> None:
    """The repr of a request, as in logs, contains neither query nor headers."""
    from restow.httpserver import Peer

    headers = Headers([("authorization", "Bearer secret")])
    request = HttpRequest("GET", "/a", "token=secret", headers, b"", Peer(1), 0.0)
    assert "secret" not in repr(request)


async def test_connections_over_the_limit_get_503(harness: Harness) -> None:
    """One more than allowed gets a 503 with Retry-After if all others are being served; when one
    closes, the next is accepted."""
    harness.app.paths["/pending"] = lambda _: promised()
    listener = await harness.start(limits=short(unauthenticated_connections_max=2))
    first, second = await harness.connect(), await harness.connect()
    for client in (first, second):
        client.get("/pending")
    await until(lambda: listener.counters.answers_pending == 2)
    third = await harness.connect()
    answer = await third.answer()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert await third.rest() == b""
    await first.close()
    await third.close()
    await until(lambda: listener.counters.connections_open == 1)
    fourth = await harness.connect()
    fourth.get()
    assert (await fourth.answer()).status == 200


async def test_a_thousand_idle_connections(harness: Harness) -> None:
    """They cost little, all can still be used, and all are closed when the listener stops."""
    listener = await harness.start()
    clients = [await harness.connect() for _ in range(1000)]
    await until(lambda: listener.counters.connections_open == 1000)
    for client in clients[::100]:
        client.get()
        assert (await client.answer()).status == 200
    await listener.stop()
    assert listener.counters.connections_open == 0
