"""A process that holds the write lock of an SQLite store, permanently or for short intervals.

    python -m tests.support.fire.lock_holder STORE [--seconds S]

It takes the same locks as a server: the lock beside the file, and an empty write transaction. So
the store is unavailable for writes of the servers, as if one of them had been stopped during a
write. Not here: when it is started and stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

from restow.aio import SystemClock
from restow.storage.sqlite.file_setup import peers_directory
from restow.storage.sqlite.locks import WriteLock
from tests.support.child_process import ChildProcess

HOURS_SECONDS: Final = 3600.0
HELD: Final = b"held\n"
PAUSE_SECONDS: Final = 0.005
"""Pause between two intervals, in which others write."""


class LockHolder(ChildProcess):
    """Holds the lock while it runs."""

    NAME = "holder"

    def __init__(self, directory: Path, file: Path, *, arguments: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._file = file
        self._arguments = tuple(arguments)

    def command(self) -> list[str]:
        module = "tests.support.fire.lock_holder"
        return [sys.executable, "-m", module, str(self._file), *self._arguments]

    def is_ready(self, printed: str) -> bool:
        return HELD.decode() in printed

    @property
    def times(self) -> int:
        """How often it has taken the lock."""
        return self.out_file.read_bytes().count(HELD)


async def hold(file: Path, *, seconds: float) -> None:
    """Take the lock, hold it for `seconds`, and release it, repeatedly."""
    clock, lock = SystemClock(), WriteLock(peers_directory(file))
    connection = apsw.Connection(str(file))
    connection.set_busy_timeout(10_000)
    while True:
        lock.acquire()
        connection.execute("BEGIN IMMEDIATE")
        os.write(1, HELD)
        await clock.sleep(seconds)
        connection.execute("ROLLBACK")
        lock.release()
        await clock.sleep(PAUSE_SECONDS)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Hold the write lock of a store.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=HOURS_SECONDS)
    given = parser.parse_args(words)
    asyncio.run(hold(given.file, seconds=given.seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
