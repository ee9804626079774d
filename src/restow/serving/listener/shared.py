"""What all connections of one listener have in common: settings, counters, the set of them all.

No behaviour: connections act, the listener watches over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from restow.runtime import Clock, InvariantViolation, Tasks
from restow.serving.listener.limits import Budget, Limits
from restow.serving.listener.response import App, ErrorBody, Gate

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
    date_line: bytes = b""
    stopping: bool = False
    counters: Counters = field(default_factory=Counters)
    connections: set[Connection] = field(default_factory=set)
