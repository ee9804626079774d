"""What all connections of one listener have in common: settings, counters, the set of them all.

Which connections there may be is decided here; all else connections do themselves, and the listener
watches over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from restow.aio import Clock, InvariantViolation, Suspended, Tasks
from restow.httpserver.connection_states import ANSWERING, STREAMING, ConnectionState
from restow.httpserver.limits import Budgets, Limits
from restow.httpserver.reader import RequestLineCache
from restow.httpserver.request import Peer
from restow.httpserver.response import (
    STATUS_LINES,
    Answer,
    App,
    ErrorBody,
    Gate,
    GivenUp,
    Quick,
)
from restow.httpserver.unauthenticated_budget import UnauthenticatedBudget

ROOM_LOOKS_MAX: Final = 16
"""Connections that are looked at for one that makes room; those that do not are not asked again
before the others."""


class TrackedConnection(Protocol):
    """A connection, as the listener and the others see it."""

    @property
    def peer(self) -> Peer: ...

    @property
    def state(self) -> ConnectionState: ...

    @property
    def busy(self) -> bool:
        """Whether a request is half-read or being answered."""

    def check(self, now_seconds: float) -> None:
        """Enforce the deadlines."""

    def end_push_stream(self) -> None: ...

    def close_if_idle(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def _now(about: str) -> int:
    """A number that rises and falls."""
    return field(default=0, metadata={"about": about, "grows": False})


def _growing(about: str) -> int:
    """A number that only grows."""
    return field(default=0, metadata={"about": about, "grows": True})


@dataclass(slots=True)
class Counters:
    """What the listener counts, for metrics. The metadata of a field has its HELP text, and
    whether it only grows."""

    connections_open: int = _now("Open connections.")
    connections_total: int = _growing("Accepted connections.")
    connections_refused: int = _growing("Connections refused with 503 because there were too many.")
    connections_displaced: int = _growing("Idle connections closed to make room for new ones.")
    handshakes_open: int = _now("Unfinished TLS handshakes.")
    handshakes_displaced: int = _growing(
        "Unfinished TLS handshakes ended because there were too many."
    )
    handshakes_timed_out: int = _growing("TLS handshakes ended because they took too long.")
    requests_total: int = _growing("Received requests.")
    requests_refused: int = _growing(
        "Requests answered by the listener itself with an error that ends the connection."
    )
    requests_slowed: int = _growing(
        "Requests whose connection was made to wait after rejected requests."
    )
    answers_pending: int = _now("Requests that were not answered yet.")
    streams_open: int = _now("Open streams, such as watches.")
    tunnels_open: int = _now("Open tunnels of upgraded connections.")
    received_bytes: int = _growing("Bytes received from clients.")
    sent_bytes: int = _growing("Bytes sent to clients.")


class UnfinishedHandshakes:
    """TLS handshakes that have not ended yet, by the address of the client.

    There is a limit on them. One more ends the oldest of the address that has the most, so clients
    that do not finish keep no other client out, and least one from another address.
    """

    __slots__ = ("_by_address", "_count_max", "_counters")

    def __init__(self, count_max: int, counters: Counters) -> None:
        self._by_address: Final[dict[str, dict[Callable[[], None], None]]] = {}
        """For each address what ends its handshakes, the oldest first."""
        self._count_max: Final = count_max
        self._counters: Final = counters

    def add(self, address: str, end: Callable[[], None]) -> None:
        """A handshake has begun, which `end` would end."""
        if self._counters.handshakes_open >= self._count_max:
            self._displace()
        self._by_address.setdefault(address, {})[end] = None
        self._counters.handshakes_open += 1

    def remove(self, address: str, end: Callable[[], None]) -> None:
        """A handshake is over, if it was not displaced before."""
        of_address = self._by_address.get(address, {})
        if end not in of_address:
            return
        del of_address[end]
        if not of_address:
            del self._by_address[address]
        self._counters.handshakes_open -= 1

    def _displace(self) -> None:
        address = max(self._by_address, key=lambda each: len(self._by_address[each]))
        oldest = next(iter(self._by_address[address]))
        self.remove(address, oldest)
        self._counters.handshakes_displaced += 1
        oldest()


@dataclass(slots=True, kw_only=True)
class ListenerState:
    """One per listener, known to each of its connections."""

    app: App
    gate: Gate | None
    error_body: ErrorBody
    limits: Limits
    clock: Clock
    fatal: Callable[[InvariantViolation], None]
    tasks: Tasks
    given_up: GivenUp | None = None
    quick: Quick | None = None
    suspended_writes: dict[Suspended[Answer], None] = field(default_factory=dict)
    """Writes that wait for one future, and have no task."""
    quick_head: bytes = b""
    """Status, date and headers of quick answers; empty while there are none."""
    date_line: bytes = b""
    stopping: bool = False
    """Each answer of a connection is its last."""
    refusing: bool = False
    """New connections are sent away."""
    lines: RequestLineCache = field(default_factory=RequestLineCache)
    counters: Counters = field(default_factory=Counters)
    connections: set[TrackedConnection] = field(default_factory=set)
    unauthenticated: dict[TrackedConnection, None] = field(default_factory=dict)
    """Connections that may have no authenticated request so far, in the order in which they make
    room."""
    addresses: dict[str, int] = field(default_factory=dict)
    """How many connections each address has."""

    unauthenticated_work: UnauthenticatedBudget = field(init=False)
    """Work for unauthenticated connections."""

    handshakes: UnfinishedHandshakes = field(init=False)

    budgets: Budgets = field(init=False)
    """Bytes of unfinished requests."""

    streams_budget: UnauthenticatedBudget = field(init=False)
    """Work for pulled streams, such as long lists."""

    def __post_init__(self) -> None:
        self.budgets = Budgets(self.limits)
        self.unauthenticated_work = UnauthenticatedBudget(
            self.clock.monotonic, self.limits.unauthenticated_work_seconds
        )
        self.handshakes = UnfinishedHandshakes(self.limits.handshakes_max, self.counters)
        self.streams_budget = UnauthenticatedBudget(
            self.clock.monotonic, self.limits.streams_seconds
        )

    def add(self, connection: TrackedConnection) -> bool:
        """Take in a connection; whether there is room for it."""
        address = connection.peer.address
        self.connections.add(connection)
        self.addresses[address] = self.addresses.get(address, 0) + 1
        limits = self.limits
        if self.refusing or self.addresses[address] > limits.connections_per_address_max:
            return False
        count = len(self.connections)
        if count > limits.connections_plenty and self._make_room():
            count -= 1
        if count > limits.connections_max:
            return False
        self.unauthenticated[connection] = None
        return True

    def remove(self, connection: TrackedConnection) -> None:
        """A connection is over."""
        self.connections.discard(connection)
        self.unauthenticated.pop(connection, None)
        address = connection.peer.address
        left = self.addresses[address] - 1
        if left:
            self.addresses[address] = left
        else:
            del self.addresses[address]

    def _make_room(self) -> bool:
        """Cut the oldest connection that nobody would miss; whether there was one."""
        for _ in range(min(ROOM_LOOKS_MAX, len(self.unauthenticated))):
            oldest = next(iter(self.unauthenticated))
            del self.unauthenticated[oldest]
            if oldest.peer.is_known:
                continue
            if oldest.state is ANSWERING or oldest.state is STREAMING:
                self.unauthenticated[oldest] = None  # it is being served: the others first
                continue
            self.connections.discard(oldest)
            self.counters.connections_displaced += 1
            oldest.abort()
            return True
        return False

    def set_date(self, date: str) -> None:
        """Begin to use another date in all answers."""
        self.date_line = f"Date: {date}\r\n".encode()
        if self.quick is not None:
            self.quick_head = STATUS_LINES[200] + self.date_line + self.quick.headers

    def begin_stop(self) -> None:
        """From now on each answer of a connection is its last; quick ones are not."""
        self.stopping = True
        self.quick, self.quick_head = None, b""
