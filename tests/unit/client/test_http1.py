"""HTTP/1.1 requests and responses of the client."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.client.errors import ProtocolBroken
from restow.client.http1 import (
    HEADERS_MAX,
    INTERIM_ANSWERS_MAX,
    STREAM_BYTES_MAX,
    Head,
    body_pieces,
    encode_request,
    read_head,
)

ENDED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"
)


async def read(
    data: bytes, *, method: str = "GET", cuts: list[int] | None = None
) -> tuple[Head, bytes]:
    """Read a response that arrives in pieces, followed by the end of the connection."""
    reader = asyncio.StreamReader(limit=STREAM_BYTES_MAX)

    async def feed() -> None:
        places = [0, *sorted(cuts or []), len(data)]
        for begin, end in pairwise(places):
            if end > begin:
                reader.feed_data(data[begin:end])
                await asyncio.sleep(0)
        reader.feed_eof()

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        head = await read_head(reader, method=method)
        body = b"".join([piece async for piece in body_pieces(reader, head)])
    return head, body


def run(data: bytes, *, method: str = "GET", cuts: list[int] | None = None) -> tuple[Head, bytes]:
    try:
        return asyncio.run(read(data, method=method, cuts=cuts))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


@given(st.data())
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    """The result does not depend on the pieces, with a length or in chunks."""
    answer = data.draw(st.sampled_from([ENDED, CHUNKED]))
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=12))
    head, body = run(answer, cuts=cuts)
    assert (head.status, body, head.is_kept) == (200, b"hello", True)


@given(st.integers(1, len(CHUNKED) - 1))
def test_a_broken_answer_is_no_answer(length: int) -> None:
    """A truncated response raises, wherever it is cut."""
    with pytest.raises((asyncio.IncompleteReadError, ProtocolBroken)):
        run(CHUNKED[:length])


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    """Invalid HTTP raises one of two errors, and no other."""
    with pytest.raises((asyncio.IncompleteReadError, ProtocolBroken)):
        run(noise)


def test_interim_answers_are_passed_over() -> None:
    """Interim responses (1xx) are skipped."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    assert run(interim + ENDED)[1] == b"hello"
    with pytest.raises(ProtocolBroken, match="interim"):
        run(b"HTTP/1.1 100 Continue\r\n\r\n" * INTERIM_ANSWERS_MAX + ENDED)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
def test_connections_that_cannot_be_kept(answer: bytes, body: bytes) -> None:
    """A body until the end, HTTP/1.0, or `close`: the connection is not reused."""
    head, found = run(answer)
    assert (found, head.is_kept) == (body, False)


@pytest.mark.parametrize(
    ("status", "method"), [(b"204 No Content", "GET"), (b"304 Not", "GET"), (b"200 OK", "HEAD")]
)
def test_answers_without_a_body(status: bytes, method: str) -> None:
    """Some responses have no body, whatever their length header is."""
    head, body = run(b"HTTP/1.1 " + status + b"\r\nContent-Length: 9\r\n\r\n", method=method)
    assert (body, head.is_kept) == (b"", True)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: -5",
        b"Content-Length: 5x",
        b"Content-Length: \xb2",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Content-Encoding: gzip\r\nContent-Length: 5",
        b"Folded: a\r\n b: c",
        b"No colon",
        b"Space before : colon",
        b"Bare: \n feed",
        b"Bare: \r return",
        b"\r\n".join(b"N%d: x" % number for number in range(HEADERS_MAX + 1)),
    ],
)
def test_ambiguous_responses_are_rejected(headers: bytes) -> None:
    """Two lengths, unknown codings, folded and invalid headers, and too many of them."""
    with pytest.raises(ProtocolBroken):
        run(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\nhello")


def test_equal_lengths_are_one() -> None:
    """A repeated identical length is accepted."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"
    assert run(answer)[1] == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * STREAM_BYTES_MAX + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
        CHUNKED.replace(b"he\r\n", b"hey\r\n"),
        CHUNKED.replace(b"2\r\n", b"x\r\n"),
        CHUNKED.replace(b"2\r\n", b"-2\r\n"),
        CHUNKED.replace(b"2\r\n", b"2;" + b"x" * 2_000 + b"\r\n"),
        CHUNKED.replace(b"Trailer: x\r\n", b"Trailer: x\r\n" * 100),
    ],
)
def test_unlimited_or_unsupported_responses_are_rejected(answer: bytes) -> None:
    """Other protocols, unlimited heads and lines, invalid chunks, unlimited trailers."""
    with pytest.raises(ProtocolBroken):
        run(answer)


def test_a_request_on_the_wire() -> None:
    """A request has its lines, its length and its body; a GET has no length."""
    assert encode_request("PUT", "/a?b=c", [("Host", "h")], b"{}") == (
        b"PUT /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert encode_request("GET", "/", [], b"") == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "target", "header"),
    [
        ("GET", "/a b", ("A", "b")),
        ("GET", "/a\r\nX: y", ("A", "b")),
        ("GET", "http://x/", ("A", "b")),
        ("GET /", "/", ("A", "b")),
        ("GET", "/", ("A", "b\r\nX: y")),
        ("GET", "/", ("A\r\n", "b")),
        ("GET", "/", ("A", "b\x00")),
    ],
)
def test_nothing_can_be_smuggled_into_a_request(
    method: str, target: str, header: tuple[str, str]
) -> None:
    """A line break inside a part is rejected before anything is sent."""
    with pytest.raises(ValueError, match="invalid "):
        encode_request(method, target, [header], b"")
