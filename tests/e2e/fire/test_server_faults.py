"""Servers that are killed, stopped or paused under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.fire.burning import burn, on_stores


@on_stores
@pytest.mark.parametrize("fault", ["kill-one", "kill-all", "pause"])
async def test_servers_end(store: str, fault: str, tmp_path: Path) -> None:
    """No acknowledged write is lost, no response was wrong, every watch had every event once,
    and every stored value was in a version that its server had reported."""
    result = await burn(store, fault, tmp_path)
    assert result.unknown + result.put_off > 0
