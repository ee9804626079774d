"""What all connections of one listener have in common: settings, counters, the set of them all.

No behaviour: connections act, the listener watches over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from restow.runtime import Clock, InvariantViolation, Tasks
from restow.serving.listener.limits import Budget, Limits
from restow.serving.listener.reader import Lines
from restow.serving.listener.response import STATUS_LINES, App, ErrorBody, Gate, Quick

if TYPE_CHECKING:
    from restow.serving.listener.connection import Connection


@dataclass(slots=True)
class Counters:
    """What the listener has done, for metrics: numbers that grow, and some that say what is now."""

    connections_open: int = 0
    connections_total: int = 0
    connections_refused: int = 0
    requests_total: int = 0
    requests_refused: int = 0
    answers_pending: int = 0
    streams_open: int = 0
    tunnels_open: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Shared:
    """One per listener, known to each of its connections."""

    app: App
    gate: Gate | None
    error_body: ErrorBody
    limits: Limits
    clock: Clock
    fatal: Callable[[InvariantViolation], None]
    tasks: Tasks
    budget: Budget
    quick: Quick | None = None
    quick_head: bytes = b""
    """Status, date and headers of quick answers; empty while there are none."""
    date_line: bytes = b""
    stopping: bool = False
    """Each answer of a connection is its last."""
    refusing: bool = False
    """New connections are sent away."""
    lines: Lines = field(default_factory=Lines)
    counters: Counters = field(default_factory=Counters)
    connections: set[Connection] = field(default_factory=set)

    def set_date(self, date: str) -> None:
        """Begin to use another date in all answers."""
        self.date_line = f"Date: {date}\r\n".encode()
        if self.quick is not None:
            self.quick_head = STATUS_LINES[200] + self.date_line + self.quick.headers

    def begin_stop(self) -> None:
        """From now on each answer of a connection is its last; quick ones are not."""
        self.stopping = True
        self.quick, self.quick_head = None, b""
