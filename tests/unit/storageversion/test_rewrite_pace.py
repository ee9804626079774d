"""The number of rewrites in flight: alone, and with foreground load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from restow.registry.store import ResourceStore
from restow.storageversion.foreground_load import IDLE_SECONDS, ForegroundLoad
from restow.storageversion.rewrite_page import (
    FOREGROUND_COMMITS_MAX,
    FOREGROUND_COMMITS_MIN,
    IN_FLIGHT_FIRST,
    IN_FLIGHT_MAX,
    IN_FLIGHT_MIN,
    REST_SECONDS_MAX,
    RewritePace,
)
from restow.storageversion.rewrite_plan import RewritePlan
from tests.unit.storageversion.rewrite_world import V1, V2, fill, rewriting


async def test_the_number_of_commits_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is bounded, and falls while commits take long."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 200)
        running = most = 0
        commit = ResourceStore.rewrite

        async def count(store: ResourceStore, plan: RewritePlan) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await it.world.clock.sleep(0.001 if it.line.lose == "" else 1)
            running -= 1
            return await commit(store, plan)

        monkeypatch.setattr(ResourceStore, "rewrite", count)
        assert (await it.page()).rewritten == 200
        assert most == IN_FLIGHT_MAX
        await fill(it.world, 200)
        it.line.lose, most = "never", 0
        page = await it.page()  # it takes seconds, and may be cut short
        assert most == IN_FLIGHT_FIRST
        assert page.rewritten >= 100
        assert await it.versions() == {V1: 200 - page.rewritten, V2: page.rewritten}
    is_alone = True
    pace = RewritePace(lambda: is_alone)
    for _ in range(1000):
        assert pace.note(1.0) == 0
    assert pace.in_flight == IN_FLIGHT_MIN
    for _ in range(1000):
        assert pace.note(0.001) == 0
    assert pace.in_flight == IN_FLIGHT_MAX
    is_alone = False
    assert pace.in_flight == FOREGROUND_COMMITS_MIN
    assert (pace.note(0.001), pace.note(60)) == (0.001, REST_SECONDS_MAX)
    for _ in range(1000):
        pace.note_late(0.0)
    assert pace.in_flight == FOREGROUND_COMMITS_MAX
    for _ in range(1000):
        pace.note_late(1.0)
    assert pace.in_flight == FOREGROUND_COMMITS_MIN
    is_alone = True
    assert pace.in_flight > FOREGROUND_COMMITS_MAX


async def test_with_foreground_load_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server has foreground load, few commits are in flight, and all are completed."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 200)
        running, most = 0, {True: 0, False: 0}
        commit, foreground, requests = ResourceStore.rewrite, it.rewriter.foreground, 0
        monkeypatch.setattr(foreground, "_request_count", lambda: requests)

        async def count(store: ResourceStore, plan: RewritePlan) -> Any:
            nonlocal running, requests
            running += 1
            if it.line.lose:
                requests += 1
            most[bool(it.line.lose)] = max(most[bool(it.line.lose)], running)
            await it.world.clock.sleep(0.001)
            running -= 1
            return await commit(store, plan)

        monkeypatch.setattr(ResourceStore, "rewrite", count)
        requests = 5
        assert not foreground.is_idle()
        await it.world.clock.advance(10)
        assert (await it.page()).rewritten == 200
        await fill(it.world, 200)
        requests, it.line.lose = 6, "never"
        await it.world.clock.advance(10)
        assert not foreground.is_idle()
        assert (await it.page()).rewritten == 200
        assert most == {False: IN_FLIGHT_MAX, True: FOREGROUND_COMMITS_MAX}


def test_foreground_load() -> None:
    """Requests for a rewrite do not count as foreground load, which ends after a short time."""
    now, requests = 0.0, 0
    foreground = ForegroundLoad(lambda: now, request_count=lambda: requests)
    assert foreground.is_idle()
    requests += 1
    foreground.note_own()
    now += 1
    assert foreground.is_idle()
    requests += 1
    now += 1
    assert not foreground.is_idle()
    now += IDLE_SECONDS / 2
    assert not foreground.is_idle()
    now += IDLE_SECONDS
    assert foreground.is_idle()
