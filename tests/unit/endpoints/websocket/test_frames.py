"""Frames: made, read however they are cut, and refused with the code that the standard names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from restow.endpoints.websocket.frames import (
    BINARY,
    CLOSE,
    FRAMES_AT_ONCE_MAX,
    MESSAGE_BYTES_MAX,
    PING,
    PONG,
    TEXT,
    Control,
    FrameError,
    FrameReader,
    close_code,
    encode_close,
    encode_frame,
)

MASK = b"\x11\x22\x33\x44"


def frame(first: int, payload: bytes = b"", *, length: bytes | None = None) -> bytes:
    """A frame of a client; its first byte as it stands, its length perhaps otherwise."""
    size = len(payload)
    if length is None:
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    masked = bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))
    return bytes([first, length[0] | 0x80]) + length[1:] + MASK + masked


def whole(opcode: int, payload: bytes = b"") -> bytes:
    return frame(0x80 | opcode, payload)


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=6),
    opcode=st.sampled_from([TEXT, BINARY]),
)
def test_another_implementation_reads_what_is_sent(payloads: list[bytes], opcode: int) -> None:
    """Whatever the length of a message, the client gets just that message."""
    client = Connection(ConnectionType.CLIENT)
    texts = [payload.hex().encode() if opcode == TEXT else payload for payload in payloads]
    texts.append(b"x" * 70_000)
    client.receive_data(b"".join(encode_frame(opcode, text) for text in texts))
    got: list[bytes] = []
    part = b""
    for event in client.events():
        assert isinstance(event, TextMessage | BytesMessage)
        part += event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        if event.message_finished:
            got.append(part)
            part = b""
    assert got == texts


@given(cuts=st.lists(st.integers(0, 600), max_size=8), payload=st.binary(max_size=125))
def test_frames_are_read_however_they_are_cut(cuts: list[int], payload: bytes) -> None:
    """The same bytes give the same control frames, wherever reads begin and end; messages between
    them, whole or in parts, are passed over."""
    client = Connection(ConnectionType.CLIENT)
    sent = b"".join(
        (
            client.send(TextMessage(data="x" * 200)),
            client.send(Ping(payload=payload)),
            frame(TEXT, b"part"),
            whole(PONG, b"between"),
            frame(0x80, b"end"),
            client.send(BytesMessage(data=b"")),
            client.send(CloseConnection(code=3001, reason="bye")),
        )
    )
    reader, found, last = FrameReader(), [], 0
    for cut in [*sorted(cut % len(sent) for cut in cuts), len(sent)]:
        found += reader.feed(sent[last:cut])
        last = cut
    close = (3001).to_bytes(2, "big") + b"bye"
    assert found == [Control(PING, payload), Control(PONG, b"between"), Control(CLOSE, close)]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (bytes([0x81, 1]) + b"x", 1002),  # no mask
        (bytes([0x89, 0]), 1002),
        (frame(0xC1, b"x"), 1002),  # a bit of an extension
        (frame(0x83, b"x"), 1002),  # no such opcode
        (frame(0x8B), 1002),
        (frame(PING, b"part"), 1002),  # a control frame in parts
        (frame(0x80 | PING, b"x" * 126), 1002),  # and one that is too long
        (frame(0x80, b"x"), 1002),  # continues nothing
        (frame(TEXT, b"x") + whole(TEXT, b"y"), 1002),  # begins within a message
        (frame(0x81, length=b"\x7e\x00\x05"), 1002),  # a length that is longer than need be
        (frame(0x81, length=b"\x7f" + (65_535).to_bytes(8, "big")), 1002),
        (frame(0x81, length=b"\x7f" + (1 << 63).to_bytes(8, "big")), 1002),
        (frame(0x81, length=b"\x7f" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big")), 1009),
        (frame(TEXT, b"x" * 40_000) + frame(0x80, b"x" * 40_000), 1009),  # together
        (whole(TEXT) * FRAMES_AT_ONCE_MAX + whole(TEXT), 1008),
    ],
)
def test_what_a_client_may_not_send(sent: bytes, code: int) -> None:
    """Each breach has the code that the standard gives it, also when it comes byte by byte."""
    with pytest.raises(FrameError) as whole_error:
        FrameReader().feed(sent)
    assert whole_error.value.code == code
    if code != 1008:
        reader, pieces = FrameReader(), (sent[index : index + 1] for index in range(len(sent)))
        with pytest.raises(FrameError) as error:
            list(map(reader.feed, pieces))
        assert error.value.code == code


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"", 1000), (b"\x03\xe8", 1000), (b"\x03\xe9gone", 1001), (b"\x0f\xa0", 4000)],
)
def test_codes_of_a_close(payload: bytes, code: int) -> None:
    """What a client gives as its reason is understood; without one it is the ordinary one."""
    assert close_code(payload) == code
    assert encode_close(code) == b"\x88\x02" + code.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"\x03", 1002), (b"\x00\x00", 1002), (b"\x03\xed", 1002), (b"\x03\xe8\xff", 1007)],
)
def test_codes_that_nobody_may_send(payload: bytes, code: int) -> None:
    """Half a code, one that is not for the wire, and a reason that is no text are told apart."""
    with pytest.raises(FrameError) as error:
        close_code(payload)
    assert error.value.code == code
