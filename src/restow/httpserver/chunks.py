"""Finds the end of a chunked body, so that the parser gets whole chunks and nothing after the body.

The scanner reads the sizes of chunks and skips their data; each byte still goes through the parser,
which decides whether it is well-formed. If the two disagree on the end of a body, the request is
rejected (`reader`), so the scanner cannot make a request of bytes that the parser has not accepted.

Not here: the parser (`request_head`), and how much of a body is read at once (`reader`).
"""

from __future__ import annotations

import re
from typing import Final

from restow.httpserver.request_head import RequestRefused

_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+")
_SIZE_DIGITS_MAX: Final = 16
_END: Final = b"\r\n\r\n"


class ChunkScanner:
    """The framing of one chunked body."""

    __slots__ = ("_data_left", "_line", "_tail", "complete")

    def __init__(self) -> None:
        # Bytes that remain of the current chunk, including the line end after it.
        self._data_left = 0
        # The start of the current size line, as far as it is needed.
        self._line = b""
        # After the last chunk: the latest bytes, which may contain the start of the end of the
        # body.
        self._tail: bytes | None = None
        self.complete = False

    def scan(self, data: bytes, begin: int, *, chunks_max: int) -> int:
        """The position to read up to: the end of the body or of the data, or after `chunks_max`
        chunks.

        Raises a 400 RequestRefused for an invalid size.
        """
        position = begin
        for _ in range(chunks_max):
            if self._tail is not None:
                return self._scan_trailers(data, position)
            left = len(data) - position
            if left <= self._data_left:
                self._data_left -= left
                return len(data)
            position += self._data_left
            self._data_left = 0
            line_end = data.find(b"\n", position)
            self._line += data[position : position + _SIZE_DIGITS_MAX + 1 - len(self._line)]
            if line_end < 0:
                return len(data)
            self._begin_chunk()
            position = line_end + 1
        return position

    def _begin_chunk(self) -> None:
        """Parse the complete size line."""
        digits = _SIZE.match(self._line)
        if digits is None or digits.end() > _SIZE_DIGITS_MAX:
            raise RequestRefused(400, "malformed request: Invalid character in chunk size")
        self._line = b""
        size = int(digits[0], 16)
        if size:
            self._data_left = size + 2
        else:
            self._tail = b"\r\n"  # the end of the size line, which an empty line may follow

    def _scan_trailers(self, data: bytes, begin: int) -> int:
        """Search for the empty line that ends the body."""
        tail = self._tail
        assert tail is not None
        seen = tail + data[begin : begin + len(_END) - 1]
        mark = seen.find(_END)
        if mark >= 0:
            end = begin + mark + len(_END) - len(tail)
        else:
            mark = data.find(_END, begin)
            end = mark + len(_END)
        self.complete = mark >= 0
        if not self.complete:
            self._tail = (tail + data[begin:])[-3:] if len(data) - begin < 3 else data[-3:]
            return len(data)
        return end
