"""Controllers started and stopped by tests, with their events and metrics recorded.

Time is simulated: a test waits for a condition while time advances.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from restow.aio import Runtime, SimulatedClock
from restow.client import ApiClient, Object
from restow.migration.trigger.controller import TriggerController
from restow.migration.trigger.options import TriggerOptions

STEP_SECONDS = 0.25


class Recorded:
    """The events and metrics of controllers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []
        """The kind of the object, the reason, the message."""
        self.warnings: list[str] = []
        self.done: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self.counts = (0, 0)

    def event(self, about: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        self.events.append((str(about["kind"]), reason, message))
        if is_warning:
            self.warnings.append(reason)

    def decided(self, resource: str, action: str) -> None:
        self.done.append((resource, action))

    def failed(self, resource: str) -> None:
        self.failures.append(resource)

    def states(self, *, agreed: int, split: int) -> None:
        self.counts = (agreed, split)

    def reasons(self, kind: str = "") -> list[str]:
        return [reason for about, reason, _ in self.events if kind in {"", about}]


class Stage:
    """The controllers of one test."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.recorded = Recorded()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(
        self, client: ApiClient, options: TriggerOptions, *, name: str = "trigger", **parts: Any
    ) -> TriggerController:
        runtime = Runtime.simulated(name, clock=self.clock)
        controller = TriggerController(
            client,
            runtime=runtime,
            settings=options,
            recorder=self.recorded,
            metrics=self.recorded,
            **parts,
        )
        self._tasks[name] = asyncio.create_task(controller.run(), name=name)
        return controller

    async def end(self, name: str = "trigger") -> None:
        """Stops a controller as in a crash: its memory is lost."""
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for name in list(self._tasks):
            await self.end(name)

    def check(self) -> None:
        """Raises the error of a controller that has failed."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def until(
        self, is_so: Callable[[], bool | Awaitable[bool]], *, seconds_max: float = 60.0
    ) -> None:
        """Advances time until the condition is true."""
        for _ in range(int(seconds_max / STEP_SECONDS) + 1):
            await self.clock.settle()
            found = is_so()
            if not isinstance(found, bool):
                found = await self.clock.run_until_done(found)
            if found:
                self.check()
                return
            self.check()
            await self.clock.advance(STEP_SECONDS)
        raise AssertionError(f"not so within {seconds_max} seconds")


@asynccontextmanager
async def open_stage(clock: SimulatedClock) -> AsyncIterator[Stage]:
    stage = Stage(clock)
    try:
        yield stage
        stage.check()
    finally:
        await stage.close()
