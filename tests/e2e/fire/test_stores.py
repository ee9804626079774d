"""Stores that are unreachable, slow, full, or without a leader, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.fire.burning import burn, on_stores


@on_stores
@pytest.mark.parametrize("fault", ["partition", "slow-store", "full-disk", "leader-killed"])
async def test_store_fails(store: str, fault: str, tmp_path: Path) -> None:
    """Every response was correct, no refused write was done, and everything continues without a
    restart when the store works again."""
    if fault == "leader-killed" and store == "sqlite":
        return  # it has no leader
    await burn(store, fault, tmp_path)
