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
    """Open connections of authenticated users: 429 for the request that would make one more."""

    connections_per_user_max: int = 2_000
    """Share of one user in `connections_max`: 429."""

    privileged_connections_max: int = 2_000
    """Open connections of `system:masters`: 429."""

    unauthenticated_connections_max: int = 2_000
    """Open connections without an authenticated request so far. One more replaces the oldest of
    the address that has the most, of those that are not being served; if there is none, the new one
    gets a 503 and is closed."""

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

    user_bytes_max: int = 64 * MIB
    """Share of `bodies_bytes_max` for the connections of one user: 503."""

    privileged_bytes_max: int = 64 * MIB
    """Partly read bodies and heads of all privileged connections together: 503."""

    unauthenticated_bytes_max: int = 32 * MIB
    """Partly read bodies and heads of all unauthenticated connections, and their encrypted bytes
    that TLS holds. Over the limit, the connection that has held some for the longest is aborted, of
    the address that holds the most."""

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

    pipelined_seconds: float = 0.002
    """Time for requests of one connection per iteration; then no further request is started."""

    unauthenticated_pipelined_requests_max: int = 1
    """Requests of one unauthenticated connection that are handled per iteration."""

    unauthenticated_work_seconds: float = 0.000_1
    """Unauthenticated work budget: the share of an iteration of the event loop, in CPU seconds,
    that all unauthenticated connections together get for accepts, steps of TLS handshakes and
    requests. The rest is queued, so authenticated clients wait no longer than this and one work
    item, such as a step of a handshake, however many connections there are."""

    authenticated_work_seconds: float = 0.000_5
    """The same for all authenticated connections together: their requests and long lists. The rest
    is queued by user, so that each user waits for at most one work item of each other one in
    turn."""

    privileged_work_seconds: float = 0.001
    """The same for long lists of privileged connections. Their requests are not queued."""

    streams_seconds: float = 0.000_5
    """Time for the pieces of one pulled stream (a long list) before other work has its turn; a
    piece that was started is finished."""

    accepted_at_once_max: int = 4
    """Connections accepted in one work item. More make others wait; fewer make a new client wait in
    the queue of the kernel, in which addresses do not take turns as in the work budget."""

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
    """Requests of authenticated connections whose response is pending: 503. The in-flight limits
    of the request chain are lower, and have a share for each user."""

    privileged_answers_pending_max: int = 2_000
    """The same for privileged connections."""

    unauthenticated_answers_pending_max: int = 1_000
    """The same for unauthenticated connections."""

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
