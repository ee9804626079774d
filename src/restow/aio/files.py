"""Reads files of other programs without blocking forever.

A file may be a pipe without a writer, a device without an end, or on a file system that does not
respond. The first two are rejected at once; for the third there is `in_own_thread`.

Not here: the contents of files, and file permissions.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class FileRefused(OSError, ValueError):
    """A file exists but is rejected, because of its type or size."""


def read_regular_file(
    path: Path | str, *, bytes_max: int, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """Read a whole file; blocks. Raises an OSError with a readable `strerror`, also for a file that
    is not regular or too large. `check` may reject the opened file by its status."""
    # Opening a pipe must not wait for a writer.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        check_regular(status, path)
        if check is not None:
            check(status)
        with os.fdopen(opened, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(opened)
    if len(data) > bytes_max:
        raise FileRefused(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    return data


def check_regular(status: os.stat_result, path: Path | str) -> None:
    """Raise an OSError unless the file is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        text = "it is not a regular file: a pipe or device may be endless and can be read only once"
        raise FileRefused(errno.EINVAL, text, str(path))


async def in_own_thread(name: str, work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread, which neither the end of the event loop nor that of the
    process waits for. If the caller is cancelled, the thread continues, so the work must be
    harmless."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def succeed(value: T) -> None:
        if not outcome.done():
            outcome.set_result(value)

    def fail(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def run() -> None:
        # The loop may be closed by now: the result is dropped then.
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - passed to the awaiting task
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(fail, error)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(succeed, value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome
