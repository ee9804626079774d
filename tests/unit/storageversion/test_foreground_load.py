"""Concurrent writes during a rewrite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.storageversion.rewrite_checks import check_concurrent, check_conflict
from tests.unit.storageversion.rewrite_world import rewriting

SEEDS = range(6)


async def test_a_conflict_does_not_count_as_rewritten(tmp_path: Path) -> None:
    """An object that has changed is read again, and rewritten if necessary."""
    async with rewriting(tmp_path) as it:
        await check_conflict(it)


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_update_is_lost_and_no_deletion_reverted(tmp_path: Path, seed: int) -> None:
    """Each acknowledged update and deletion persists, and all objects are in the target version."""
    async with rewriting(tmp_path, seed=seed) as it:
        await check_concurrent(it, seed)
