"""The heartbeat check of the simulator, on hand-written requests."""

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


class StatusServer:
    """Replies with the status that was sent last."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        if method == "PUT":
            self.status = orjson.loads(body)["status"]
        return InProcessResponse(200, orjson.dumps({"status": self.status}), {})


def status(seconds: float, *hashes: str, reporters: Mapping[str, float] | None = None) -> Any:
    """Returns a status with a heartbeat in seconds, and reports of others with theirs."""

    def at(moment: float) -> str:
        return time_text(SIMULATED_START + timedelta(seconds=moment))

    reports = [
        {"reporterID": who, "currentStorageVersionHash": "h1", "lastHeartbeatTime": at(moment)}
        for who, moment in (reporters or {}).items()
    ]
    found = {"persistedStorageVersionHashes": list(hashes), "lastHeartbeatTime": at(seconds)}
    return {**found, "currentStorageVersionHashes": reports} if reports else found


def problems_of(*moments: tuple[float, Any, Any]) -> list[str]:
    """Returns the violations when a trigger reads one status and writes another, at each time."""
    loop, problems = SimulatedLoop(1), list[str]()  # type: ignore[abstract]
    server = StatusServer()
    ledger = Ledger(
        problem=problems.append, now=loop.time, notice=lambda _: None, kinds={}, names={}
    )
    check = HeartbeatCheck(server, ProcessClock(loop), ledger, poll_seconds=15)  # type: ignore[arg-type]

    async def work() -> None:
        for seconds, before, after in moments:
            check._clock.skew_seconds = seconds - loop.time()
            server.status = before
            await check.handle("GET", NAME, {}, b"")
            await check.handle("PUT", f"{NAME}/status", {}, orjson.dumps({"status": after}))

    try:
        loop.run_until_complete(work())
    finally:
        loop.end()
    return problems


def test_a_starting_trigger_accepts_one_period() -> None:
    """An older heartbeat is accepted only if the result is "Unknown"."""
    old = status(0, "h1")
    assert problems_of((15, old, status(15, "h1"))) == []
    assert len(problems_of((16, old, status(16, "h1")))) == 1
    assert problems_of((16, old, status(16, "Unknown"))) == []


def test_a_running_trigger_accepts_two_periods() -> None:
    """It has read the state itself, and may be late."""
    first = (10.0, status(0, "h1"), status(10, "h1"))
    assert problems_of(first, (40, status(10, "h1"), status(40, "h1"))) == []
    assert len(problems_of(first, (41, status(10, "h1"), status(41, "h1")))) == 1


def test_each_report_is_checked_separately() -> None:
    """A recent heartbeat of one server does not cover another."""
    old = status(20, "h1", reporters={"a": 20, "b": 0})
    assert problems_of((21, old, status(21, "h1", reporters={"a": 21, "b": 0}))) == []
    assert len(problems_of((21, old, status(21, "h1", reporters={"a": 20, "b": 21})))) == 1
    assert problems_of((21, old, status(21, "h1", reporters={"a": 20, "b": 0, "c": 21}))) == []


def test_all_reports_of_one_update_are_checked() -> None:
    """A leader that reports all servers in one update must not accept the heartbeat of one for
    another."""
    old = status(20, "h1", reporters={"a": 20, "b": 0})
    assert len(problems_of((21, old, status(21, "h1", reporters={"a": 21, "b": 21})))) == 1
    assert problems_of((21, old, status(21, "Unknown", reporters={"a": 21, "b": 21}))) == []
