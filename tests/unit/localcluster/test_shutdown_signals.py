"""Shutdown by signals."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import SimulatedClock
from restow.localcluster.shutdown_signals import SAME_SECONDS, ShutdownSignals


async def test_the_first_signal_ends_the_work() -> None:
    """The work is interrupted, without an error."""
    ending = ShutdownSignals(SimulatedClock(), lambda: None)
    done: list[str] = []
    asyncio.get_running_loop().call_soon(ending.ask)
    async with ending.interrupts():
        try:
            await asyncio.Event().wait()
        finally:
            done.append("interrupted")
    assert done == ["interrupted"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_later_signal_kills() -> None:
    """The same signal twice at once counts once; after a while it counts again."""
    clock = SimulatedClock()
    hurries: list[float] = []
    ending = ShutdownSignals(clock, lambda: hurries.append(clock.monotonic()))
    ending.ask()
    ending.ask()
    assert hurries == []
    await clock.advance(SAME_SECONDS)
    ending.ask()
    assert len(hurries) == 1


async def test_errors_of_the_work_pass() -> None:
    """Only the cancellation by a shutdown is suppressed."""
    ending = ShutdownSignals(SimulatedClock(), lambda: None)
    with pytest.raises(ValueError, match="broken"):
        async with ending.interrupts():
            raise ValueError("broken")
