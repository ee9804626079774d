"""What a trigger believes of a state: the check of the simulator, by requests that are made up."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import pytest

from restow.aio.clock import SIMULATED_START
from restow.client import InProcessResponse
from restow.migration.times import time_text
from tests.support.sim.clock import ProcessClock
from tests.support.sim.heartbeats import STATES, HeartbeatCheck
from tests.support.sim.ledger import Ledger
from tests.support.sim.loop import SimulatedLoop

pytestmark = pytest.mark.area("simulation")

NAME = f"{STATES}widgets.example.com"


class Door:
    """Answers with the status that was sent last, as a server does."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        if method == "PUT":
            self.status = orjson.loads(body)["status"]
        return InProcessResponse(200, orjson.dumps({"status": self.status}), {})


def status(seconds: float, *hashes: str, reporters: Mapping[str, float] | None = None) -> Any:
    """A status with a heartbeat at so many seconds, and reports of others at theirs."""

    def at(moment: float) -> str:
        return time_text(SIMULATED_START + timedelta(seconds=moment))

    reports = [
        {"reporterID": who, "currentStorageVersionHash": "h1", "lastHeartbeatTime": at(moment)}
        for who, moment in (reporters or {}).items()
    ]
    found = {"persistedStorageVersionHashes": list(hashes), "lastHeartbeatTime": at(seconds)}
    return {**found, "currentStorageVersionHashes": reports} if reports else found


def problems_of(*moments: tuple[float, Any, Any]) -> list[str]:
    """What is wrong when a trigger reads one status and writes another, at each moment."""
    loop, problems = SimulatedLoop(1), list[str]()  # type: ignore[abstract]
    door = Door()
    ledger = Ledger(
        problem=problems.append, now=loop.time, notice=lambda _: None, kinds={}, names={}
    )
    check = HeartbeatCheck(door, ProcessClock(loop), ledger, poll_seconds=15)  # type: ignore[arg-type]

    async def work() -> None:
        for seconds, before, after in moments:
            check._clock.skew_seconds = seconds - loop.time()
            door.status = before
            await check.handle("GET", NAME, {}, b"")
            await check.handle("PUT", f"{NAME}/status", {}, orjson.dumps({"status": after}))

    try:
        loop.run_until_complete(work())
    finally:
        loop.end()
    return problems


def test_whoever_begins_believes_one_period() -> None:
    """Not a second more; unless all is said to be unknown."""
    old = status(0, "h1")
    assert problems_of((15, old, status(15, "h1"))) == []
    assert len(problems_of((16, old, status(16, "h1")))) == 1
    assert problems_of((16, old, status(16, "Unknown"))) == []


def test_whoever_runs_believes_two_periods() -> None:
    """It has looked itself, and may be late."""
    first = (10.0, status(0, "h1"), status(10, "h1"))
    assert problems_of(first, (40, status(10, "h1"), status(40, "h1"))) == []
    assert len(problems_of(first, (41, status(10, "h1"), status(41, "h1")))) == 1


def test_each_report_is_believed_by_itself() -> None:
    """That one server is watched says nothing of another."""
    old = status(20, "h1", reporters={"a": 20, "b": 0})
    assert problems_of((21, old, status(21, "h1", reporters={"a": 21, "b": 0}))) == []
    assert len(problems_of((21, old, status(21, "h1", reporters={"a": 20, "b": 21})))) == 1
    assert problems_of((21, old, status(21, "h1", reporters={"a": 20, "b": 0, "c": 21}))) == []


def test_all_reports_of_one_update_are_checked() -> None:
    """A leader that reports all servers in one update must not trust one of them for another."""
    old = status(20, "h1", reporters={"a": 20, "b": 0})
    assert len(problems_of((21, old, status(21, "h1", reporters={"a": 21, "b": 21})))) == 1
    assert problems_of((21, old, status(21, "Unknown", reporters={"a": 21, "b": 21}))) == []
