"""Releases that change, and clocks that jump, under load."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.fire.burning import burn, on_stores


@on_stores
async def test_rolling_upgrade_with_rollback(store: str, tmp_path: Path) -> None:
    """Servers are replaced one by one, one goes back in the middle, and in the end all that is
    stored is migrated and proven; every value that was ever stored was in a version that the server
    had reported which stored it."""
    result = await burn(store, "rolling-upgrade", tmp_path)
    assert result.narrowed > 0


@on_stores
async def test_clocks_jump(store: str, tmp_path: Path) -> None:
    """Clocks that are two hours apart change nothing of what is promised."""
    await burn(store, "clock-skew", tmp_path)
