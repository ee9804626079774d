"""Checks M7 on the heartbeats that a trigger reads and writes, where discovery is its source.

It intercepts the requests of a trigger. A new trigger accepts a heartbeat that is at most one
polling period old, a running one at most two: after an older one it must write "Unknown". With
reports of several servers, each report has a heartbeat of its own.

It is lenient, because a trigger may have reasons to reset that are not visible here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from restow.client import InProcessResponse
from restow.migration.times import read_time
from restow.migration.trigger.values import SKEW_SECONDS, UNKNOWN
from tests.support.sim.clock import ProcessClock
from tests.support.sim.ledger import Ledger
from tests.support.sim.routes import Route

STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates/"
UNNAMED: Final = "*"
"""Stands for reporters that a state does not name."""


class HeartbeatCheck:
    """Forwards the requests of one trigger, and checks those about states."""

    def __init__(
        self, route: Route, clock: ProcessClock, ledger: Ledger, *, poll_seconds: float
    ) -> None:
        self._route = route
        self._clock = clock
        self._ledger = ledger
        self._poll_seconds = poll_seconds
        self._read: dict[str, tuple[datetime, dict[str, Any]]] = {}
        """Time of the last read of each state, and its status."""
        self._begun: set[tuple[str, str]] = set()
        """By state and reporter: what this trigger has seen in time, and watches since."""

    def begin(self) -> None:
        """Another trigger starts, without the memory of the one before."""
        self._read.clear()
        self._begun.clear()

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        answer = await self._route.handle(method, target, headers, body)
        path = target.partition("?")[0]
        if path.startswith(STATES) and answer.status == 200 and isinstance(answer.body, bytes):
            name, _, part = path.removeprefix(STATES).partition("/")
            if method == "GET" and not part:
                self._is_read(name, orjson.loads(answer.body).get("status") or {})
            elif method == "PUT" and part == "status":
                self._is_written(name, orjson.loads(body)["status"])
        return answer

    def _is_read(self, name: str, status: dict[str, Any]) -> None:
        now = self._clock.wall().replace(microsecond=0)
        self._read[name] = now, status
        for who in (*_reports(status), UNNAMED):
            if self._is_younger(now, _heartbeat(status, who), self._poll_seconds):
                self._begun.add((name, who))

    def _is_written(self, name: str, status: dict[str, Any]) -> None:
        if name not in self._read:
            return  # it was created, not changed
        read_at, before = self._read[name]
        for who in _changed(before, status):
            self._check(name, who, read_at, before, status)

    def _check(
        self,
        name: str,
        who: str,
        read_at: datetime,
        before: dict[str, Any],
        status: dict[str, Any],
    ) -> None:
        """Check the heartbeat of one reporter."""
        known = who if who in _reports(before) else UNNAMED
        is_begun = (name, known) in self._begun
        limit_seconds = self._poll_seconds * (2 if is_begun else 1)
        self._begun.add((name, who))
        self._ledger.checked["M7"] += 1
        heartbeat = _heartbeat(before, who)
        is_known = UNKNOWN not in status["persistedStorageVersionHashes"]
        if is_known and not self._is_younger(read_at, heartbeat, limit_seconds):
            self._ledger.problem(
                f"M7: {name} is trusted at {read_at:%H:%M:%S}, last heartbeat {heartbeat}"
                f" ({'running' if is_begun else 'starting'})"
            )

    def _is_younger(self, now: datetime, heartbeat: datetime | None, seconds: float) -> bool:
        return (
            heartbeat is not None and -SKEW_SECONDS <= (now - heartbeat).total_seconds() <= seconds
        )


def _reports(status: dict[str, Any]) -> dict[str, datetime | None]:
    """Heartbeats by reporter."""
    listed = status.get("currentStorageVersionHashes") or ()
    return {each["reporterID"]: read_time(each.get("lastHeartbeatTime")) for each in listed}


def _heartbeat(status: dict[str, Any], who: str) -> datetime | None:
    """The heartbeat of a reporter; the newest of all if the state does not name it."""
    reports = _reports(status)
    if who in reports:
        return reports[who]
    found = [each for each in reports.values() if each is not None]
    return max(found) if found else read_time(status.get("lastHeartbeatTime"))


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Reporters whose heartbeat has changed. Without reports it is that of the state."""
    old, new = _reports(before), _reports(after)
    if not new:
        is_same = before.get("lastHeartbeatTime") == after.get("lastHeartbeatTime")
        return [] if is_same else [UNNAMED]
    return [who for who, at in new.items() if old.get(who) != at]
