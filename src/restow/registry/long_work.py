"""Where the synchronous work of a write runs: on the event loop, or in a thread if it may be long.

What takes long is known by the size of the request and of the stored object, except for CEL rules:
they have a small budget on the event loop, and work that exceeds it is repeated in a thread.

Not here: the threads (`restow.request.offload`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from restow.apimachinery.structural.cel.run import try_on_loop
from restow.apimachinery.structural.cel.values import TrialOver
from restow.registry.field_management import NotConverted

T = TypeVar("T")


class RunLong(Protocol):
    """Runs work in a thread and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def in_thread(work: Callable[[], T]) -> T:
    """Run work of the server itself in a thread of the event loop's own pool."""
    return await asyncio.to_thread(work)


class WorkRunner(NamedTuple):
    """Runs the steps of one write."""

    run_long: RunLong
    is_long: bool
    """Whether the body and the stored object are too long for the event loop."""

    async def run(self, step: Callable[..., T], *args: Any, has_rules: bool = False) -> T:
        """Return the result of a step; repeat it after each conversion that it needs.

        `has_rules`: the step may evaluate rules, and can be started again in a thread.
        """
        is_long = self.is_long
        while True:
            try:
                if is_long:
                    return await self.run_long(partial(step, *args))
                return try_on_loop(partial(step, *args)) if has_rules else step(*args)
            except TrialOver:
                is_long = True
            except NotConverted as needed:
                await needed.settle()


ON_LOOP: Final = WorkRunner(in_thread, is_long=False)
"""For objects that are small."""
