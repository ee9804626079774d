"""Passes a server's limit options to the parts that enforce them, and exports metrics of running
requests."""

from __future__ import annotations

from collections.abc import Iterator

from restow.apiserver.limit_options import LimitOptions
from restow.endpoints.revocation import Revocation
from restow.httpserver import Limits
from restow.request.limits import InFlight, InFlightOptions, RequestLimits
from restow.request.metrics import Metrics
from restow.request.parameters import WRITE_SECONDS_MAX, Deadlines
from restow.request.slots import SlotPool


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


def listener_limits(options: LimitOptions) -> Limits:
    """The limits that the listener enforces."""
    plain = Limits()
    return Limits(
        connections_max=options.connections_max,
        connections_per_address_max=options.connections_per_address_max
        or plain.connections_per_address_max,
        handshakes_max=min(plain.handshakes_max, options.connections_max),
        # A backstop only, so it is longer than the limit that it backs up.
        answer_seconds=max(plain.answer_seconds, 2 * options.request_seconds),
    )


def publish_limits(metrics: Metrics, in_flight: InFlight) -> None:
    """Export how many slots are taken, and how many requests were rejected."""

    def pools() -> Iterator[tuple[str, SlotPool]]:
        yield "readOnly", in_flight.reads
        yield "mutating", in_flight.writes

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
