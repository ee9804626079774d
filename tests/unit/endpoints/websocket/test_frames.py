"""Frames: encoded for another implementation, parsed however they are split, and limited."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from aiohttp import WSMsgType
from aiohttp._websocket.reader import WebSocketDataQueue
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_websocket import WebSocketReader
from hypothesis import given
from hypothesis import strategies as st
from wsproto.events import CloseConnection, Ping
from wsproto.utilities import LocalProtocolError

from restow.endpoints.websocket.frames import (
    FRAMES_PER_READ_MAX,
    MESSAGE_BYTES_MAX,
    FrameConnection,
)

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x11\x22\x33\x44"


def frame(first: int, payload: bytes = b"", *, length: bytes | None = None) -> bytes:
    """A frame of a client with this first byte, and optionally a wrong length."""
    size = len(payload)
    if length is None:
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    masked = bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))
    return bytes([first, length[0] | 0x80]) + length[1:] + MASK + masked


def whole(opcode: int, payload: bytes = b"") -> bytes:
    return frame(0x80 | opcode, payload)


def received(*reads: bytes) -> list[bytes | int]:
    """The result of these reads: payloads of pings, and the code of the close."""
    connection = FrameConnection()
    events = [event for data in reads for event in connection.receive(data)]
    return [bytes(each.payload) if isinstance(each, Ping) else each.code for each in events]


def each_byte(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


async def parsed_by_aiohttp(data: bytes, count: int) -> list[tuple[WSMsgType, object]]:
    """The first messages that aiohttp's client parses."""
    loop = asyncio.get_running_loop()
    queue = WebSocketDataQueue(BaseProtocol(loop), 1 << 24, loop=loop)
    reader = WebSocketReader(queue, 0, compress=False, decode_text=True)
    reader.feed_data(data)
    messages = [await queue.read() for _ in range(count)]
    return [(each.type, each.data) for each in messages]


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=6),
    length=st.sampled_from([0, 125, 126, 65_535, 65_536, 70_000]),
)
def test_another_implementation_parses_encoded_frames(payloads: list[bytes], length: int) -> None:
    """aiohttp parses the messages, pongs and closes that were encoded, for all lengths."""
    connection, sent, expected = FrameConnection(), [], []
    for payload in [*payloads, b"x" * length]:
        text = payload.hex() + "é"
        sent += [connection.binary(payload), connection.text(text.encode())]
        sent.append(connection.pong(payload[:125]))
        expected += [(WSMsgType.BINARY, payload), (WSMsgType.TEXT, text)]
        expected.append((WSMsgType.PONG, payload[:125]))
    sent.append(connection.close(1001))
    found = asyncio.run(parsed_by_aiohttp(b"".join(sent), len(expected) + 1))
    assert found == [*expected, (WSMsgType.CLOSE, 1001)]


