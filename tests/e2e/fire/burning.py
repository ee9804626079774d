"""Runs of `python -m tests.support.fire`, on the stores of the selected test size.

Tests assert no rate, as it depends on time; they wait for a number of writes instead.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sizes import SIZES
from tests.support.fire.run import FAULTS, FireResult, run_fire
from tests.support.fire.stores import CannotBeMade

SEED = 1


async def burn(store: str, fault: str, directory: Path) -> FireResult:
    """Runs a fault; the run must have no violations."""
    if store not in FAULTS[fault].STORES:
        pytest.skip(f"there is no {fault} on {store}")
    try:
        result = await run_fire(
            store,
            fault,
            seed=SEED,
            seconds=SIZES.fire_seconds,
            directory=directory / "run",
            writes_per_second_min=0.0,
        )
    except CannotBeMade as error:
        pytest.skip(str(error))
    assert not result.problems, "\n".join(result.problems)
    assert result.watchers == 100
    assert result.events > result.acknowledged >= 100
    assert result.revisions >= result.values > result.acknowledged // 2
    return result


on_stores = pytest.mark.parametrize("store", SIZES.fire_stores)
