"""Frames of WebSockets (RFC 6455, section 5): made for a server, read from a client.

Nothing here knows a connection: the same bytes cut in any way give the same frames. What the
messages of a client say is not kept, since nobody reads it; only how long they are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
INVALID_TEXT: Final = 1007
POLICY: Final = 1008
TOO_BIG: Final = 1009

CONTROL_BYTES_MAX: Final = 125
"""Of the standard."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Of what a client may say in one message, though nobody listens."""
FRAMES_AT_ONCE_MAX: Final = 1_000
"""In what was read at once. Empty ones cost more to read than to send."""

_CONTINUATION: Final = 0x0
_DATA: Final = frozenset({_CONTINUATION, TEXT, BINARY})
_CONTROL: Final = frozenset({CLOSE, PING, PONG})
_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_TWO_BYTES: Final = 126
_EIGHT_BYTES: Final = 127
_KNOWN_CODES: Final = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
_OWN_CODES: Final = range(3000, 5000)


class FrameError(Exception):
    """What a client may not send. `code` is what it is told."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Control(NamedTuple):
    """A whole control frame of a client."""

    opcode: int
    payload: bytes


def encode_frame(opcode: int, payload: bytes) -> bytes:
    """A whole message of a server in one frame."""
    length = len(payload)
    if length < _TWO_BYTES:
        return bytes((_FINAL | opcode, length)) + payload
    if length < 1 << 16:
        return bytes((_FINAL | opcode, _TWO_BYTES)) + length.to_bytes(2, "big") + payload
    return bytes((_FINAL | opcode, _EIGHT_BYTES)) + length.to_bytes(8, "big") + payload


def encode_close(code: int) -> bytes:
    return encode_frame(CLOSE, code.to_bytes(2, "big"))


def close_code(payload: bytes) -> int:
    """What a client says when it closes, if it may say that. Raises FrameError."""
    if not payload:
        return NORMAL
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (code in _KNOWN_CODES or code in _OWN_CODES):
        raise FrameError(PROTOCOL_ERROR, "no such code of a close")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(INVALID_TEXT, "the reason of a close is not UTF-8") from None
    return code


class FrameReader:
    """The frames of one client."""

    __slots__ = ("_held", "_in_message", "_message_bytes", "_skip_bytes")

    def __init__(self) -> None:
        # The beginning of a frame that is not whole: never more than a control frame.
        self._held = b""
        # What is still to come of a frame that nobody reads.
        self._skip_bytes = 0
        self._in_message = False
        self._message_bytes = 0

    def feed(self, data: bytes) -> list[Control]:
        """The control frames that are whole by now. Raises FrameError."""
        if self._held:
            data = self._held + data
            self._held = b""
        found: list[Control] = []
        position, size = 0, len(data)
        for _ in range(FRAMES_AT_ONCE_MAX):
            if self._skip_bytes:
                skipped = min(self._skip_bytes, size - position)
                self._skip_bytes -= skipped
                position += skipped
            if position == size:
                return found
            head = _head_at(data, position)
            if head is None:
                break
            opcode, is_final, length, begin = head
            if opcode in _DATA:
                self._note_message(opcode, length, is_final=is_final)
                self._skip_bytes = _MASK_BYTES + length
                position = begin
                continue
            payload_begin = begin + _MASK_BYTES
            if payload_begin + length > size:
                break
            payload = data[payload_begin : payload_begin + length]
            found.append(Control(opcode, _unmasked(payload, data[begin:payload_begin])))
            position = payload_begin + length
        else:
            raise FrameError(POLICY, "too many frames at once")
        self._held = data[position:]
        return found

    def _note_message(self, opcode: int, length: int, *, is_final: bool) -> None:
        """A part of a message. Control frames may stand between the parts, other messages not."""
        if self._in_message is not (opcode == _CONTINUATION):
            raise FrameError(PROTOCOL_ERROR, "a frame continues no message, or comes within one")
        self._message_bytes = length if opcode != _CONTINUATION else self._message_bytes + length
        if self._message_bytes > MESSAGE_BYTES_MAX:
            raise FrameError(TOO_BIG, f"a message is over {MESSAGE_BYTES_MAX} bytes")
        self._in_message = not is_final


def _head_at(data: bytes, position: int) -> tuple[int, bool, int, int] | None:
    """Opcode, whether it is final, length, and where the mask is; None if it is not whole."""
    if len(data) - position < 2:
        return None
    first, second = data[position], data[position + 1]
    opcode = first & 0x0F
    if first & _RESERVED:
        raise FrameError(PROTOCOL_ERROR, "no extension was agreed on")
    if not second & _MASKED:
        raise FrameError(PROTOCOL_ERROR, "a frame of a client has a mask")
    length, begin = second & 0x7F, position + 2
    if opcode in _CONTROL:
        if not first & _FINAL or length > CONTROL_BYTES_MAX:
            raise FrameError(PROTOCOL_ERROR, "a control frame is short and whole")
    elif opcode not in _DATA:
        raise FrameError(PROTOCOL_ERROR, "there is no such frame")
    elif length >= _TWO_BYTES:
        length_bytes = 2 if length == _TWO_BYTES else 8
        begin += length_bytes
        if len(data) < begin:
            return None
        shown, length = length, int.from_bytes(data[position + 2 : begin], "big")
        if length < _TWO_BYTES or (shown == _EIGHT_BYTES and not 1 << 16 <= length < 1 << 63):
            raise FrameError(PROTOCOL_ERROR, "the length of a frame is not the shortest")
    return opcode, bool(first & _FINAL), length, begin


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    """What a client meant. Only ever short."""
    if len(payload) == 0:
        return payload
    key = (mask * (len(payload) // _MASK_BYTES + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")
    return number.to_bytes(len(payload), "big")
