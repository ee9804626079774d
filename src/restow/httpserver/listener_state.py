"""State that all connections of a listener share: settings, counters, the set of connections.

Admission of connections is decided here; everything else is done by the connections themselves,
whose deadlines the listener checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from restow.aio import (
    Clock,
    InvariantViolation,
    LoopSteps,
    StepKind,
    StepSubject,
    Suspended,
    Tasks,
)
from restow.httpserver.connection_states import ANSWERING, STREAMING, ConnectionState
from restow.httpserver.limits import Budgets, Limits
from restow.httpserver.reader import RequestLineCache
from restow.httpserver.request import HttpRequest, Peer
from restow.httpserver.response import (
    STATUS_LINES,
    Answer,
    App,
    ErrorBody,
    Gate,
    GivenUp,
    Quick,
    Refused,
)
from restow.httpserver.unauthenticated_budget import UnauthenticatedBudget

DISPLACE_CANDIDATES_MAX: Final = 16
"""Connections examined for one that can be replaced; those that cannot are moved to the end of the
queue."""
PATH_LENGTH_MAX: Final = 200
"""Characters of a path in the log."""


class TrackedConnection(Protocol):
    """The interface of a connection that the listener uses."""

    @property
    def peer(self) -> Peer: ...

    @property
    def state(self) -> ConnectionState: ...

    @property
    def busy(self) -> bool:
        """Whether a request is partly read or being handled."""

    def check(self, now_seconds: float) -> None:
        """Enforce the deadlines."""

    def end_push_stream(self) -> None: ...

    def close_if_idle(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


def _now(about: str) -> int:
    """A field that is exported as a gauge; `about` is its help text."""
    return field(default=0, metadata={"about": about, "grows": False})


def _growing(about: str) -> int:
    """A field that is exported as a counter; `about` is its help text."""
    return field(default=0, metadata={"about": about, "grows": True})


@dataclass(slots=True)
class Counters:
    """Counters for metrics. The metadata of a field has its HELP text, and whether it is a
    counter."""

    connections_open: int = _now("Open connections.")
    connections_total: int = _growing("Accepted connections.")
    connections_refused: int = _growing("Connections refused with 503 because there were too many.")
    connections_displaced: int = _growing(
        "Unauthenticated connections closed in favor of new ones near the limit."
    )
    handshakes_open: int = _now("Unfinished TLS handshakes.")
    handshakes_displaced: int = _growing(
        "Unfinished TLS handshakes aborted because there were too many."
    )
    handshakes_timed_out: int = _growing("TLS handshakes aborted because they took too long.")
    requests_total: int = _growing("Received requests.")
    requests_refused: int = _growing(
        "Requests answered by the listener itself with an error that ends the connection."
    )
    requests_slowed: int = _growing("Rejected requests after which their connection was throttled.")
    answers_pending: int = _now("Requests whose response is pending.")
    streams_open: int = _now("Open streams, such as watches.")
    tunnels_open: int = _now("Open tunnels of upgraded connections.")
    received_bytes: int = _growing("Bytes received from clients.")
    sent_bytes: int = _growing("Bytes sent to clients.")


class UnfinishedHandshakes:
    """TLS handshakes in progress, by the address of the client.

    Their number is limited. One more aborts the oldest of the address with the most, so clients
    that do not finish theirs cannot lock out others, least of all clients from another address.
    """

    __slots__ = ("_by_address", "_count_max", "_counters")

    def __init__(self, count_max: int, counters: Counters) -> None:
        self._by_address: Final[dict[str, dict[Callable[[], None], None]]] = {}
        """For each address the functions that abort its handshakes, the oldest first."""
        self._count_max: Final = count_max
        self._counters: Final = counters

    def add(self, address: str, end: Callable[[], None]) -> None:
        """Add a handshake that has started, and can be aborted with `end`."""
        if self._counters.handshakes_open >= self._count_max:
            self._displace()
        self._by_address.setdefault(address, {})[end] = None
        self._counters.handshakes_open += 1

    def remove(self, address: str, end: Callable[[], None]) -> None:
        """Remove a handshake that has ended, if it was not displaced before."""
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
    """One per listener, shared by its connections."""

    app: App
    gate: Gate | None
    error_body: ErrorBody
    limits: Limits
    clock: Clock
    steps: LoopSteps
    fatal: Callable[[InvariantViolation], None]
    tasks: Tasks
    given_up: GivenUp | None = None
    refused: Refused | None = None
    quick: Quick | None = None
    suspended_writes: dict[Suspended[Answer], None] = field(default_factory=dict)
    """Writes that wait for one future, and have no task."""
    quick_head: bytes = b""
    """Status line, Date and header lines of quick responses; empty while there are none."""
    date_line: bytes = b""
    stopping: bool = False
    """Whether each response of a connection is its last."""
    refusing: bool = False
    """Whether new connections are rejected."""
    lines: RequestLineCache = field(default_factory=RequestLineCache)
    counters: Counters = field(default_factory=Counters)
    connections: set[TrackedConnection] = field(default_factory=set)
    unauthenticated: dict[TrackedConnection, None] = field(default_factory=dict)
    """Connections that may be unauthenticated, in the order in which they are replaced."""
    addresses: dict[str, int] = field(default_factory=dict)
    """The number of connections per address."""

    unauthenticated_work: UnauthenticatedBudget = field(init=False)
    """Work for unauthenticated connections."""

    handshakes: UnfinishedHandshakes = field(init=False)

    budgets: Budgets = field(init=False)
    """Bytes of unfinished requests."""

    streams_budget: UnauthenticatedBudget = field(init=False)
    """Work for pulled streams, such as long lists."""

    connection_steps: StepKind = field(init=False)
    """Steps of authenticated connections, without those of the application: parse, encode, send."""

    stream_steps: StepKind = field(init=False)
    """Steps that write streams: their start, and the pieces of pulled ones."""

    def __post_init__(self) -> None:
        self.budgets = Budgets(self.limits)
        self.connection_steps = self.steps.kind("connection", _describe_connection)
        self.stream_steps = self.steps.kind("stream", _describe_stream)
        unauthenticated = self.steps.kind("unauthenticated", lambda _: StepSubject())
        self.unauthenticated_work = UnauthenticatedBudget(
            self.clock.monotonic,
            self.limits.unauthenticated_work_seconds,
            measured=(self.steps, unauthenticated),
        )
        self.handshakes = UnfinishedHandshakes(self.limits.handshakes_max, self.counters)
        self.streams_budget = UnauthenticatedBudget(
            self.clock.monotonic, self.limits.streams_seconds
        )

    def add(self, connection: TrackedConnection) -> bool:
        """Add a connection; return whether the limits admit it."""
        address = connection.peer.address
        self.connections.add(connection)
        self.addresses[address] = self.addresses.get(address, 0) + 1
        limits = self.limits
        if self.refusing or self.addresses[address] > limits.connections_per_address_max:
            return False
        count = len(self.connections)
        if count > limits.connections_soft_max and self._displace_unauthenticated():
            count -= 1
        if count > limits.connections_max:
            return False
        self.unauthenticated[connection] = None
        return True

    def remove(self, connection: TrackedConnection) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        self.unauthenticated.pop(connection, None)
        address = connection.peer.address
        left = self.addresses[address] - 1
        if left:
            self.addresses[address] = left
        else:
            del self.addresses[address]

    def _displace_unauthenticated(self) -> bool:
        """Abort the oldest unauthenticated connection that is not being served; whether there was
        one."""
        for _ in range(min(DISPLACE_CANDIDATES_MAX, len(self.unauthenticated))):
            oldest = next(iter(self.unauthenticated))
            del self.unauthenticated[oldest]
            if oldest.peer.is_known:
                continue
            if oldest.state is ANSWERING or oldest.state is STREAMING:
                self.unauthenticated[oldest] = None  # it is being served: try the others first
                continue
            self.connections.discard(oldest)
            self.counters.connections_displaced += 1
            oldest.abort()
            return True
        return False

    def set_date(self, date: str) -> None:
        """Set the Date header of all responses."""
        self.date_line = f"Date: {date}\r\n".encode()
        if self.quick is not None:
            self.quick_head = STATUS_LINES[200] + self.date_line + self.quick.headers

    def begin_refusing(self) -> None:
        """Refuse all new connections."""
        self.refusing = True

    def begin_stop(self) -> None:
        """Make the next response of each connection its last, and disable quick responses, which
        never close the connection."""
        self.stopping = True
        self.quick, self.quick_head = None, b""


def _describe_connection(connection: TrackedConnection) -> StepSubject:
    peer = connection.peer
    return StepSubject(text=f"{peer.connection_id} of {peer.address}")


def _describe_stream(request: HttpRequest) -> StepSubject:
    return StepSubject(text=f"{request.method} {request.path[:PATH_LENGTH_MAX]!r}")
