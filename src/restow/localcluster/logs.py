"""Log files of processes, with rotation by size.

A write error loses output, but never affects the process or its parent. Not here: analysis of the
output. Only the last lines are kept in memory, for messages.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Final, Protocol

LOG_BYTES_MAX: Final = 8 * 1024 * 1024
LOGS_KEPT: Final = 3
"""Number of rotated files; `NAME.log.1` is the newest."""
TAIL_LINES: Final = 20
LINE_BYTES_MAX: Final = 16 * 1024
"""Longer lines are complete in the file, and truncated in messages."""

logger = logging.getLogger(__name__)


class LogSink(Protocol):
    """Receives the output of a process."""

    @property
    def path(self) -> Path:
        """The location, for messages."""
        ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class RotatingLog:
    """A file that is appended to, and its rotated predecessors."""

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._bytes = path.stat().st_size
        self._complaint = ""

    def write(self, data: bytes) -> None:
        """Write output; never fails: on a full disk the output is lost."""
        complaint = ""
        try:
            if self._bytes and self._bytes + len(data) > self._bytes_max:
                self._rotate()
        except OSError as error:
            complaint = f"{self.path} cannot be rotated: {error.strerror}"
        try:
            self._bytes += self._file.write(data) or 0
        except OSError as error:
            complaint = f"{self.path} cannot be written: {error.strerror}"
        if complaint and complaint != self._complaint:
            logger.warning("%s", complaint)
        self._complaint = complaint

    def close(self) -> None:
        self._file.close()

    def _rotate(self) -> None:
        for number in range(LOGS_KEPT, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path if number == 1 else older.with_suffix(f".{number - 1}")
            if newer.exists():
                newer.replace(older)
        before, self._file = self._file, self.path.open("ab", buffering=0)
        before.close()
        self._bytes = 0


class LineBuffer:
    """Splits bytes into lines, and keeps the last ones."""

    def __init__(self) -> None:
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def feed(self, data: bytes) -> list[str]:
        """Add bytes; return the lines that are now complete."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:LINE_BYTES_MAX]
        lines = [line[:LINE_BYTES_MAX].decode(errors="replace") for line in whole]
        self.tail.extend(lines)
        return lines

    def end(self) -> None:
        """Add the last line, if it has no newline."""
        if self._rest:
            self.feed(b"\n")
