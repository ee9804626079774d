"""Logs of processes: what they say goes into a file, which is put aside when it grows too large.

A log that cannot be written costs words, never the process that said them or the one that listens.
Not here: reading them for an answer. Only the last lines are kept in memory, for messages.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Final, Protocol

LOG_BYTES_MAX: Final = 8 * 1024 * 1024
LOGS_KEPT: Final = 3
"""Older files: `NAME.log.1` is the newest of them."""
TAIL_LINES: Final = 20
LINE_BYTES_MAX: Final = 16 * 1024
"""More than that is kept in the file, and shown cut."""

logger = logging.getLogger(__name__)


class LogSink(Protocol):
    """Where the words of a process go."""

    @property
    def path(self) -> Path:
        """What to call the place."""
        ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class RotatingLog:
    """One file that is appended to, and its predecessors."""

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self._bytes_max = bytes_max
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._bytes = path.stat().st_size
        self._complaint = ""

    def write(self, data: bytes) -> None:
        """Never fails: on a full disk the words are lost."""
        complaint = ""
        try:
            if self._bytes and self._bytes + len(data) > self._bytes_max:
                self._rotate()
        except OSError as error:
            complaint = f"{self.path} cannot be put aside: {error.strerror}"
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
    """Bytes as they come, made into lines; the last ones are remembered."""

    def __init__(self) -> None:
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def feed(self, data: bytes) -> list[str]:
        """The lines that are complete now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:LINE_BYTES_MAX]
        lines = [line[:LINE_BYTES_MAX].decode(errors="replace") for line in whole]
        self.tail.extend(lines)
        return lines

    def end(self) -> None:
        """Nothing more comes: what is left is a line too."""
        if self._rest:
            self.feed(b"\n")
