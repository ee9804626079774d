"""The reader: however the bytes are split, it yields the same requests."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.httpserver import Limits, Peer
from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.reader import RequestReader
from restow.httpserver.request_head import HeadParser, RequestRefused

LIMITS = Limits(
    body_bytes_max=1000, head_bytes_max=2000, target_bytes_max=500, chunks_at_once_max=3
)


def known_peer() -> Peer:
    """The peer of an authenticated connection."""
    peer = Peer(1)
    peer.admit("someone", is_privileged=False)
    return peer


Seen = tuple[str, str, str, tuple[tuple[str, str], ...], bytes]


def read(pieces: list[bytes], *, short_way: bool = False) -> tuple[list[Seen], int | None]:
    """All requests in some pieces of data, and the status of the error that ended them."""
    budgets = Budgets(LIMITS)
    reader = RequestReader(LIMITS, budgets=budgets, peer=Peer(1))
    seen: list[Seen] = []
    refusal = None
    try:
        for piece in pieces:
            if short_way and reader.is_empty:
                request = reader.whole_request(piece, 0.0)
                if request is not None:
                    lines = tuple(request.headers.items())
                    seen.append((request.method, request.path, request.query, lines, b""))
                    continue
            reader.feed(piece)
            while (request := reader.next_request(0.0)) or reader.has_unread_body:
                if request is None:
                    continue
                lines = tuple(request.headers.items())
                body = request.body
                seen.append((request.method, request.path, request.query, lines, body))
    except RequestRefused as refused:
        refusal = refused.status
    reader.close()
    assert budgets.bytes_held == 0
    return seen, refusal


def chunked(body: bytes, size: int) -> bytes:
    cuts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(cut), cut) for cut in cuts) + b"0\r\n\r\n"


bodies = st.one_of(
    st.binary(max_size=60),
    st.text("\r\n0", max_size=40).map(str.encode),
)
names = st.sampled_from(["Accept", "X-One", "x-two"])
values = st.text("abc,;= ", max_size=6).map(str.strip)


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, Seen]:
    """A request as bytes, and the expected result."""
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE"]))
    path = draw(st.sampled_from(["/", "/api/v1", "/a%20b/../c", "/x;y"]))
    query = draw(st.sampled_from(["", "a=b", "watch=1&x=?%00"]))
    lines = [("Host", "h"), *draw(st.lists(st.tuples(names, values), max_size=3))]
    body = draw(bodies)
    framing, payload = b"", b""
    shown = [(name.lower(), value) for name, value in lines]
    if draw(st.booleans()) and body:
        framing = b"Transfer-Encoding: chunked\r\n"
        payload = chunked(body, draw(st.integers(1, 30)))
        shown.append(("transfer-encoding", "chunked"))
    elif body:
        framing, payload = b"Content-Length: %d\r\n" % len(body), body
    target = path + ("?" + query if query else "")
    head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines)
    data = head.encode() + framing + b"\r\n" + payload
    return data, (method, path, query, tuple(shown), body)


@given(st.lists(messages(), min_size=1, max_size=5), st.data())
def test_cuts_do_not_matter(sent: list[tuple[bytes, Seen]], data: st.DataObject) -> None:
    """Requests split anywhere are read as written, and so are repeated ones."""
    stream = b"".join(message for message, _ in sent)
    places = st.lists(st.integers(0, len(stream)), max_size=12)
    cuts = [0, *sorted(data.draw(places)), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(cuts)]
    expected = [seen for _, seen in sent]
    assert read(pieces) == (expected, None)
    assert read([bytes([byte]) for byte in stream]) == (expected, None)


@given(st.lists(messages(), min_size=1, max_size=4), st.integers(2, 4))
def test_the_fast_path_reads_the_same(sent: list[tuple[bytes, Seen]], times: int) -> None:
    """Message by message, many times over, both paths through the reader agree."""
    pieces = [message for message, _ in sent for _ in range(times)]
    assert read(pieces, short_way=True) == read([b"".join(pieces)])


@given(messages(), st.data())
def test_broken_requests_are_read_the_same_however_cut(
    sent: tuple[bytes, Seen], data: st.DataObject
) -> None:
    """A changed byte is rejected or accepted, independent of how the data is split."""
    stream = bytearray(sent[0] + sent[0])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(stream) - 1))
        stream[place] = data.draw(st.sampled_from(b"\r\n\t :0;x\0\xff"))
    whole, refusal = read([bytes(stream)])
    single, single_refusal = read([bytes([byte]) for byte in stream])
    assert single == whole
    assert (single_refusal is None) == (refusal is None)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"a" * 500 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET /" + b"a" * 600, 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 2000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 2000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0999999999999999999\r\n\r\n", 413),
    ],
)
def test_sizes_are_limited(data: bytes, status: int) -> None:
    """Target, head and body are limited, in one piece or byte by byte."""
    assert read([data]) == ([], status)
    assert read([bytes([byte]) for byte in data]) == ([], status)


def test_chunks_are_limited() -> None:
    """A chunked body has the same size limit as any other, and chunk sizes alone are limited,
    too."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read([head + chunked(b"x" * 1000, 100)])[1] is None
    assert read([head + chunked(b"x" * 1001, 100)]) == ([], 413)
    assert read([head, b"1;" + b"x" * (1 << 20), b"x" * 100]) == ([], 400)


CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_chunks_are_read_some_at_a_time() -> None:
    """A body of many chunks is read in steps, independent of its size; no chunk is read in the call
    that returns after the head."""
    limits = Limits(chunks_at_once_max=10)
    for body, size, steps in (
        (b"\r\n\r\n" * 100_000, 400_000, 1),
        (b"0\r\n\r\n" * 100_000, 100_000, 1),
        (b"x" * 1000, 1, 101),
    ):
        reader = RequestReader(limits, budgets=Budgets(limits), peer=Peer(1))
        reader.feed(CHUNKED + chunked(body, size))
        assert reader.next_request(0.0) is None
        assert reader.half_read is not None
        assert reader._chunks_bytes == 0
        fed = 1
        while (request := reader.next_request(0.0)) is None:
            assert reader.has_unread_body
            fed += 1
        assert (request.body, fed) == (body, steps)
        assert reader.next_request(0.0) is None


def test_trailers_are_limited() -> None:
    """Trailer lines count like header lines."""
    assert read([CHUNKED + b"0\r\n" + b"a:b\r\n" * 1000 + b"\r\n"])[1] is None
    assert read([CHUNKED + b"0\r\n" + b"a:b\r\n" * 1001 + b"\r\n"]) == ([], 431)


def parsed_by_bytes(data: bytes) -> tuple[bytes, bytes] | None:
    """The body of a chunked request by the parser alone, and the bytes after it; None if it is
    rejected or incomplete."""
    parser = HeadParser(Limits())
    try:
        parser.feed(CHUNKED)
        for end in range(1, len(data) + 1):
            parser.feed(data[end - 1 : end])
            if parser.collector.complete:
                return bytes(parser.collector.body), data[end:]
    except RequestRefused:
        pass
    return None


framing = st.lists(
    st.one_of(
        st.sampled_from(
            [b"\r\n", b"0", b"5", b"a", b"F", b";x=y", b"0\r\n", b"A: b\r\n", b"\r", b"\n"]
        ),
        st.sampled_from([b"5\r\nabcde\r\n", b"2;a\r\n\r\n\r\n", b"0a\r\n0\r\n\r\n0\r\n\r\n\r\n"]),
        st.binary(max_size=3),
    ),
    max_size=12,
).map(b"".join)


