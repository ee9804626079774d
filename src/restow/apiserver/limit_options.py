"""Options of a server's limits: requests in flight, watches, connections, durations.

Values only, so that `--help` imports nothing else. `limits` passes them on to the enforcing parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COUNT_MAX: Final = 1_000_000
SECONDS_MAX: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """Limits on concurrency and durations. A count of zero means no limit."""

    requests_in_flight_max: int = 400
    writes_in_flight_max: int = 200
    watches_max: int = 9_000
    watches_per_user_max: int = 1_000
    connections_max: int = 10_000
    connections_per_user_max: int = 0
    """Zero means a fifth of `connections_max`."""
    unauthenticated_connections_max: int = 2_000
    privileged_connections_max: int = 2_000
    connections_per_address_max: int = 0
    request_seconds: float = 60.0
    watch_seconds_min: float = 1800.0

    def __post_init__(self) -> None:
        for flag, count in (
            ("--max-requests-inflight", self.requests_in_flight_max),
            ("--max-mutating-requests-inflight", self.writes_in_flight_max),
            ("--max-watches", self.watches_max),
            ("--max-watches-per-user", self.watches_per_user_max),
            ("--max-connections-per-address", self.connections_per_address_max),
            ("--max-connections-per-user", self.connections_per_user_max),
        ):
            if not 0 <= count <= COUNT_MAX:
                raise ValueError(f"{flag} {count} is not between 0 and {COUNT_MAX}")
        for flag, count in (
            ("--max-connections", self.connections_max),
            ("--max-unauthenticated-connections", self.unauthenticated_connections_max),
            ("--max-privileged-connections", self.privileged_connections_max),
        ):
            if not 1 <= count <= COUNT_MAX:
                raise ValueError(f"{flag} {count} is not between 1 and {COUNT_MAX}")
        for flag, seconds in (
            ("--request-timeout", self.request_seconds),
            ("--min-request-timeout", self.watch_seconds_min),
        ):
            if not 0 < seconds <= SECONDS_MAX:
                raise ValueError(
                    f"{flag} {seconds:g} is not above 0 and at most {SECONDS_MAX:g} seconds"
                )
