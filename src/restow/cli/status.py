"""`restow status`: what is stored how, who agrees on it, what is being migrated, and by whom.

It only reads. The looking is in `restow.migration.overview`; here are the words of the command.
Its tables and its JSON are in `status_tables`.
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
"""Between two drawings of -w, at least."""
INTERVAL_SECONDS_MAX = 3_600.0

_say = partial(fail, "status")
EXIT_UNAVAILABLE = 1
EXIT_USAGE = 2

EPILOG = """\
  restow status
  restow status deployments.apps crontabs
  restow status -w
  restow status -o json | jq '.resources[] | select(.verdict != "ok") | .resource'

A resource is ok when all its objects are stored in the version in which servers write it, and under
the encryption key, if there is one; it is to be migrated when some may be stored otherwise. It is
unreadable when a list of it fails because of values that servers cannot read. `restow census`
counts what is really stored. What an aggregated server stores that does not report how, or
no more, is left alone. What was stored once and is served by nobody is gone.

With -w it goes on until Ctrl-C, by watches: on a terminal in place, otherwise with another block of
lines, or line of JSON, whenever something has changed. It survives restarts of servers.

Exit codes: 0 whatever was found; 1 the cluster cannot be asked, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resources",
        nargs="*",
        metavar="RESOURCE",
        help="only these, as kubectl takes them: deployments.apps, deploy, pods; default: all",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("-w", "--watch", action="store_true", help="go on until Ctrl-C")
    parser.add_argument(
        "--interval",
        type=_interval,
        metavar="SECONDS",
        help=f"with -w: between two drawings, at least; default: {INTERVAL_SECONDS:g}",
    )
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.interval is not None and not arguments.watch:
        return _say("--interval: only with -w", EXIT_USAGE)
    try:
        config = find_cluster(arguments)
        if arguments.watch:
            run_async(_follow(config, arguments))
            return 0
        view = run_async(_look(config, arguments.resources))
    except (ConfigInvalid, NoSuchResource) as error:
        return _say(error, EXIT_USAGE)
    except (ClientError, StatusError) as error:
        return _say(error, EXIT_UNAVAILABLE)
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
            f"{text!r} is no number of seconds up to {INTERVAL_SECONDS_MAX:g}"
        )
    return seconds
