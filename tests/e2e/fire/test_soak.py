"""A soak test that is much too short, from start to end."""

from __future__ import annotations

from pathlib import Path

from tests.sizes import SIZES
from tests.support.fire.soak import run_soak


async def test_soak(tmp_path: Path) -> None:
    """Servers are sampled under load; the report has all figures."""
    result = await run_soak(
        "sqlite", seed=1, seconds=SIZES.fire_seconds, directory=tmp_path / "run"
    )
    assert result.acknowledged > 0
    assert result.samples > 1
    assert [trend.what for trend in result.trends] == [*["memory_kib"] * 3, "files", "tasks"]
    assert all(trend.mean > 0 for trend in result.trends)
