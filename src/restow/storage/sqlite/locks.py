"""Locks between processes: the write lock, and the lock that shows that the file is in use.

SQLite's own busy handling starves all writers but one, so every write transaction is made under
an flock. A second lock, the turnstile, is held while waiting for the first: a process that has just
written must pass the turnstile again and so cannot overtake a waiter.
flock belongs to an open file, so two handles of one process exclude each other as well.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Final

from restow.storage.errors import Unavailable

WAIT_SECONDS_MAX: Final = 10.0
WAIT_STEP_SECONDS: Final = 0.001

WRITE_LOCK: Final = "write.lock"
TURN_LOCK: Final = "turn.lock"
USERS_LOCK: Final = "users.lock"


class FileLock:
    """One flock on one file of its own, which is never deleted."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._never = threading.Event()  # to sleep on: it is never set

    def acquire(self, *, seconds_max: float) -> bool:
        """Wait for the lock, with a timeout. Blocks the thread.

        It polls, since a wait inside the system has no limit: a process that was stopped while it
        had the lock would stop all others with it.
        """
        for _ in range(max(1, round(seconds_max / WAIT_STEP_SECONDS))):
            if self.try_acquire():
                return True
            self._never.wait(WAIT_STEP_SECONDS)
        return self.try_acquire()

    def try_acquire(self) -> bool:
        return self._try(fcntl.LOCK_EX)

    def share(self) -> None:
        """Hold the lock shared. Blocks the thread while another process has it exclusively."""
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
    """The write lock, granted fairly."""

    def __init__(self, directory: Path) -> None:
        self._write = FileLock(directory / WRITE_LOCK)
        self._turn = FileLock(directory / TURN_LOCK)

    def try_acquire(self) -> bool:
        """Take it if it is free and no process waits for it."""
        if not self._turn.try_acquire():
            return False
        try:
            return self._write.try_acquire()
        finally:
            self._turn.release()

    def acquire(self) -> None:
        """Wait for it. Blocks the thread. Raises `Unavailable` after a timeout."""
        if self._turn.acquire(seconds_max=WAIT_SECONDS_MAX):
            try:
                if self._write.acquire(seconds_max=WAIT_SECONDS_MAX):
                    return
            finally:
                self._turn.release()
        raise Unavailable(
            f"another process has held the write lock for {WAIT_SECONDS_MAX:.0f} s;"
            " is one of the processes that share the file stopped?"
        )

    def release(self) -> None:
        self._write.release()

    def close(self) -> None:
        self._write.close()
        self._turn.close()
