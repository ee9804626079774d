"""Where the steps of a write run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.apimachinery.structural.cel.run import trial_on_loop
from restow.apimachinery.structural.cel.values import TrialOver
from restow.registry.long_work import WorkRunner, in_thread
from restow.registry.write_options import ObjectWriteOptions

T = TypeVar("T")


@pytest.mark.parametrize(
    ("body_bytes", "stored_bytes", "is_long"),
    [
        (LONG_BODY_SIZE, 0, False),
        (LONG_BODY_SIZE, 1, True),
        (0, LONG_BODY_SIZE + 1, True),
        (LONG_BODY_SIZE + 1, 0, True),
    ],
)
async def test_long_steps_run_in_a_thread(
    body_bytes: int, stored_bytes: int, *, is_long: bool
) -> None:
    """A step is long if the body and the stored object together exceed the limit."""
    runner = ObjectWriteOptions(body_bytes=body_bytes).runner(stored_bytes)
    thread = await runner.run(threading.get_ident)
    assert (thread != threading.get_ident()) is is_long


async def test_rules_over_their_budget_run_in_a_thread() -> None:
    """A step whose rules exceed the budget on the event loop is repeated without a budget."""
    budgets = []

    def step(name: str) -> str:
        trial = trial_on_loop()
        budgets.append(None if trial is None else trial.cost_left)
        if trial is not None:
            raise TrialOver
        return name

    used = []

    async def run_long(work: Callable[[], T]) -> T:
        used.append(1)
        return await in_thread(work)

    assert await WorkRunner(run_long, is_long=False).run(step, "a", has_rules=True) == "a"
    assert len(used) == 1
    assert budgets[0]
    assert budgets[1] is None
    assert trial_on_loop() is None
