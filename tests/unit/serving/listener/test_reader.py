"""The reader: however bytes are cut, the same requests come out, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.serving.listener import Limits, Peer
from restow.serving.listener.head import Refused
from restow.serving.listener.limits import Budget
from restow.serving.listener.reader import RequestReader

LIMITS = Limits(body_bytes_max=1000, head_bytes_max=2000, target_bytes_max=500)

Seen = tuple[str, str, str, tuple[tuple[str, str], ...], bytes]


def read(pieces: list[bytes], *, short_way: bool = False) -> tuple[list[Seen], int | None]:
    """All requests in some pieces of data, and the status of the refusal that ended them."""
    budget = Budget(1_000_000)
    reader = RequestReader(LIMITS, budget=budget, peer=Peer(1))
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
            while (request := reader.next_request(0.0)) is not None:
                lines = tuple(request.headers.items())
                body = request.body
                seen.append((request.method, request.path, request.query, lines, body))
    except Refused as refused:
        refusal = refused.status
    reader.close()
    assert budget.bytes_held == 0
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
    """A request as bytes, and what should be read from it."""
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
    """Requests cut anywhere are read as they were written, and so are repeated ones."""
    stream = b"".join(message for message, _ in sent)
    places = st.lists(st.integers(0, len(stream)), max_size=12)
    cuts = [0, *sorted(data.draw(places)), len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(cuts)]
    expected = [seen for _, seen in sent]
    assert read(pieces) == (expected, None)
    assert read([bytes([byte]) for byte in stream]) == (expected, None)


@given(st.lists(messages(), min_size=1, max_size=4), st.integers(2, 4))
def test_the_short_way_reads_the_same(sent: list[tuple[bytes, Seen]], times: int) -> None:
    """Message by message, many times over, both ways through the reader agree."""
    pieces = [message for message, _ in sent for _ in range(times)]
    assert read(pieces, short_way=True) == read([b"".join(pieces)])


@given(messages(), st.data())
def test_broken_requests_are_read_the_same_however_cut(
    sent: tuple[bytes, Seen], data: st.DataObject
) -> None:
    """A changed byte is refused or accepted, but never differently for different cuts."""
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
    """Target, head and body have limits, met at once or byte by byte."""
    assert read([data]) == ([], status)
    assert read([bytes([byte]) for byte in data]) == ([], status)


def test_chunks_are_limited() -> None:
    """A chunked body ends at the same size as any other, and cannot be made of chunk sizes."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert read([head + chunked(b"x" * 1000, 100)])[1] is None
    assert read([head + chunked(b"x" * 1001, 100)]) == ([], 413)
    assert read([head, b"1;" + b"x" * (1 << 20), b"x" * 100]) == ([], 400)


def test_half_read_bodies_share_a_budget() -> None:
    """When all connections together hold too much, the next byte is refused with 503."""
    budget = Budget(100)
    head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n"
    first, second = (RequestReader(LIMITS, budget=budget, peer=Peer(1)) for _ in range(2))
    first.feed(head + b"x" * 60)
    assert first.next_request(0.0) is None
    second.feed(head + b"x" * 60)
    with pytest.raises(Refused) as refused:
        second.next_request(0.0)
    assert refused.value.status == 503
    first.feed(b"x" * 30)
    request = first.next_request(0.0)
    assert request is not None
    assert request.body == b"x" * 90
    second.close()
    assert budget.bytes_held == 0


def test_half_read_heads_share_it() -> None:
    """Unfinished heads count too, and are given back when they are whole or given up."""
    budget = Budget(100)
    first, second = (RequestReader(LIMITS, budget=budget, peer=Peer(1)) for _ in range(2))
    first.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40)
    assert first.next_request(0.0) is None
    assert budget.bytes_held == 68
    second.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40)
    with pytest.raises(Refused) as refused:
        second.next_request(0.0)
    assert refused.value.status == 503
    first.feed(b"\r\n\r\n")
    assert first.next_request(0.0) is not None
    second.close()
    assert budget.bytes_held == 0


def test_large_heads_are_not_kept() -> None:
    """An idle connection holds header lines to compare the next ones with, unless they are large;
    a large head that comes again is read again."""
    limits = Limits()
    reader = RequestReader(limits, budget=Budget(limits.bodies_bytes_max), peer=Peer(1))
    for nbytes, is_kept in ((100, True), (100_000, False), (100_000, False), (100, True)):
        reader.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * nbytes + b"\r\n\r\n")
        request = reader.next_request(0.0)
        assert request is not None
        assert request.headers.get("x") == "x" * nbytes
        assert (reader.block is not None) is is_kept
        assert reader.next_request(0.0) is None


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_an_empty_line_may_come_in_pieces(cut: int) -> None:
    """One in front of a request passes, two do not, wherever the packets end."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    head, rest = b"\r\n"[:cut], b"\r\n"[cut:] + request
    seen, refusal = read([request, head, rest])
    assert (len(seen), refusal) == (2, None)
    assert read([request, head, b"\r\n"[cut:], b"\r\n", request])[1] == 400
    assert read([request, b"\r\n" + head, rest])[1] == 400


@pytest.mark.parametrize("size", [1, 7, 1_000, 50_000, 200_000])
def test_long_heads_in_pieces(size: int) -> None:
    """The end of a long head is found once, and that of the next one anew; however they are cut."""
    line = b"GET /%d HTTP/1.1\r\nHost: h\r\nX-Long: %b\r\n\r\n"
    lengths = (30_000, 0, 40_000, 5, 5, 20_000)
    sent = b"".join(line % (number, b"x" * length) for number, length in enumerate(lengths))
    reader = RequestReader(Limits(), budget=Budget(1_000_000), peer=Peer(1))
    seen = []
    for begin in range(0, len(sent), size):
        reader.feed(sent[begin : begin + size])
        while (request := reader.next_request(0.0)) is not None:
            seen.append((request.path, len(request.headers.get("x-long") or "")))
    assert seen == [(f"/{number}", length) for number, length in enumerate(lengths)]
    assert reader.is_empty
