"""Files that somebody else writes, read so that nobody waits for ever.

A file may be a pipe that nobody writes to, a device that never ends, or lie on a file system that
does not answer. The first two are refused at once; for the third there is `in_own_thread`.

Not here: what a file holds, and who may read it.
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
    """A file that is there, and that nobody wants to read."""


def read_regular_file(
    path: Path | str, *, bytes_max: int, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """All that is in a file. It blocks. An OSError, whose `strerror` is for people, also for what
    is no regular file and for what is longer. `check` may refuse the very file that is read."""
    # Opening must not wait for somebody who writes.
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
    """Refuse all but files. Raises OSError."""
    if not stat.S_ISREG(status.st_mode):
        text = "it is no regular file: a pipe or a device may never end, and can be read only once"
        raise FileRefused(errno.EINVAL, text, str(path))


async def in_own_thread(name: str, work: Callable[[], T]) -> T:
    """Do what blocks in a thread that nobody waits for, if it does not end: not the loop's end,
    nor that of the process. Whoever is cancelled leaves it behind, so it must do no harm then."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def succeed(value: T) -> None:
        if not outcome.done():
            outcome.set_result(value)

    def fail(error: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def run() -> None:
        # The loop may be closed by now: then nobody wants to know.
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - passed on to who waits, whatever it is
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(fail, error)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(succeed, value)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome
