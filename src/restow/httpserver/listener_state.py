"""State that all connections of a listener share: settings, counters, the set of connections.

Admission of connections is decided here; everything else is done by the connections themselves,
whose deadlines the listener checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from restow.aio import (
    Clock,
    InvariantViolation,
    LoopSteps,
    Runtime,
    StepKind,
    StepSubject,
    Suspended,
    Tasks,
)
from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.connection_classes import ClassMember, ConnectionClasses
from restow.httpserver.limits import Limits
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
from restow.httpserver.work_budget import WorkBudgets

PATH_LENGTH_MAX: Final = 200
"""Characters of a path in the log."""


class TrackedConnection(Protocol):
    """The interface of a connection that the listener uses."""

    @property
    def peer(self) -> Peer: ...

    @property
    def is_served(self) -> bool:
        """Whether a response is pending or being sent."""

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


class PendingTasks(NamedTuple):
    """Tasks that work on responses, by class of the connection."""

    unauthenticated: Tasks
    authenticated: Tasks
    privileged: Tasks

    @classmethod
    def of_runtime(cls, runtime: Runtime, limits: Limits) -> PendingTasks:
        return cls(
            runtime.tasks(
                "unauthenticated requests", tasks_max=limits.unauthenticated_answers_pending_max
            ),
            runtime.tasks("requests", tasks_max=limits.answers_pending_max),
            runtime.tasks("privileged requests", tasks_max=limits.privileged_answers_pending_max),
        )

    def of(self, peer: ClassMember) -> Tasks:
        if peer.is_privileged:
            return self.privileged
        return self.authenticated if peer.is_known else self.unauthenticated

    @property
    def running(self) -> int:
        """How many tasks there are."""
        return sum(len(each) for each in self)

    async def close(self) -> None:
        for each in self:
            await each.close()


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
    tasks: PendingTasks
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
    addresses: dict[str, int] = field(default_factory=dict)
    """The number of connections per address."""

    classes: ConnectionClasses = field(init=False)
    """Connections by class."""

    work: WorkBudgets = field(init=False)
    """Work for connections, by class."""

    handshakes: UnfinishedHandshakes = field(init=False)

    budgets: Budgets = field(init=False)
    """Bytes of unfinished requests, by class."""

    connection_steps: StepKind = field(init=False)
    """Steps of authenticated connections, without those of the application: parse, encode, send."""

    stream_steps: StepKind = field(init=False)
    """Steps that write streams: their start, and the pieces of pulled ones."""

    def __post_init__(self) -> None:
        self.classes = ConnectionClasses(self.limits)
        self.budgets = Budgets(self.limits)
        self.connection_steps = self.steps.kind("connection", _describe_connection)
        self.stream_steps = self.steps.kind("stream", _describe_stream)
        self.work = WorkBudgets(self.clock.monotonic, self.limits, self.steps)
        self.handshakes = UnfinishedHandshakes(self.limits.handshakes_max, self.counters)

    def add(self, connection: TrackedConnection) -> bool:
        """Add a connection; return whether the limits admit it."""
        address = connection.peer.address
        self.connections.add(connection)
        self.addresses[address] = self.addresses.get(address, 0) + 1
        limits = self.limits
        if self.refusing or self.addresses[address] > limits.connections_per_address_max:
            return False
        is_added = self.classes.add(connection.peer, connection)
        self.counters.connections_displaced = self.classes.displaced
        return is_added

    def remove(self, connection: TrackedConnection) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        connection.peer.leave()
        address = connection.peer.address
        left = self.addresses[address] - 1
        if left:
            self.addresses[address] = left
        else:
            del self.addresses[address]

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
