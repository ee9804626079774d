"""Limit flags of `restow serve`: concurrency, connections and timeouts."""

from __future__ import annotations

import argparse

from restow.apiserver.limit_options import COUNT_MAX, LimitOptions
from restow.cli.argument_types import duration, whole_number

ABOUT = """\
Limits of concurrent work. Requests over a limit get 429 with Retry-After. Under load, users get
equal shares. Administrators (system:masters), health checks and leader election in kube-system are
exempt. A count of 0 means no limit.
"""

DEFAULTS = LimitOptions()


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the flags, with the names of kube-apiserver where it has them."""
    group = parser.add_argument_group("limits", ABOUT)
    for flag, default, about in (
        ("--max-requests-inflight", DEFAULTS.requests_in_flight_max, "in-flight reads"),
        ("--max-mutating-requests-inflight", DEFAULTS.writes_in_flight_max, "in-flight writes"),
        ("--max-watches", DEFAULTS.watches_max, "watches of all users"),
        ("--max-watches-per-user", DEFAULTS.watches_per_user_max, "watches of one user"),
        (
            "--max-connections-per-address",
            DEFAULTS.connections_per_address_max,
            "connections from one address; consider proxies, which many clients share",
        ),
        (
            "--max-connections-per-user",
            DEFAULTS.connections_per_user_max,
            "connections of one user; 0 is a fifth of --max-connections",
        ),
    ):
        group.add_argument(
            flag,
            type=whole_number(0, COUNT_MAX),
            default=default,
            metavar="N",
            help=f"{about}; default: {default}",
        )
    for flag, default, about in (
        ("--max-connections", DEFAULTS.connections_max, "connections of authenticated users"),
        (
            "--max-privileged-connections",
            DEFAULTS.privileged_connections_max,
            "connections of system:masters, beside those of other users",
        ),
        (
            "--max-unauthenticated-connections",
            DEFAULTS.unauthenticated_connections_max,
            "connections without an authenticated request so far; one more closes the oldest",
        ),
    ):
        group.add_argument(
            flag,
            type=whole_number(1, COUNT_MAX),
            default=default,
            metavar="N",
            help=f"{about}; default: {default}",
        )
    group.add_argument(
        "--request-timeout",
        type=duration,
        default=DEFAULTS.request_seconds,
        metavar="SECONDS",
        help="maximum duration of a request that is not a watch, regardless of its own timeout;"
        " default: 1m",
    )
    group.add_argument(
        "--min-request-timeout",
        type=duration,
        default=DEFAULTS.watch_seconds_min,
        metavar="SECONDS",
        help="minimum duration of a watch without a timeout of its own; the maximum is twice as"
        " long; default: 30m",
    )


def limit_options(arguments: argparse.Namespace) -> LimitOptions:
    """Build the options. Raises ValueError for invalid values."""
    return LimitOptions(
        requests_in_flight_max=arguments.max_requests_inflight,
        writes_in_flight_max=arguments.max_mutating_requests_inflight,
        watches_max=arguments.max_watches,
        watches_per_user_max=arguments.max_watches_per_user,
        connections_max=arguments.max_connections,
        connections_per_address_max=arguments.max_connections_per_address,
        connections_per_user_max=arguments.max_connections_per_user,
        unauthenticated_connections_max=arguments.max_unauthenticated_connections,
        privileged_connections_max=arguments.max_privileged_connections,
        request_seconds=arguments.request_timeout,
        watch_seconds_min=arguments.min_request_timeout,
    )
