"""Flags of `restow serve` about limits: how much at once, and for how long."""

from __future__ import annotations

import argparse

from restow.apiserver.limit_options import COUNT_MAX, LimitOptions
from restow.cli.argument_types import duration, whole_number

ABOUT = """\
What a server takes on at once. Who is beyond a limit is answered with 429 and told when to come
again. When it becomes scarce, users get equal shares. Administrators (system:masters), health
checks and the election of leaders in kube-system are exempt. A count of 0 is no limit.
"""

DEFAULTS = LimitOptions()


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The flags; names are kube-apiserver's where it has one."""
    group = parser.add_argument_group("limits", ABOUT)
    for flag, default, about in (
        ("--max-requests-inflight", DEFAULTS.requests_in_flight_max, "reads that wait"),
        ("--max-mutating-requests-inflight", DEFAULTS.writes_in_flight_max, "writes that wait"),
        ("--max-watches", DEFAULTS.watches_max, "watches of all users together"),
        ("--max-watches-per-user", DEFAULTS.watches_per_user_max, "watches of one user"),
        (
            "--max-connections-per-address",
            DEFAULTS.connections_per_address_max,
            "connections from one address; mind proxies, behind which many clients share one",
        ),
    ):
        group.add_argument(
            flag,
            type=whole_number(0, COUNT_MAX),
            default=default,
            metavar="N",
            help=f"{about}; default: {default}",
        )
    group.add_argument(
        "--max-connections",
        type=whole_number(1, COUNT_MAX),
        default=DEFAULTS.connections_max,
        metavar="N",
        help="open connections; when nearly so many are open, those that have not shown who they"
        f" are make room first; default: {DEFAULTS.connections_max}",
    )
    group.add_argument(
        "--request-timeout",
        type=duration,
        default=DEFAULTS.request_seconds,
        metavar="SECONDS",
        help="how long a request may take that is no watch, whatever its own timeout says; default:"
        " 1m",
    )
    group.add_argument(
        "--min-request-timeout",
        type=duration,
        default=DEFAULTS.watch_seconds_min,
        metavar="SECONDS",
        help="how long a watch lasts that does not say it, at least; at most twice as long;"
        " default: 30m",
    )


def limit_options(arguments: argparse.Namespace) -> LimitOptions:
    """What was given. Raises ValueError for what cannot work."""
    return LimitOptions(
        requests_in_flight_max=arguments.max_requests_inflight,
        writes_in_flight_max=arguments.max_mutating_requests_inflight,
        watches_max=arguments.max_watches,
        watches_per_user_max=arguments.max_watches_per_user,
        connections_max=arguments.max_connections,
        connections_per_address_max=arguments.max_connections_per_address,
        request_seconds=arguments.request_timeout,
        watch_seconds_min=arguments.min_request_timeout,
    )
