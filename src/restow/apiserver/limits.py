"""Passes a server's limit options to the parts that enforce them, and exports metrics of running
requests."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Final

from restow.apiserver.limit_options import LimitOptions
from restow.endpoints.revocation import Revocation
from restow.httpserver import Limits
from restow.request.limits import InFlight, InFlightOptions, RequestLimits
from restow.request.metrics import Metrics
from restow.request.parameters import WRITE_SECONDS_MAX, Deadlines
from restow.request.slots import SlotPool

USER_SHARE: Final = 5
"""One user may have one of this many connections."""
FILES_UNLIMITED: Final = 1 << 30
FILES_MIN: Final = 64
"""Fewer file descriptors are not taken into account: nothing would work."""


def raise_file_limit() -> int:
    """Allow this process as many open files as the system does; return how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = FILES_UNLIMITED
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return max(most, FILES_MIN)


def request_limits(options: LimitOptions) -> RequestLimits:
    """The limits that the handler chain enforces."""
    return RequestLimits(
        in_flight=InFlightOptions(
            reads_max=options.requests_in_flight_max,
            writes_max=options.writes_in_flight_max,
            streams_max=options.watches_max,
            streams_per_user_max=options.watches_per_user_max,
        ),
        deadlines=Deadlines(
            request_seconds=options.request_seconds,
            write_seconds=min(WRITE_SECONDS_MAX, options.request_seconds),
            watch_seconds=options.watch_seconds_min,
        ),
    )


def listener_limits(options: LimitOptions, files_max: int = FILES_UNLIMITED) -> Limits:
    """The limits that the listener enforces. `files_max`: the file descriptors that the process may
    open. Each class of connections has a share of them, so that none can use up those of another;
    an eighth is left for everything else."""
    plain = Limits()
    connections_max = min(options.connections_max, files_max // 2)
    other_max = files_max // 8
    return Limits(
        connections_max=connections_max,
        connections_per_user_max=min(
            options.connections_per_user_max or max(1, connections_max // USER_SHARE),
            connections_max,
        ),
        unauthenticated_connections_max=min(options.unauthenticated_connections_max, other_max),
        privileged_connections_max=min(options.privileged_connections_max, other_max),
        connections_per_address_max=options.connections_per_address_max
        or plain.connections_per_address_max,
        handshakes_max=min(plain.handshakes_max, options.connections_max, other_max),
        # A backstop only, so it is longer than the limit that it backs up.
        answer_seconds=max(plain.answer_seconds, 2 * options.request_seconds),
    )


def publish_limits(metrics: Metrics, in_flight: InFlight) -> None:
    """Export how many slots are taken, and how many requests were rejected."""

    def pools() -> Iterator[tuple[str, SlotPool]]:
        yield "readOnly", in_flight.reads
        yield "mutating", in_flight.writes
        yield "unauthenticated", in_flight.unauthenticated

    metrics.gauge(
        "apiserver_current_inflight_requests",
        "Requests in flight by kind, without exempt ones.",
        ("request_kind",),
        lambda: [((kind,), pool.taken) for kind, pool in pools()],
    )
    metrics.gauge(
        "apiserver_longrunning_requests",
        "Open watches and other streams, without those of exempt users.",
        (),
        lambda: [((), in_flight.streams.taken)],
    )
    metrics.counter(
        "restow_requests_turned_away_total",
        "Requests answered with 429 because the in-flight limit was reached.",
        ("request_kind",),
        lambda: [
            ((kind,), pool.refused) for kind, pool in (*pools(), ("stream", in_flight.streams))
        ],
    )


def publish_revocation(metrics: Metrics, revocation: Revocation) -> None:
    """Export how many requests are checked while they run, and how many were ended."""
    metrics.gauge(
        "restow_checked_requests",
        "Running watches, other streams and tunnels whose authorization is checked again.",
        (),
        lambda: [((), revocation.running)],
    )
    metrics.counter(
        "restow_revoked_requests_total",
        "Running requests that were ended because a new one would be refused, by status code.",
        ("code",),
        lambda: [((str(code),), count) for code, count in sorted(revocation.ended.items())],
    )
