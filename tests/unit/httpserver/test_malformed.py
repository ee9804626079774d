"""Malformed and hostile requests: rejected, the connection closed, no later request handled."""

from __future__ import annotations

import pytest

from restow.httpserver import HttpRequest, HttpResponse
from tests.unit.httpserver.conftest import Harness, request_bytes, short

NEXT = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CODING = b"Transfer-Encoding: chunked\r\n"
LENGTH = b"Content-Length: 5\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"

REFUSED = {
    "length-and-chunked": (POST + LENGTH + CODING + b"\r\n0\r\n\r\n", 400),
    "chunked-and-length": (POST + CODING + LENGTH + b"\r\n0\r\n\r\n", 400),
    "two-lengths": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    "two-different-lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "list-of-lengths": (POST + b"Content-Length: 3, 3\r\n\r\nabc", 400),
    "signed-length": (POST + b"Content-Length: +3\r\n\r\nabc", 400),
    "negative-length": (POST + b"Content-Length: -3\r\n\r\nabc", 400),
    "hexadecimal-length": (POST + b"Content-Length: 0x3\r\n\r\nabc", 400),
    "empty-length": (POST + b"Content-Length:\r\n\r\n", 400),
    "length-with-underscore": (POST + b"Content-Length: 1_0\r\n\r\n0123456789", 400),
    "length-in-other-digits": (POST + "Content-Length: ٣\r\n\r\nabc".encode(), 400),
    "two-words-of-length": (POST + b"Content-Length: 3 3\r\n\r\nabc", 400),
    "huge-length": (POST + b"Content-Length: 18446744073709551617\r\n\r\na", 400),
    "signed-chunk": (CHUNKED + b"+5\r\nabcde\r\n0\r\n\r\n", 400),
    "hexadecimal-chunk": (CHUNKED + b"0x5\r\nabcde\r\n0\r\n\r\n", 400),
    "negative-chunk": (CHUNKED + b"-1\r\nabcde\r\n0\r\n\r\n", 400),
    "spaced-chunk": (CHUNKED + b"5 \r\nabcde\r\n0\r\n\r\n", 400),
    "empty-chunk-size": (CHUNKED + b"\r\nabcde\r\n0\r\n\r\n", 400),
    "chunk-with-underscore": (CHUNKED + b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n", 400),
    "cr-in-extension": (CHUNKED + b"5;a\rb\r\nabcde\r\n0\r\n\r\n", 400),
    "nul-in-extension": (CHUNKED + b"5;a\0b\r\nabcde\r\n0\r\n\r\n", 400),
    "coding-in-trailer": (CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    "folded-trailer": (CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n", 400),
    "huge-chunk": (CHUNKED + b"fffffffffffffffff\r\n", 400),
    "bare-lf-after-chunk-size": (CHUNKED + b"5\nabcde\r\n0\r\n\r\n", 400),
    "bare-lf-after-chunk": (CHUNKED + b"5\r\nabcde\n0\r\n\r\n", 400),
    "bare-lf-in-extension": (CHUNKED + b"5;a\nb\r\nabcde\r\n0\r\n\r\n", 400),
    "chunk-too-long": (CHUNKED + b"5\r\nabcdeXX0\r\n\r\n", 400),
    "chunk-unfinished-end": (CHUNKED + b"0\r\n\n", 400),
    "chunked-in-1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked-twice": (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    "chunked-two-lines": (POST + CODING + CODING + b"\r\n0\r\n\r\n", 400),
    "chunked-not-last": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    "other-coding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "almost-chunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked-identity": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
    "identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
    "quoted-chunked": (POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', 400),
    "chunked-behind-vertical-tab": (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunked-and-length-of-zero": (POST + CODING + b"Content-Length: 0\r\n\r\n0\r\n\r\n", 400),
    "coding-with-space": (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    "upgrade-with-body": (POST + UPGRADE + LENGTH + b"\r\nabcde", 400),
    "folded-line": (GET + b"A: b\r\n c\r\n\r\n", 400),
    "folded-tab": (GET + b"A: b\r\n\tc\r\n\r\n", 400),
    "folded-first-line": (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "cr-in-value": (GET + b"A: b\rc\r\n\r\n", 400),
    "nul-in-value": (GET + b"A: b\0c\r\n\r\n", 400),
    "control-in-value": (GET + b"A: b\x01c\r\n\r\n", 400),
    "delete-in-value": (GET + b"A: b\x7fc\r\n\r\n", 400),
    "bare-lf-after-line": (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    "bare-lf-after-header": (b"GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", 400),
    "bare-lf-at-end": (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    "all-bare-lf": (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    "double-cr": (b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
    "empty-lines-first": (b"\r\n\r\n", 400),
    "lone-lf-first": (b"\n", 400),
    "no-host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two-hosts": (GET + b"Host: b\r\n\r\n", 400),
    "list-of-hosts": (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    "host-with-user": (b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    "host-with-space": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    "strange-host": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    "no-colon": (GET + b"novalue\r\n\r\n", 400),
    "no-name": (GET + b": x\r\n\r\n", 400),
    "space-before-colon": (GET + b"A : b\r\n\r\n", 400),
    "nul-in-name": (GET + b"A\0B: x\r\n\r\n", 400),
    "lf-in-value": (GET + b"A: b\nX: c\r\n\r\n", 400),
    "space-in-name": (GET + b"Bad Name: x\r\n\r\n", 400),
    "letters-beyond-ascii-in-name": (GET + b"B\xc3\xa9: x\r\n\r\n", 400),
    "http-0.9": (b"GET /\r\n", 400),
    "http-0.9-with-version": (b"GET / HTTP/0.9\r\n\r\n", 400),
    "http-2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "http-1.2": (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    "rtsp": (b"GET / RTSP/1.0\r\nHost: a\r\n\r\n", 400),
    "absolute-form": (b"GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "absolute-form-of-another-host": (b"GET https://b/c HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "authority-form": (b"GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "asterisk-form": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "trace": (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "unknown-method": (b"PURGE / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
    "lower-case-method": (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "fragment": (b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "letters-beyond-ascii-in-path": (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "nul-in-path": (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space-in-path": (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "two-spaces": (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "tabs": (b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space-at-end": (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    "an-answer": (b"HTTP/1.1 200 OK\r\n\r\n", 400),
    "tls-hello": (b"\x16\x03\x01\x02\x00", 400),
    "expectation": (GET + b"Expect: magic\r\n\r\n", 417),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_malformed_requests_are_refused(harness: Harness, case: str) -> None:
    """One error response, then close: neither the request nor the one after it is handled."""
    await harness.start()
    data, status = REFUSED[case]
    answer, rest = await harness.ask(data + NEXT)
    assert (answer.status, answer.headers["connection"], rest) == (status, "close", b"")
    assert harness.app.seen == []


@pytest.mark.parametrize("case", REFUSED)
async def test_good_requests_before_are_answered(harness: Harness, case: str) -> None:
    """Earlier requests on the connection are handled first, and none after."""
    await harness.start()
    data, status = REFUSED[case]
    client = await harness.connect()
    client.send(request_bytes("GET", "/first") + request_bytes("GET", "/second") + data + NEXT)
    assert (await client.answer()).body == b"/first|"
    assert (await client.answer()).body == b"/second|"
    assert (await client.answer()).status == status
    assert await client.rest() == b""
    assert harness.app.lines() == ["GET /first", "GET /second"]


async def test_odd_but_right_requests_pass(harness: Harness) -> None:
    """Unusual requests that the standard permits are accepted: a leading empty line, unusual
    paths."""
    await harness.start()
    client = await harness.connect()
    for data, line in (
        (b"\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /1"),
        (b"GET //api//v1 HTTP/1.1\r\nHost:\r\n\r\n", "GET //api//v1"),
        (b"GET /api/../%2e%2e HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET /api/../%2e%2e"),
        (b"PUT /zero HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "PUT /zero"),
        (b"DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 2 \r\n\r\n{}", "DELETE /"),
        (b"GET /1.0 HTTP/1.0\r\n\r\n", "GET /1.0"),
    ):
        client.send(data)
        assert (await client.answer()).status == 200
        assert harness.app.lines()[-1] == line


async def test_trailers_change_nothing(harness: Harness) -> None:
    """Trailers after the last chunk are dropped, whatever their names, and are not a request."""
    await harness.start()
    client = await harness.connect()
    trailers = b"Authorization: x\r\nX-Remote-User: y\r\nHost: b\r\n"
    client.send(CHUNKED + b"5\r\nabcde\r\n0\r\n" + trailers + b"\r\n" + request_bytes("GET", "/2"))
    assert (await client.answer()).body == b"/|abcde"
    assert (await client.answer()).body == b"/2|"
    first, _second = harness.app.seen
    assert first.headers.get_all("host") == ["a"]
    assert "authorization" not in first.headers


async def test_a_length_that_lies(harness: Harness) -> None:
    """Bytes beyond the announced length are not part of the body, and are not a valid request."""
    await harness.start()
    answer, rest = await harness.ask(POST + b"Content-Length: 2\r\n\r\nabcdefgh\r\n\r\n" + NEXT)
    assert answer.body == b"/|ab"
    assert rest.startswith(b"HTTP/1.1 400 ")
    assert harness.app.lines() == ["POST /"]


async def test_an_expectation_without_a_body(harness: Harness) -> None:
    """A client that expects 100-continue without a body gets the response only."""
    await harness.start()
    client = await harness.connect()
    for framing in (b"", b"Content-Length: 0\r\n"):
        client.send(POST + b"Expect: 100-continue\r\n" + framing + b"\r\n")
        assert (await client.answer()).status == 200


async def test_too_many_header_lines(harness: Harness) -> None:
    """The number of header lines is limited: 431."""
    await harness.start(limits=short(headers_max=50))
    close = b"Connection: close\r\n"
    answer, _rest = await harness.ask(GET + close + b"A: b\r\n" * 48 + b"\r\n")
    assert answer.status == 200
    answer, rest = await harness.ask(GET + b"A: b\r\n" * 50 + b"\r\n" + NEXT)
    assert (answer.status, rest) == (431, b"")


async def test_a_large_head(harness: Harness) -> None:
    """A header block below 1 MiB is accepted, a larger one is not: 431. Until a request of the
    connection was authenticated, the limit is 64 KiB."""

    def authenticated(request: HttpRequest) -> HttpResponse:
        request.peer.admit("someone", is_privileged=False)
        return HttpResponse(200)

    harness.app.paths["/known"] = authenticated
    await harness.start()
    for before, length, status in (
        (b"", 60_000, 200),
        (b"", 70_000, 431),
        (request_bytes("GET", "/known"), 1_000_000, 200),
        (request_bytes("GET", "/known"), 1_100_000, 431),
    ):
        client = await harness.connect()
        if before:
            client.send(before)
            assert (await client.answer()).status == 200
        client.send(GET + b"Connection: close\r\nA: " + b"x" * length + b"\r\n\r\n")
        assert (await client.answer()).status == status
        assert await client.rest() == b""
    assert len(harness.app.seen) == 4


async def test_the_client_can_read_the_rejection_of_a_large_body(harness: Harness) -> None:
    """A client that sends all of a too large body can read the response: 413 with the usual
    body."""

    def form(status: int, message: str) -> tuple[str, bytes]:
        return "application/json", b'{"code":%d}' % status

    await harness.start(error_body=form)
    for framing in (
        b"Content-Length: 4000000\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3d0900\r\n",
    ):
        answer, _rest = await harness.ask(POST + framing + b"x" * 4_000_000)
        assert (answer.status, answer.body) == (413, b'{"code":413}')
        assert answer.headers["content-type"] == "application/json"
    assert harness.app.seen == []


async def test_dropped_bytes_are_bounded(harness: Harness) -> None:
    """A client that continues to send after an error response is disconnected."""
    listener = await harness.start(limits=short(linger_bytes_max=100_000, linger_seconds=5))
    client = await harness.connect()
    client.send(b"\n")
    assert (await client.answer()).status == 400
    client.send(b"x" * 1_000_000)
    assert await client.rest() == b""
    assert listener.counters.received_bytes < 1_000_000
