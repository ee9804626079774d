"""Limits of the listener.

Limits on the meaning of a request (names, selectors, nesting, time to handle it) belong to the
request chain behind the listener.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, counts and durations in seconds; with the status code when one is
    exceeded."""

    connections_max: int = 10_000
    """Open connections. Near the limit, a new connection replaces the oldest unauthenticated one
    that is not being served; if there is none, it gets a 503 and is closed."""

    connections_per_address_max: int = 1_000_000
    """Open connections from one address: 503. Many clients can share one behind a proxy, so this
    limit is off by default."""

    head_bytes_max: int = MIB
    """Request line and header lines together: 431."""

    unauthenticated_head_bytes_max: int = 64 * KIB
    """`head_bytes_max` until a request of the connection was authenticated: 431. Enough for a
    credential."""

    headers_max: int = 1_000
    """Header lines, and trailer lines of a chunked body: 431."""

    target_bytes_max: int = 64 * KIB
    """Path and query: 414."""

    body_bytes_max: int = 3 * MIB
    """A request body, announced or chunked: 413."""

    bodies_bytes_max: int = 256 * MIB
    """Partly read bodies and heads of all authenticated connections together: 503."""

    unauthenticated_bytes_max: int = 32 * MIB
    """Partly read bodies and heads of all unauthenticated connections: 503. Their encrypted bytes
    that TLS holds count too: over the limit the connection is aborted."""

    unauthenticated_address_bytes_max: int = 16 * MIB
    """Share of `unauthenticated_bytes_max` for the connections from one address: enough for some
    50 clients that start with a long body at the same time."""

    chunk_overhead_bytes_max: int = MIB
    """Chunk sizes, extensions and trailers of one chunked body: 400."""

    chunks_at_once_max: int = 512
    """Chunks of one body that are parsed per iteration of the event loop; less than a
    millisecond."""

    pipelined_requests_max: int = 16
    """Requests of one connection that are handled per iteration of the event loop."""

    pipelined_seconds: float = 0.005
    """Time for requests of one connection per iteration; then no further request is started."""

    unauthenticated_pipelined_requests_max: int = 1
    """Requests of one unauthenticated connection that are handled per iteration."""

    unauthenticated_work_seconds: float = 0.000_1
    """Unauthenticated work budget: the share of an iteration of the event loop, in CPU seconds,
    that all unauthenticated connections together get for accepts, steps of TLS handshakes and
    requests. The rest is queued, so authenticated clients wait no longer than this and one work
    item, such as a step of a handshake, however many connections there are."""

    streams_seconds: float = 0.002
    """Share of an iteration of the event loop for all pulled streams (long lists) together; a piece
    that was started is finished."""

    accepted_at_once_max: int = 1
    """Accepted connections per iteration of the event loop: a handshake costs as much as many
    requests."""

    handshakes_max: int = 4_000
    """Unfinished TLS handshakes. One more aborts the oldest of the address with the most, so that
    clients that do not finish theirs cannot lock out others."""

    refusals_free: int = 10
    """Consecutive rejected requests of one connection before it is throttled: with 401, and while
    it is unauthenticated with 400, 403 and 429 too. A large head counts as several."""

    refusal_seconds: float = 0.1
    """How long a throttled connection is not read; doubled after each further rejection."""

    refusal_seconds_max: float = 1.0
    """Maximum of that pause; several times as long for a large head."""

    pipelined_bytes_max: int = 64 * KIB
    """Bytes that a client may send while its stream is open. More ends the connection."""

    answers_pending_max: int = 10_000
    """Requests whose response is pending: 503."""

    handshake_seconds: float = 10.0
    """Timeout from accept to the end of the TLS handshake: the connection is aborted."""

    head_seconds: float = 32.0
    """From the first byte of a head (of a connection, for the first request) to its end: 408."""

    body_seconds: float = 60.0
    """From the end of the head to the end of the body: 408."""

    idle_seconds: float = 90.0
    """How long a connection without a request is kept open."""

    answer_seconds: float = 600.0
    """Upper limit for a response: 504. The request chain has shorter deadlines."""

    stall_seconds: float = 60.0
    """How long a client may not read what is sent to it. Then the connection is aborted."""

    linger_seconds: float = 1.0
    """How long input is dropped after an error response, so that the client can read it."""

    linger_bytes_max: int = 16 * MIB
    """How many bytes of input are dropped after an error response."""

    write_high_water_bytes: int = 256 * KIB
    """Unsent bytes of one connection from which on producers must pause."""

    write_bytes_max: int = 4 * MIB
    """Unsent bytes of one stream whose producer does not pause. More ends the connection."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be positive")
        if self.write_bytes_max < self.write_high_water_bytes:
            raise ValueError("write_bytes_max must not be below write_high_water_bytes")

    @property
    def connections_soft_max(self) -> int:
        """Up to this number, a new connection replaces none."""
        return self.connections_max - self.connections_max // 20

    @property
    def shortest_seconds(self) -> float:
        """The shortest deadline that the listener enforces."""
        return min(
            self.head_seconds,
            self.body_seconds,
            self.idle_seconds,
            self.answer_seconds,
            self.stall_seconds,
            self.linger_seconds,
        )


class Budget:
    """Bytes that a group of connections may hold together."""

    __slots__ = ("bytes_held", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0

    def take(self, nbytes: int) -> bool:
        if self.bytes_held + nbytes > self.bytes_max:
            return False
        self.bytes_held += nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        self.bytes_held -= nbytes


class AddressShare:
    """The share of one address in the byte budget for unauthenticated connections."""

    __slots__ = ("_address", "_budgets")

    def __init__(self, budgets: Budgets, address: str) -> None:
        self._budgets = budgets
        self._address = address

    def take(self, nbytes: int) -> bool:
        budgets = self._budgets
        held = budgets.by_address.get(self._address, 0) + nbytes
        if held > budgets.address_bytes_max or not budgets.unauthenticated.take(nbytes):
            return False
        if held:
            budgets.by_address[self._address] = held
        return True

    def give_back(self, nbytes: int) -> None:
        if not nbytes:
            return
        budgets = self._budgets
        budgets.unauthenticated.give_back(nbytes)
        held = budgets.by_address.pop(self._address) - nbytes
        if held:
            budgets.by_address[self._address] = held


class Budgets:
    """Bytes of unfinished requests that the connections of a listener may hold.

    Unauthenticated connections have a separate budget, so that they cannot use up that of
    authenticated ones, and each address has a share of it.
    """

    __slots__ = ("address_bytes_max", "authenticated", "by_address", "unauthenticated")

    def __init__(self, limits: Limits) -> None:
        self.authenticated = Budget(limits.bodies_bytes_max)
        self.unauthenticated = Budget(limits.unauthenticated_bytes_max)
        self.address_bytes_max = limits.unauthenticated_address_bytes_max
        self.by_address: dict[str, int] = {}

    def share_of(self, address: str) -> AddressShare:
        return AddressShare(self, address)

    @property
    def bytes_held(self) -> int:
        """Bytes held by all connections together."""
        return self.authenticated.bytes_held + self.unauthenticated.bytes_held
