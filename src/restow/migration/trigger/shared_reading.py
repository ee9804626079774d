"""One reading for all who wait for it.

Many resources are looked at in the same seconds, and each look needs the same lists. Whoever asks
gets a reading that began after they asked, so that it is as fresh as one of their own; those who
ask while one is under way share the next.

Not here: what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from restow.aio import Tasks

T = TypeVar("T")


class SharedReading(Generic[T]):
    """Something to read. The tasks own the reading; those who wait may go away."""

    def __init__(self, name: str, read: Callable[[], Awaitable[T]], *, tasks: Tasks) -> None:
        self._name = name
        self._read = read
        self._tasks = tasks
        self._waiting: list[asyncio.Future[T]] = []
        self._is_reading = False

    async def get(self) -> T:
        """A reading that begins from now on, or the error that it ended with."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._is_reading:
            self._tasks.spawn(self._name, self._run())
            self._is_reading = True
        self._waiting.append(future)
        return await future

    async def _run(self) -> None:
        served: list[asyncio.Future[T]] = []
        try:
            while self._waiting:
                served, self._waiting = self._waiting, []
                try:
                    found = await self._read()
                except Exception as error:  # noqa: BLE001 - it is theirs who asked
                    for future in served:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for future in served:
                        if not future.done():
                            future.set_result(found)
        finally:
            self._is_reading = False
            for future in (*served, *self._waiting):
                future.cancel()  # only if the reading itself was: all others have an answer
            self._waiting = []
