"""Runs that prove nothing are void, with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fire.fault import Window
from tests.support.fire.record import NOT_SENT, LoadRecord, WatcherRecord
from tests.support.fire.run import FAULTS, RunVoid, Times, check_bite, check_load, run_fire
from tests.unit.testing.fire.stories import told

TIMES = Times(calm=0.0, fault=1.0, healed=2.0, end=3.0)


def record(*ends: float) -> LoadRecord:
    writes = [told("create", f"0.{n}", n, at=(end, end)) for n, end in enumerate(ends)]
    return LoadRecord(seed=1, operations=writes, watchers=[])


def test_too_little_load() -> None:
    """Only writes outside of the fault count."""
    few = record(0.5, 2.5, *([1.5] * 1000))
    with pytest.raises(RunVoid, match="load: 1 writes/s outside of the fault, below 100"):
        check_load(few, TIMES, 100.0)
    check_load(record(*([0.5] * 100), *([2.5] * 100)), TIMES, 100.0)


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_fault_without_effect(fault: str) -> None:
    """Each fault must affect at least one operation."""
    quiet = Window([told("update", "0.1", 2, at=(1.0, 1.001))], cuts=0)
    with pytest.raises(RunVoid, match=f"{fault} had no effect"):
        check_bite(FAULTS[fault](), quiet)


def test_window() -> None:
    """A window has the operations that ended after its begin and began before its end."""
    load = record(0.5, 1.5, 2.5)
    load.operations[1].status = NOT_SENT
    load.watchers.append(WatcherRecord(number=0, namespace="", cuts=[0.5, 1.5]))
    window = Window.of(load, begin=1.0, end=2.0)
    assert (window.harmed(), window.harmed(server=1), window.cuts) == (1, 0, 1)


async def test_not_there(tmp_path: Path) -> None:
    """A SQLite file has no leader."""
    with pytest.raises(RunVoid, match="leader-killed is not for sqlite"):
        await run_fire("sqlite", "leader-killed", seed=1, seconds=1, directory=tmp_path)
