"""One read that is shared by several concurrent callers.

Many resources are reconciled in the same seconds, and each needs the same lists. A caller gets a
read that started after its call, so that it is as fresh as its own; callers during a read share the
next one.

Not here: what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from restow.aio import Tasks

T = TypeVar("T")


class SharedReading(Generic[T]):
    """A shared read. The tasks own it; callers may be cancelled."""

    def __init__(self, name: str, read: Callable[[], Awaitable[T]], *, tasks: Tasks) -> None:
        self._name = name
        self._read = read
        self._tasks = tasks
        self._waiting: list[asyncio.Future[T]] = []
        self._is_reading = False

    async def get(self) -> T:
        """Return the result of a read that starts from now on, or raise its error."""
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
                except Exception as error:  # noqa: BLE001 - it is raised to the callers
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
                future.cancel()  # only if the read itself was cancelled: otherwise all are done
            self._waiting = []
