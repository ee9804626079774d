"""Upgrades, and clocks that jump, under load."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.fire.burning import burn, on_stores


@on_stores
async def test_rolling_upgrade_with_rollback(store: str, tmp_path: Path) -> None:
    """Servers are replaced one by one, one is rolled back in the middle, and in the end all
    objects are migrated and verified; every stored value was in a version that its server had
    reported."""
    result = await burn(store, "rolling-upgrade", tmp_path)
    assert result.narrowed > 0


@on_stores
async def test_clocks_jump(store: str, tmp_path: Path) -> None:
    """Clocks that are two hours apart affect no guarantee."""
    await burn(store, "clock-skew", tmp_path)
