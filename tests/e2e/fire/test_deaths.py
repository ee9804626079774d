"""Servers that die or stand still under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.fire.burning import burn, on_stores


@on_stores
@pytest.mark.parametrize("fault", ["kill-one", "kill-all", "pause"])
async def test_servers_end(store: str, fault: str, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, no answer was wrong, every watcher saw everything once, and
    nothing was ever stored in a version that its server had not reported."""
    result = await burn(store, fault, tmp_path)
    assert result.unknown + result.put_off > 0
