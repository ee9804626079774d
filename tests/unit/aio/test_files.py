"""Files of other programs: which are read or rejected, and threads that do not end."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from restow.aio import in_own_thread, read_regular_file


def test_files_are_read_whole(tmp_path: Path) -> None:
    """Up to the limit; one byte more is rejected."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular_file(path, bytes_max=5) == b"12345"
    with pytest.raises(OSError, match="it has more than 4 bytes"):
        read_regular_file(path, bytes_max=4)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none", bytes_max=4)


def test_special_files_are_rejected_at_once(tmp_path: Path) -> None:
    """A pipe without a writer, a device, and a directory."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="it is not a regular file"):
            read_regular_file(path, bytes_max=4)


async def test_own_threads_answer_and_fail() -> None:
    """The result or error of the work is returned or raised."""
    assert await in_own_thread("test", lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await in_own_thread("test", lambda: 1 // 0)


def test_a_thread_that_does_not_end_blocks_nothing() -> None:
    """The caller can be cancelled, and the loop ends; the thread drops its late result."""
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        over.set()

    async def give_up() -> None:
        waiting = asyncio.ensure_future(in_own_thread("stuck", work))
        await asyncio.to_thread(begun.wait, 10)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(give_up())
    [stuck] = [each for each in threading.enumerate() if each.name == "stuck"]
    assert stuck.daemon
    go_on.set()
    stuck.join(10)
    assert over.is_set()
