"""Whether figures are constant, by the slope over the second half."""

from __future__ import annotations

import math

import pytest

from tests.support.fire.soak import Sample, SoakResult, table_of, trends_of

SECONDS = 1200


def samples(
    *, memory_growth: float = 0.0, files_growth: float = 0.0, tasks_growth: float = 0.0
) -> list[Sample]:
    """A server that has grown in the first half, as all do, and in the second by so much."""

    def value(base: float, growth: float, second: int) -> float:
        late = max(second - SECONDS / 2, 0) / (SECONDS / 2)
        return base * min(0.5 + second / SECONDS, 1.0) + growth * late

    return [
        Sample(
            second,
            value(200_000, memory_growth, second),
            value(80, files_growth, second),
            value(60, tasks_growth, second),
        )
        for second in range(0, SECONDS, 5)
    ]


def unflat(*servers: list[Sample]) -> set[tuple[int | None, str]]:
    return {(each.server, each.what) for each in trends_of(servers) if not each.is_flat}


def test_flat() -> None:
    """Growth in the first half does not count, nor does a small one later."""
    assert unflat(samples(), samples(memory_growth=5_000, tasks_growth=4)) == set()


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        ({"memory_growth": 20_000.0}, (1, "memory_kib")),
        ({"files_growth": 30.0}, (None, "files")),
        ({"tasks_growth": 30.0}, (None, "tasks")),
    ],
)
def test_not_flat(grown: dict[str, float], expected: tuple[int | None, str]) -> None:
    """Each figure that grows is named, memory with its server."""
    assert unflat(samples(), samples(**grown)) == {expected}


def test_moved_streams() -> None:
    """Streams that move from one server to another are not growth."""
    assert unflat(samples(files_growth=40), samples(files_growth=-40)) == set()


def test_too_short_for_memory() -> None:
    """A short run cannot judge memory, and says so."""
    short = samples(memory_growth=90_000)[-20:]
    trends = trends_of([short])
    assert trends[0].allowed == math.inf
    result = SoakResult(
        store="sqlite",
        seconds=100,
        acknowledged=1,
        writes_per_second=0.01,
        samples=20,
        trends=tuple(trends),
    )
    assert result.is_flat
    assert "memory_kib" in table_of(result)
    assert "inf" in table_of(result)
