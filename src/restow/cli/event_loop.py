"""The event loop of a command: uvloop if it is installed (extra `server`), otherwise asyncio's.

It suppresses spurious errors of closed connections. Not here: signals, and the commands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on a new event loop."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(_run(main))
    return uvloop.run(_run(main))


async def _run(main: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(_handle)
    return await main


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore the error of uvloop for data that arrives while a TLS connection is aborted."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        logger.debug("%s: %s", context.get("message"), error)
        return
    loop.default_exception_handler(context)