@given(framing, st.integers(1, 5), st.integers(1, 50))
def test_the_scanner_agrees_with_the_parser(data: bytes, chunks_max: int, size: int) -> None:
    """The scanner finds the body and its end like the parser does byte by byte, however it is
    split."""
    data += b"0\r\n\r\n"
    limits = Limits(chunks_at_once_max=chunks_max)
    reader = RequestReader(limits, budgets=Budgets(limits), peer=Peer(1))
    reader.feed(CHUNKED)
    found: tuple[bytes, bytes] | None = None
    try:
        for begin in range(0, len(data), size):
            reader.feed(data[begin : begin + size])
            while (request := reader.next_request(0.0)) or reader.has_unread_body:
                if request is not None:
                    found = request.body, reader.take_rest() + data[begin + size :]
                    raise StopIteration
    except (RequestRefused, StopIteration):
        pass
    assert found == parsed_by_bytes(data)


def test_half_read_bodies_share_a_budget() -> None:
    """When all authenticated connections together hold too much, the next byte is a 503."""
    budgets = Budgets(replace(LIMITS, bodies_bytes_max=100))
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n"
    first, second = (RequestReader(LIMITS, budgets=budgets, peer=known_peer()) for _ in range(2))
    first.feed(head + b"x" * 60)
    assert first.next_request(0.0) is None
    assert (first.has_unread_body, budgets.authenticated.bytes_held) == (True, 0)
    assert first.next_request(0.0) is None
    assert (first.has_unread_body, budgets.authenticated.bytes_held) == (False, 60)
    second.feed(head + b"x" * 60)
    assert second.next_request(0.0) is None
    with pytest.raises(RequestRefused) as refused:
        second.next_request(0.0)
    assert refused.value.status == 503
    first.feed(b"x" * 30)
    request = first.next_request(0.0)
    assert request is not None
    assert request.body == b"x" * 90
    second.close()
    assert budgets.authenticated.bytes_held == 0


def test_half_read_heads_share_it() -> None:
    """Incomplete heads count too, and are returned to the budget when complete or closed."""
    budgets = Budgets(replace(LIMITS, bodies_bytes_max=100))
    first, second = (RequestReader(LIMITS, budgets=budgets, peer=known_peer()) for _ in range(2))
    first.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40)
    assert first.next_request(0.0) is None
    assert budgets.authenticated.bytes_held == 68
    second.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40)
    with pytest.raises(RequestRefused) as refused:
        second.next_request(0.0)
    assert refused.value.status == 503
    first.feed(b"\r\n\r\n")
    assert first.next_request(0.0) is not None
    second.close()
    assert budgets.authenticated.bytes_held == 0


def refusal_of(reader: RequestReader, pieces: list[bytes]) -> tuple[int, str] | None:
    try:
        for piece in pieces:
            reader.feed(piece)
            reader.next_request(0.0)
    except RequestRefused as refused:
        return refused.status, refused.message
    return None


