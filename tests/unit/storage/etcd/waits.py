"""Polling until a condition is true, in tests with real processes."""

import asyncio
from collections.abc import Awaitable, Callable

SECONDS_MAX = 20.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll the condition; fails after a generous timeout."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():  # noqa: ASYNC110  (other processes set no event)
            await asyncio.sleep(0.01)
