"""The event loop of a command: uvloop if it is installed (extra `server`), otherwise asyncio's.

Without the noise of connections that end. Not here: signals, and what a command does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end, on a loop of its own."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(_run(main))
    return uvloop.run(_run(main))


async def _run(main: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(_handle)
    return await main


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """uvloop reports data that arrives on a TLS connection just as it is aborted as an error."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        logger.debug("%s: %s", context.get("message"), error)
        return
    loop.default_exception_handler(context)
