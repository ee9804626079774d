"""The runtime that is passed to all parts, and the package's list of names."""

import dataclasses

import pytest

import restow.aio
from restow.aio import (
    InvariantViolation,
    Runtime,
    SeededRandomness,
    SimulatedClock,
    SystemClock,
    SystemRandomness,
    invariant,
)


def test_simulated_runtimes_replay() -> None:
    """The same seed gives the same IDs and values, and new IDs do not affect the values."""
    first, second = Runtime.simulated(7), Runtime.simulated(7)
    assert [first.ids.uid() for _ in range(5)] == [second.ids.uid() for _ in range(5)]
    third = Runtime.simulated(7)
    third.ids.uid()
    assert first.randomness.randrange(10**9) == third.randomness.randrange(10**9)
    assert Runtime.simulated(8).ids.uid() != Runtime.simulated(7).ids.uid()


def test_simulated_uses_the_given_clock() -> None:
    """The given clock is used, so that a test can control it."""
    clock = SimulatedClock()
    assert Runtime.simulated(1, clock=clock).clock is clock
    assert isinstance(Runtime.simulated(1).clock, SimulatedClock)
    assert isinstance(Runtime.simulated(1).randomness, SeededRandomness)


def test_system_is_real() -> None:
    """The system runtime has the system clock and the system source of randomness."""
    runtime = Runtime.system()
    assert isinstance(runtime.clock, SystemClock)
    assert isinstance(runtime.randomness, SystemRandomness)
    assert runtime.ids.uid() != Runtime.system().ids.uid()


def test_a_runtime_cannot_be_changed() -> None:
    """A runtime is immutable, so that its clock cannot be replaced."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Runtime.system().clock = SimulatedClock()  # type: ignore[misc]


async def test_tasks_carry_the_fatal_hook() -> None:
    """Task owners made by a runtime report broken invariants to its hook."""
    seen: list[InvariantViolation] = []
    clock = SimulatedClock()
    runtime = Runtime.simulated(1, clock=clock, fatal=seen.append)

    async def bad() -> None:
        invariant(False, "broken")

    tasks = runtime.tasks("owner", tasks_max=1)
    tasks.spawn("bad", bad())
    await clock.settle()
    assert len(seen) == 1
    with pytest.raises(InvariantViolation):
        await tasks.close()


def test_all_is_true() -> None:
    """Every name in __all__ exists, and the list is sorted and without duplicates."""
    names = restow.aio.__all__
    assert all(hasattr(restow.aio, name) for name in names)
    assert list(names) == sorted(set(names))
