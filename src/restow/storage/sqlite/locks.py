"""Locks between processes: who may write now, and who uses the file at all.

SQLite's own busy handling starves all writers but one, so every write transaction is made under
an flock. A second lock, the turnstile, is held while one waits for the first: who has just
written must pass the turnstile again and so cannot overtake a waiter.

flock belongs to an open file, so two handles of one process exclude each other as well.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

WRITE_LOCK: Final = "write.lock"
TURN_LOCK: Final = "turn.lock"
USERS_LOCK: Final = "users.lock"


class FileLock:
    """One flock on one file of its own, which is never deleted."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> None:
        """Wait for the lock. Blocks the thread."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def try_acquire(self) -> bool:
        return self._try(fcntl.LOCK_EX)

    def share(self) -> None:
        """Hold the lock together with others. Blocks the thread while one has it alone."""
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)

    def _try(self, mode: int) -> bool:
        try:
            fcntl.flock(self._file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class WriteLock:
    """The right to write, handed round fairly."""

    def __init__(self, directory: Path) -> None:
        self._write = FileLock(directory / WRITE_LOCK)
        self._turn = FileLock(directory / TURN_LOCK)

    def try_acquire(self) -> bool:
        """Take it if nobody has it and nobody waits for it."""
        if not self._turn.try_acquire():
            return False
        try:
            return self._write.try_acquire()
        finally:
            self._turn.release()

    def acquire(self) -> None:
        """Wait for it. Blocks the thread."""
        self._turn.acquire()
        try:
            self._write.acquire()
        finally:
            self._turn.release()

    def release(self) -> None:
        self._write.release()

    def close(self) -> None:
        self._write.close()
        self._turn.close()
