"""Every limit of the listener, named, in one value.

Limits on what a request means (names, selectors, nesting, time of the work) belong to the chain
behind the listener and do not live here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much, how many and how long. Sizes are bytes; what a breach is answered with follows."""

    connections_max: int = 10_000
    """Open connections. When nearly so many are open, a new one takes the place of the oldest that
    has not shown who it is and is not being answered; without such a one it is told 503 and
    closed."""

    connections_per_address_max: int = 1_000_000
    """Open connections from one address: 503. Many clients can share one, behind a proxy, so there
    is no such limit unless it is asked for."""

    head_bytes_max: int = MIB
    """Request line and header lines together: 431."""

    unauthenticated_head_bytes_max: int = 64 * KIB
    """The same until a request of the connection was authenticated: 431. A credential fits."""

    headers_max: int = 1_000
    """Header lines, and trailer lines of a chunked body: 431."""

    target_bytes_max: int = 64 * KIB
    """Path and query: 414."""

    body_bytes_max: int = 3 * MIB
    """A request body, announced or chunked: 413."""

    bodies_bytes_max: int = 256 * MIB
    """Half-read bodies and heads of all authenticated connections together: 503."""

    unauthenticated_bytes_max: int = 32 * MIB
    """The same of all connections without an authenticated request so far: 503. What TLS holds of
    them before it is decrypted counts too: then the connection is cut."""

    unauthenticated_address_bytes_max: int = 16 * MIB
    """Of these, what the connections from one address may hold: enough for some 50 clients that
    begin with a long body at the same time."""

    chunk_overhead_bytes_max: int = MIB
    """Chunk sizes, extensions and trailers of one chunked body: 400."""

    chunks_at_once_max: int = 512
    """Chunks of one body that are parsed before other connections get their turn; less than a
    millisecond."""

    pipelined_requests_max: int = 16
    """Requests of one connection that are answered before other connections get their turn."""

    pipelined_seconds: float = 0.005
    """The same, by time: no further request is begun in this iteration of the event loop."""

    unauthenticated_pipelined_requests_max: int = 1
    """The same for a connection without an authenticated request so far."""

    unauthenticated_work_seconds: float = 0.000_25
    """CPU time in one iteration of the event loop for all unauthenticated connections together: to
    accept them, for steps of TLS handshakes, for their requests. The rest is queued, so that an
    authenticated client waits only for this, however many connections there are."""

    streams_seconds: float = 0.002
    """Time in one iteration of the event loop for all pulled streams (long lists) together; the
    last piece that was begun is finished."""

    accepted_at_once_max: int = 1
    """New connections in one iteration of the event loop: a handshake costs as much as many
    requests."""

    handshakes_max: int = 4_000
    """Unfinished TLS handshakes. One more ends the oldest of the address that has the most, so that
    clients that do not finish theirs keep no other client out."""

    refusals_free: int = 10
    """Requests of one connection that may be refused one after the other before it is slowed down:
    by 401, and as long as nobody has shown who it is by 403 and 429 too. A large head counts as
    several."""

    refusal_seconds: float = 0.1
    """How long it is not read then, and twice as long after each other refusal."""

    refusal_seconds_max: float = 1.0
    """For a large head several times as long."""

    pipelined_bytes_max: int = 64 * KIB
    """What a client may send while its stream is open. More ends the connection."""

    answers_pending_max: int = 10_000
    """Requests whose answer is being waited for: 503."""

    handshake_seconds: float = 10.0
    """From the accepted connection to the end of the TLS handshake. Then the connection is cut."""

    head_seconds: float = 32.0
    """From the first byte of a head (of a connection, for the first request) to its end: 408."""

    body_seconds: float = 60.0
    """From the end of the head to the end of the body: 408."""

    idle_seconds: float = 90.0
    """How long a connection is kept without a request."""

    answer_seconds: float = 600.0
    """A backstop for a forgotten answer: 504. The chain has shorter limits of its own."""

    stall_seconds: float = 60.0
    """How long a client may refuse to read what waits for it. Then the connection is cut."""

    linger_seconds: float = 1.0
    """How long input is dropped after a refusal, so that the client can read why."""

    linger_bytes_max: int = 16 * MIB
    """How much is dropped that way."""

    write_high_water_bytes: int = 256 * KIB
    """Unsent bytes of one connection from which on its producers are told to wait."""

    write_bytes_max: int = 4 * MIB
    """Unsent bytes of one stream whose producer does not listen. More ends the connection."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be positive")
        if self.write_bytes_max < self.write_high_water_bytes:
            raise ValueError("write_bytes_max must not be below write_high_water_bytes")

    @property
    def connections_plenty(self) -> int:
        """Up to so many, nobody has to make room."""
        return self.connections_max - self.connections_max // 20

    @property
    def shortest_seconds(self) -> float:
        """The shortest deadline that the listener itself watches."""
        return min(
            self.head_seconds,
            self.body_seconds,
            self.idle_seconds,
            self.answer_seconds,
            self.stall_seconds,
            self.linger_seconds,
        )


class Budget:
    """Bytes that some connections together may hold."""

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
    """What unauthenticated connections from one address may hold of their budget."""

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

    Unauthenticated connections have a budget of their own, so that they cannot use up that of
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
        """Of all connections together."""
        return self.authenticated.bytes_held + self.unauthenticated.bytes_held