@given(cuts=st.lists(st.integers(0, 600), max_size=8), payload=st.binary(max_size=125))
def test_frames_are_parsed_however_they_are_split(cuts: list[int], payload: bytes) -> None:
    """The same bytes give the same events wherever reads begin and end. Messages, whole or in
    fragments, are discarded, also those with a control frame between the fragments."""
    sent = b"".join(
        (
            whole(TEXT, b"x" * 200),
            whole(PING, payload),
            frame(TEXT, "é".encode()[:1]),
            whole(PONG, b"between"),
            whole(PING, b"between"),
            whole(CONTINUATION, "é".encode()[1:]),
            whole(BINARY),
            whole(CLOSE, (3001).to_bytes(2, "big") + b"bye"),
        )
    )
    ends = [*sorted(cut % len(sent) for cut in cuts), len(sent)]
    reads = [sent[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    assert received(*reads) == [payload, b"between", 3001]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bytes([0x81, 1]) + b"x", 1002),  # no mask
        (bytes([0x89, 0]), 1002),
        (frame(0xC1, b"x"), 1002),  # a bit of an extension
        (frame(0x83, b"x"), 1002),  # no such opcode
        (frame(0x8B), 1002),
        (frame(PING, b"part"), 1002),  # a fragmented control frame
        (frame(0x80 | PING, b"x" * 126), 1002),  # a control frame that is too long
        (frame(0x80, b"x"), 1002),  # continues nothing
        (frame(TEXT, b"x") + whole(TEXT, b"y"), 1002),  # begins within a message
        (frame(0x81, length=b"\x7e\x00\x05"), 1002),  # not the shortest form of the length
        (frame(0x81, length=b"\x7f" + (65_535).to_bytes(8, "big")), 1002),
        (frame(0x81, length=b"\x7f" + (1 << 63).to_bytes(8, "big")), 1002),
        (whole(TEXT, b"\xff"), 1007),  # not UTF-8
        (frame(0x81, length=b"\x7f" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big")), 1009),
        (frame(TEXT, b"x" * 40_000) + frame(0x80, b"x" * 40_000), 1009),  # together
    ],
)
def test_violations_of_a_client(sent: bytes, code: int) -> None:
    """Each violation has the code that the RFC gives it, also when it arrives byte by byte; what
    follows it is ignored."""
    assert received(sent, whole(PING)) == [code]
    assert received(*each_byte(sent), whole(PING)) == [code]


def test_a_length_is_rejected_before_the_payload() -> None:
    """The header of a frame that is too long is enough, even without its mask."""
    assert received(b"\x82\xff" + (1 << 40).to_bytes(8, "big")) == [1009]


def test_the_largest_message_is_accepted() -> None:
    """The limit is on one message: fragments up to it pass, control frames between them do not
    count, and the next message starts from zero."""
    half = b"x" * (MESSAGE_BYTES_MAX // 2)
    message = frame(TEXT, half) + whole(PING, b"x" * 125) + frame(0x80, half)
    assert received(message, message) == [b"x" * 125] * 2
    assert received(message, *each_byte(message[:8]), message[8:]) == [b"x" * 125] * 2
    assert received(frame(TEXT, half), frame(CONTINUATION, half), whole(CONTINUATION, b"x")) == [
        1009
    ]


def test_frames_of_one_read_are_limited() -> None:
    """One frame more than the limit in one read is a violation; in two reads it is not."""
    sent = whole(TEXT) * FRAMES_PER_READ_MAX
    assert received(sent, sent, whole(PING, b"p")) == [b"p"]
    assert received(sent + whole(TEXT), whole(PING)) == [1008]


@pytest.mark.parametrize(
    "begin",
    [
        frame(BINARY),  # fragments of a message without an end
        whole(CLOSE),
        frame(0xC1),  # a violation
    ],
)
def test_nothing_is_buffered(begin: bytes) -> None:
    """Memory does not grow with what a client sends: neither with fragments, nor with bytes that
    follow its close or a violation."""
    connection, read = FrameConnection(), frame(CONTINUATION, b"x") * 900
    list(connection.receive(begin))
    tracemalloc.start()
    try:
        for _ in range(50):
            list(connection.receive(read))
        kept_bytes, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 8_000


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", 1000),  # no code is a normal closure
        (b"\x03\xe8", 1000),
        (b"\x03\xe9gone", 1001),
        (b"\x0f\xa0", 4000),
        (b"\x03", 1002),  # half a code
        (b"\x00\x00", 1002),
        (b"\x03\xed", 1002),  # 1005 is never sent
        (b"\x03\xf8", 1002),  # 1016 is not assigned
        (b"\x13\x88", 1002),  # 5000 is in no range
        (b"\x03\xe8\xff", 1007),  # the reason is not UTF-8
    ],
)
def test_close_codes(payload: bytes, code: int) -> None:
    """A close is answered with its own code, or with the code of the violation."""
    assert received(whole(CLOSE, payload)) == [code]
    connection = FrameConnection()
    (event,) = connection.receive(whole(CLOSE, payload))
    assert isinstance(event, CloseConnection)
    assert connection.close(event.code) == b"\x88\x02" + code.to_bytes(2, "big")


def test_nothing_is_sent_after_a_close() -> None:
    """A close frame is the last one; that of the client is still parsed."""
    connection = FrameConnection()
    connection.close(1000)
    with pytest.raises(LocalProtocolError):
        connection.text(b"{}")
    assert len(list(connection.receive(whole(CLOSE, b"\x03\xe8")))) == 1
    assert list(connection.receive(whole(PING))) == []
