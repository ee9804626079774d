"""`restow preflight`: whether a cluster may go to a release, and if not, what is in the way.

Or whether it may do without an encryption key (`preflight_key`). The rules are in
`restow.controllers.preflight`; here are the words of the command, its table and its JSON.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.cli.connecting import add_connection, find_cluster
from restow.cli.foreign_text import shown
from restow.cli.preflight_key import ask_key
from restow.cli.running import run_async
from restow.cli.stores import add_store, chosen_store
from restow.client import ApiClient, ClientConfig, ClientError, ClientLimits
from restow.cluster.errors import ClusterRefused
from restow.controllers.preflight import Blocker, Report, find_target, judge, read_cluster
from restow.controllers.preflight.reading import is_restow
from restow.kinds.releases import ReleaseError
from restow.machinery.status_error import StatusError
from restow.runtime import Runtime
from restow.storage.census import SOURCE_FORMS
from restow.storage.errors import OpenRefused

WIDTH_OF_FILES = 200
REQUEST_SECONDS_MAX = 20.0

EXIT_BLOCKED = 1
EXIT_USAGE = 2

EPILOG = """\
  restow preflight --to x+1
  restow preflight --to my-release.yaml --kubeconfig .restow/kubeconfig
  restow preflight --to kubernetes-1.29 --context production -o json
  restow preflight --drop-key aesgcm:key1 --store etcd://127.0.0.1:2379

RELEASE is the name of a shipped release, a file of one, or a real Kubernetes release. A restow
cluster is judged by what a restow server of that release can read, a real one by what is known of
that release of Kubernetes.

It is safe when the release can read all that may be stored, when the servers that run now can read
what it writes (they serve beside it, and are the way back), when they agree, and when nothing is
being migrated. It only reads; `restow upgrade` asks the same before each step.

With --drop-key it answers whether an encryption key may be taken out of the configurations of all
servers: when none writes with it or waits to do so, when no StorageState says that anything may be
stored under it, and when the raw store, which is read as restow census does, holds nothing under
it. Only what is stored now is counted: backups that are to be restored later need the key still.

Exit codes: 0 it is safe, 1 something is in the way, 2 wrong usage, or the cluster cannot be asked.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument(
        "--to",
        metavar="RELEASE",
        help="a shipped release such as x+1, a file, or a real release such as kubernetes-1.29",
    )
    question.add_argument(
        "--drop-key",
        metavar="NAME",
        help="an encryption key, called as in its configuration, or such as aesgcm:key1",
    )
    add_store(parser, forms=f"with --drop-key, the store that is counted: {SOURCE_FORMS}")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know every letter
    is_store_given = arguments.store is not None or arguments.data_dir is not None
    if arguments.drop_key is None and is_store_given:
        print("restow preflight: --store and --data-dir: only with --drop-key", file=sys.stderr)
        return EXIT_USAGE
    try:
        if arguments.drop_key is not None:
            address = chosen_store(arguments)
            asked = ask_key(find_cluster(arguments), arguments.drop_key, address=address)
        else:
            asked = _ask(find_cluster(arguments), arguments.to)
        report, server = run_async(asked)
    except (ClientError, StatusError, ReleaseError, ClusterRefused, OpenRefused) as error:
        print(f"restow preflight: {error}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.output == "json":
        print(orjson.dumps(fields_of(report, server), option=orjson.OPT_INDENT_2).decode())
    else:
        print_report(report, server)
    sys.stdout.flush()
    return 0 if report.is_safe else EXIT_BLOCKED


async def _ask(config: ClientConfig, release: str) -> tuple[Report, str]:
    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    async with ApiClient.connect(config, runtime=Runtime.system(), limits=limits) as client:
        target = find_target(release, is_restow=is_restow(await client.version()))
        view = await read_cluster(client, target)
        return judge(view, target), f"{view.server} ({view.version})"


def print_report(report: Report, server: str) -> None:
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    if report.blockers:
        console.print(_table("IN THE WAY", report.blockers, style="red"))
        console.print()
    if report.warnings:
        console.print(_table("TO BE KNOWN", report.warnings, style="yellow"))
        console.print()
    for note in report.notes:
        console.print(f"note: {shown(note)}", soft_wrap=True)
    many = len(report.blockers)
    verdict = (
        Text("safe: ", style="green")
        if report.is_safe
        else Text(f"not safe, {many} thing{'s' * (many != 1)} in the way: ", style="red")
    )
    way = "" if report.target.startswith("without ") else "to "
    verdict.append(
        f"{shown(server)} {way}{shown(report.target)}, {report.checked} resources looked at"
    )
    console.print(verdict, soft_wrap=True)


def _table(heading: str, found: Sequence[Blocker], *, style: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (heading, "WHAT", "WHY", "WHAT TO DO"):
        table.add_column(title, overflow="fold")
    for each in found:
        table.add_row(
            Text(shown(_name(each)), style=style),
            Text(shown(each.what)),
            Text(shown(each.why)),
            Text(shown(each.advice)),
        )
    return table


def fields_of(report: Report, server: str) -> dict[str, Any]:
    """The answer as docs/reference/preflight.md describes it."""
    return {
        "cluster": server,
        "target": report.target,
        "safe": report.is_safe,
        "resources": report.checked,
        "blockers": [_fields(each) for each in report.blockers],
        "warnings": [_fields(each) for each in report.warnings],
        "notes": list(report.notes),
    }


def _fields(found: Blocker) -> dict[str, Any]:
    return {
        "resource": None if found.resource is None else str(found.resource),
        "reason": found.reason.value,
        "what": found.what,
        "why": found.why,
        "advice": found.advice,
    }


def _name(found: Blocker) -> str:
    return "the cluster" if found.resource is None else str(found.resource)
