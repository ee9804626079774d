"""The limits of a server: how its options reach what enforces them, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator

from restow.apiserver.limit_options import LimitOptions
from restow.httpserver import Limits
from restow.request.limits import InFlight, InFlightOptions, RequestLimits
from restow.request.metrics import Metrics
from restow.request.parameters import WRITE_SECONDS_MAX, Deadlines
from restow.request.slots import SlotPool


def request_limits(options: LimitOptions) -> RequestLimits:
    """What the chain enforces."""
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
    """What the listener enforces."""
    plain = Limits()
    return Limits(
        connections_max=options.connections_max,
        connections_per_address_max=options.connections_per_address_max
        or plain.connections_per_address_max,
        handshakes_max=min(plain.handshakes_max, options.connections_max),
        # A backstop only, so it comes after the limit that it stands behind.
        answer_seconds=max(plain.answer_seconds, 2 * options.request_seconds),
    )


def publish_limits(metrics: Metrics, in_flight: InFlight) -> None:
    """Show how many seats are taken, and how often there was none."""

    def rooms() -> Iterator[tuple[str, SlotPool]]:
        yield "readOnly", in_flight.reads
        yield "mutating", in_flight.writes

    metrics.gauge(
        "apiserver_current_inflight_requests",
        "Requests that wait for something now, by kind; exempt ones are left out.",
        ("request_kind",),
        lambda: [((kind,), room.taken) for kind, room in rooms()],
    )
    metrics.gauge(
        "apiserver_longrunning_requests",
        "Watches and other streams that are open now; those of exempt users are left out.",
        (),
        lambda: [((), in_flight.streams.taken)],
    )
    metrics.counter(
        "restow_requests_turned_away_total",
        "Requests answered with 429 because the in-flight limit was reached.",
        ("request_kind",),
        lambda: [
            ((kind,), room.refused) for kind, room in (*rooms(), ("stream", in_flight.streams))
        ],
    )
