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
    """Open connections. One more is told 503 and closed."""

    head_bytes_max: int = MIB
    """Request line and header lines together: 431."""

    headers_max: int = 1_000
    """Header lines: 431."""

    target_bytes_max: int = 64 * KIB
    """Path and query: 414."""

    body_bytes_max: int = 3 * MIB
    """A request body, announced or chunked: 413."""

    bodies_bytes_max: int = 256 * MIB
    """Half-read bodies of all connections together: 503."""

    chunk_overhead_bytes_max: int = MIB
    """Chunk sizes, extensions and trailers of one chunked body: 400."""

    pipelined_requests_max: int = 64
    """Requests of one connection that are answered before other connections get their turn."""

    pipelined_bytes_max: int = 64 * KIB
    """What a client may send while its stream is open. More ends the connection."""

    answers_pending_max: int = 10_000
    """Requests whose answer is being waited for: 503."""

    handshake_seconds: float = 10.0
    """From the accepted connection to the end of the TLS handshake."""

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
    """Bytes that all connections together may hold."""

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
