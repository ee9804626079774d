"""How the tests here run: as `python -m tests.support.fire` does, on the stores of their size.

A rate is a time, and no test asserts one; so many writes are waited for instead.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sizes import SIZES
from tests.support.fire.run import FAULTS, FireResult, run_fire
from tests.support.fire.stores import CannotBeMade

SEED = 1


async def burn(store: str, fault: str, directory: Path) -> FireResult:
    """A run of which nothing was wrong."""
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