def test_unauthenticated_connections_have_a_budget_of_their_own() -> None:
    """The bytes of incomplete heads and bodies that they hold are limited in total and per address,
    and do not count against the budget of authenticated connections."""
    limits = replace(
        LIMITS,
        bodies_bytes_max=100,
        unauthenticated_bytes_max=100,
        unauthenticated_address_bytes_max=70,
    )
    budgets = Budgets(limits)
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: "

    def reader_from(address: str) -> RequestReader:
        return RequestReader(limits, budgets=budgets, peer=Peer(1, address=address))

    def is_refused(reader: RequestReader, data: bytes) -> bool:
        return refusal_of(reader, [data]) == (
            503,
            "too many requests are being read, please try again",
        )

    one, two, other = reader_from("10.0.0.1"), reader_from("10.0.0.1"), reader_from("10.0.0.2")
    assert not is_refused(one, head + b"x" * 20)
    assert is_refused(two, head)  # the share of its address
    assert not is_refused(other, head + b"x" * 20)
    assert is_refused(reader_from("10.0.0.3"), head)  # all together
    assert (budgets.unauthenticated.bytes_held, budgets.authenticated.bytes_held) == (96, 0)
    known = RequestReader(limits, budgets=budgets, peer=known_peer())
    known.feed(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n" + b"x" * 80)
    assert known.next_request(0.0) is None
    assert known.next_request(0.0) is None
    assert budgets.authenticated.bytes_held == 80
    one.feed(b"\r\n\r\n")
    assert one.next_request(0.0) is not None
    assert not is_refused(two, head)
    for reader in (two, other, known):
        reader.close()
    assert (budgets.bytes_held, budgets.unauthenticated.keys) == (0, ())


def test_held_bytes_return_to_their_budget() -> None:
    """If a peer is authenticated while its request is read, bytes return to the budget they came
    from."""
    budgets, peer = Budgets(LIMITS), Peer(1, address="10.0.0.1")
    reader = RequestReader(LIMITS, budgets=budgets, peer=peer)
    reader.feed(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n" + b"x" * 50)
    for _ in range(2):
        assert reader.next_request(0.0) is None
    peer.admit("someone", is_privileged=False)
    reader.feed(b"x" * 30)
    assert reader.next_request(0.0) is None
    assert (budgets.unauthenticated.bytes_held, budgets.authenticated.bytes_held) == (80, 0)
    reader.feed(b"x" * 10)
    assert reader.next_request(0.0) is not None
    assert (budgets.bytes_held, budgets.unauthenticated.keys) == (0, ())


def test_heads_are_shorter_until_a_request_is_authenticated() -> None:
    """64 KiB before, 1 MiB afterwards, in one piece or in several."""
    limits = Limits()
    too_long = "the header lines are over 65536 bytes, the limit until a request is authenticated"
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"
    for pieces in ([head], [head[:50_000], head[50_000:]], [head[:70_000], head[70_000:]]):
        peer = Peer(1)
        for is_known in (False, True):
            if is_known:
                peer.admit("someone", is_privileged=False)
            reader = RequestReader(limits, budgets=Budgets(limits), peer=peer)
            refusal = refusal_of(reader, pieces)
            assert refusal == (None if is_known else (431, too_long))


def test_large_heads_are_not_kept() -> None:
    """An idle connection caches header lines for comparison, unless they are large; a repeated
    large head is parsed again."""
    limits = Limits()
    reader = RequestReader(limits, budgets=Budgets(limits), peer=known_peer())
    for nbytes, is_kept in ((100, True), (100_000, False), (100_000, False), (100, True)):
        reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * nbytes + b"\r\n\r\n")
        request = reader.next_request(0.0)
        assert request is not None
        assert request.headers.get("x") == "x" * nbytes
        assert (reader.block is not None) is is_kept
        assert reader.next_request(0.0) is None


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_an_empty_line_may_come_in_pieces(cut: int) -> None:
    """One before a request is accepted, two are not, however they are split."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    head, rest = b"\r\n"[:cut], b"\r\n"[cut:] + request
    seen, refusal = read([request, head, rest])
    assert (len(seen), refusal) == (2, None)
    assert read([request, head, b"\r\n"[cut:], b"\r\n", request])[1] == 400
    assert read([request, b"\r\n" + head, rest])[1] == 400


@pytest.mark.parametrize("size", [1, 7, 1_000, 50_000, 200_000])
def test_long_heads_in_pieces(size: int) -> None:
    """The end of each long head is found, however the heads are split."""
    line = b"GET /%d HTTP/1.1\r\nHost: h\r\nX-Long: %b\r\n\r\n"
    lengths = (30_000, 0, 40_000, 5, 5, 20_000)
    sent = b"".join(line % (number, b"x" * length) for number, length in enumerate(lengths))
    reader = RequestReader(Limits(), budgets=Budgets(Limits()), peer=Peer(1))
    seen = []
    for begin in range(0, len(sent), size):
        reader.feed(sent[begin : begin + size])
        while (request := reader.next_request(0.0)) is not None:
            seen.append((request.path, len(request.headers.get("x-long") or "")))
    assert seen == [(f"/{number}", length) for number, length in enumerate(lengths)]
    assert reader.is_empty
