"""Broken invariants raise what no `except Exception` catches, and can end the process."""

import contextlib
import subprocess
import sys

import pytest

from restow.aio import InvariantViolation, find_violation, invariant
from restow.aio.invariants import EXIT_CODE_INVARIANT

ENDING = """
import asyncio, logging
from restow.aio import Runtime, end_process, invariant

async def bad():
    invariant(False, "two and two are five")

async def main():
    runtime = Runtime.system(fatal=end_process)
    runtime.tasks("owner").spawn("bad", bad())
    try:
        await asyncio.Event().wait()
    finally:
        print("clean-up ran")

logging.basicConfig()
asyncio.run(main())
"""


def test_a_true_condition_passes() -> None:
    """An invariant that holds has no effect."""
    invariant(1 + 1 == 2, "arithmetic")


def test_a_violation_passes_a_broad_except() -> None:
    """It is no Exception, so that a broad except at the top of a task does not catch it."""

    def careless() -> None:
        with contextlib.suppress(Exception):
            invariant(1 + 1 == 3, "arithmetic")

    with pytest.raises(InvariantViolation, match="arithmetic"):
        careless()


def test_find_violation_looks_into_groups() -> None:
    """It is found at any depth of exception groups, and not in groups without one."""
    violation = InvariantViolation("deep")
    inner = BaseExceptionGroup("inner", [ValueError(), violation])
    assert find_violation(BaseExceptionGroup("outer", [KeyError(), inner])) is violation
    assert find_violation(ExceptionGroup("outer", [KeyError()])) is None
    assert find_violation(KeyError()) is None


def test_end_process_ends_it_at_once() -> None:
    """The process ends with its own exit code, the reason in its log and no clean-up."""
    result = subprocess.run(
        [sys.executable, "-c", ENDING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert result.returncode == EXIT_CODE_INVARIANT
    assert "two and two are five" in result.stderr
    assert "task owner/bad broke an invariant" in result.stderr
    assert "clean-up ran" not in result.stdout
