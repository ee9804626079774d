"""Others write while a rewrite runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storageversion.rewrite_checks import check_concurrent, check_conflict
from tests.unit.storageversion.rewrite_world import rewriting

SEEDS = range(6)


async def test_a_conflict_is_no_proof(tmp_path: Path) -> None:
    """An object that has changed is looked at again, and rewritten if it must be."""
    async with rewriting(tmp_path) as it:
        await check_conflict(it)


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_and_nothing_comes_back(tmp_path: Path, seed: int) -> None:
    """Each acknowledged update and deletion is there in the end, and all is in the target."""
    async with rewriting(tmp_path, seed=seed) as it:
        await check_concurrent(it, seed)
