"""`restow status`: storage versions, agreement of servers, migrations and controllers.

It only reads. The reading is in `restow.migration.overview`, the tables and the JSON in
`status_tables`; this module has the arguments.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.cli.connection import add_connection, find_cluster
from restow.cli.event_loop import run_async
from restow.cli.hints import Hints
from restow.cli.output import fail, print_json
from restow.cli.status_tables import fields_of, print_all
from restow.client import (
    ApiClient,
    ClientConfig,
    ClientError,
    ClientLimits,
    ConfigInvalid,
    NoSuchResource,
)
from restow.migration.overview import look
from restow.migration.overview_values import ClusterOverview

REQUEST_SECONDS_MAX = 20.0
INTERVAL_SECONDS = 0.5
"""Minimum time between two updates of -w."""
INTERVAL_SECONDS_MAX = 3_600.0

_fail = partial(fail, "status")
EXIT_UNAVAILABLE = 1
EXIT_USAGE = 2

EPILOG = """\
  restow status
  restow status deployments.apps crontabs
  restow status -w
  restow status -o json | jq '.resources[] | select(.verdict != "ok") | .resource'

A resource is "ok" when all its objects are stored in the version that servers write, and under the
encryption key, if there is one; it is "to migrate" when some may be stored otherwise. It is
"unreadable" when a list of it fails because of values that servers cannot read. `restow census`
counts the stored versions. "left alone" means that an aggregated server stores it without
reporting its version; "gone" means that objects were stored, but no server serves the resource.

With -w it runs until Ctrl-C and uses watches: on a terminal it redraws, otherwise it prints another
block of lines, or line of JSON, after each change. It survives restarts of servers.

Exit codes: 0 any status, 1 the cluster cannot be reached, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resources",
        nargs="*",
        metavar="RESOURCE",
        help="show only these, named as in kubectl: deployments.apps, deploy, pods; default: all",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("-w", "--watch", action="store_true", help="update until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=_interval,
        metavar="SECONDS",
        help=f"with -w: minimum time between updates; default: {INTERVAL_SECONDS:g}",
    )
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.interval is not None and not arguments.watch:
        return _fail("--interval requires -w", EXIT_USAGE)
    try:
        config = find_cluster(arguments)
        if arguments.watch:
            run_async(_follow(config, arguments))
            return 0
        view = run_async(_look(config, arguments.resources))
    except (ConfigInvalid, NoSuchResource) as error:
        return _fail(error, EXIT_USAGE)
    except (ClientError, StatusError) as error:
        return _fail(error, EXIT_UNAVAILABLE)
    if arguments.output == "json":
        print_json(fields_of(view))
    else:
        print_all(view, hints=Hints.of(arguments))
    sys.stdout.flush()
    return 0


async def _look(config: ClientConfig, names: list[str]) -> ClusterOverview:
    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    async with ApiClient.connect(config, runtime=Runtime.system(), limits=limits) as client:
        return await look(client, names)


async def _follow(config: ClientConfig, arguments: argparse.Namespace) -> None:
    from restow.cli.status_live import follow

    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    async with ApiClient.connect(config, runtime=Runtime.system(), limits=limits) as client:
        await follow(
            client,
            arguments.resources,
            output=arguments.output,
            interval=arguments.interval or INTERVAL_SECONDS,
            hints=Hints.of(arguments),
        )


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= INTERVAL_SECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds up to {INTERVAL_SECONDS_MAX:g}"
        )
    return seconds
