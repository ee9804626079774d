"""`restow preflight`: check whether an upgrade or downgrade to a release is safe.

It also checks whether an encryption key can be removed (`preflight_key`). The rules are in
`restow.migration.preflight`; this module has the arguments, the table and the JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.aio import Runtime
from restow.apimachinery.status_error import StatusError
from restow.census import SOURCE_FORMS
from restow.cli.connection import add_connection, find_cluster
from restow.cli.event_loop import run_async
from restow.cli.hints import Hints
from restow.cli.output import fail, print_json
from restow.cli.preflight_key import check_key
from restow.cli.preflight_store import keys_of_file, scan_source
from restow.cli.store_arguments import DATA_DIR_DEFAULT, add_store, chosen_store, progress_line
from restow.cli.untrusted_text import shown
from restow.client import ApiClient, ClientConfig, ClientError, ClientLimits
from restow.kinds.releases import ReleaseError
from restow.localcluster.errors import ClusterRefused
from restow.migration.preflight import (
    Evidence,
    PreflightFinding,
    PreflightReport,
    find_target,
    judge,
    read_cluster,
    shipped_targets,
)
from restow.migration.preflight.cluster_reader import is_restow
from restow.storage.errors import OpenRefused, StorageError

WIDTH_OF_FILES = 200
REQUEST_SECONDS_MAX = 20.0

EXIT_BLOCKED = 1
EXIT_USAGE = 2

EPILOG = """\
  restow preflight --to x+1
  restow preflight --to my-release.yaml --kubeconfig .restow/kubeconfig
  restow preflight --to kubernetes-1.29 --context production -o json
  restow preflight --drop-key aesgcm:key1 --store etcd://127.0.0.1:2379

RELEASE is the name of a shipped release, a release file, or a Kubernetes release. A restow cluster
is checked against what a restow server of that release can read, a Kubernetes cluster against what
is known of that Kubernetes release.

The result is "safe" if the target uses the same storage keys and can read every raw value, every
server that can still write writes only versions that the target can read, and no server writes
without reporting. The running servers must also agree, and be able to read the versions that the
target writes. For this, restow servers scan their store (which requires permission to create
storagescans.storage.restow.dev). On stock Kubernetes pass the store with --store, as for `restow
census`; without it the result is based on StorageStates or on discovery, and the output states
this. If information is missing, the result is "unknown", which is not safe. The command only reads;
`restow upgrade` runs the same check before each step.

With --drop-key it checks whether an encryption key can be removed from the configurations of all
servers: no server writes with it or is about to, no StorageState lists it as persisted, and no
value in the raw store, which is read as by restow census, is encrypted with it. Only current values
are checked: backups that are to be restored later still need the key.

Exit codes: 0 safe, 1 not safe or unknown, 2 wrong usage, or the cluster cannot be reached.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument(
        "--to",
        metavar="RELEASE",
        help="a shipped release such as x+1, a file, or a release such as kubernetes-1.29",
    )
    question.add_argument(
        "--drop-key",
        metavar="NAME",
        help="an encryption key: its configured name, or a full name such as aesgcm:key1",
    )
    add_store(parser, forms=f"a store to be read by this command: {SOURCE_FORMS}")
    parser.add_argument(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="encryption configuration of the target; without it encrypted resources are unknown",
    )
    parser.add_argument(
        "--accept-discovery-only",
        action="store_true",
        help="on stock Kubernetes: accept a result without evidence of previously stored versions",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    is_store_given = arguments.store is not None or arguments.data_dir is not None
    try:
        if arguments.drop_key is not None:
            address = chosen_store(arguments)
            check = check_key(find_cluster(arguments), arguments.drop_key, address=address)
        else:
            options = PreflightOptions(
                release=arguments.to,
                store=chosen_store(arguments) if is_store_given else "",
                keys_file=arguments.encryption_provider_config,
                accepts_discovery=arguments.accept_discovery_only,
            )
            check = _check(find_cluster(arguments), options)
        report, server = run_async(check)
    except (ClientError, StatusError, ReleaseError, ClusterRefused, StorageError) as error:
        return fail("preflight", error, EXIT_USAGE)
    hints = Hints.of(arguments)
    if arguments.drop_key is not None and not is_store_given:
        hints = replace(hints, store=("--data-dir", str(DATA_DIR_DEFAULT)))
    if arguments.output == "json":
        print_json(fields_of(report, server, hints))
    else:
        print_report(report, server, hints)
    sys.stdout.flush()
    return 0 if report.is_safe else EXIT_BLOCKED


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """The target and the sources of evidence."""

    release: str
    store: str = ""
    """The store of a stock Kubernetes cluster; its servers cannot scan it."""
    keys_file: Path | None = None
    accepts_discovery: bool = False


async def _check(config: ClientConfig, options: PreflightOptions) -> tuple[PreflightReport, str]:
    limits = ClientLimits(request_seconds_max=REQUEST_SECONDS_MAX)
    runtime = Runtime.system()
    async with ApiClient.connect(config, runtime=runtime, limits=limits) as client:
        is_own = is_restow(await client.version())
        target = find_target(options.release, is_restow=is_own)
        scan = None
        if is_own:
            if options.store:
                raise OpenRefused(
                    "--store and --data-dir: not needed, restow servers scan their own store"
                )
            if options.keys_file is not None:
                target = replace(target, readable_keys=keys_of_file(options.keys_file))
        else:
            target = replace(target, keeps_keys=True)
            if options.store:
                scan = await scan_source(
                    client, options.store, keys_file=options.keys_file, runtime=runtime
                )
        with progress_line("scanning") as show:
            view = await read_cluster(
                client, target, scan=scan, on_progress=lambda done, total: show(done, total or 0)
            )
        report = judge(
            view,
            target,
            accepts_discovery=options.accepts_discovery,
            releases=lambda: (
                replace(each, readable_keys=target.readable_keys) for each in shipped_targets()
            ),
        )
        return report, f"{view.server} ({view.version})"


def print_report(report: PreflightReport, server: str, hints: Hints) -> None:
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    if report.blockers:
        console.print(_table("BLOCKERS", report.blockers, hints, style="red"))
        console.print()
    if report.warnings:
        console.print(_table("WARNINGS", report.warnings, hints, style="yellow"))
        console.print()
    for note in report.notes:
        console.print(f"note: {shown(note)}", soft_wrap=True)
    many = len(report.blockers)
    blocked = f"{many} blocker{'s' * (many != 1)}"
    verdict = {
        "safe": Text("safe: ", style="green"),
        "unknown": Text(f"unknown, {blocked}: ", style="yellow"),
        "not-safe": Text(f"not safe, {blocked}: ", style="red"),
    }[report.verdict]
    way = "" if report.target.startswith("without ") else "to "
    verdict.append(f"{shown(server)} {way}{shown(report.target)}, {report.checked} resources")
    if report.scanned:
        verdict.append(f", {report.scanned}")
    console.print(verdict, soft_wrap=True)
    if report.evidence is not None:
        console.print(f"evidence: {EVIDENCE_TEXT[report.evidence]}", soft_wrap=True)


EVIDENCE_TEXT: Final = {
    Evidence.SCAN: "the raw values of the store",
    Evidence.VERIFIED: "StorageStates kept without a gap and narrowed by verified migrations; no"
    " raw values",
    Evidence.DISCOVERY: "discovery only, which shows no previously stored versions",
}


def _table(heading: str, found: Sequence[PreflightFinding], hints: Hints, *, style: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in (heading, "WHAT", "WHY", "REMEDY"):
        table.add_column(title, overflow="fold")
    for each in found:
        table.add_row(
            Text(shown(_name(each)), style=style),
            Text(shown(each.what)),
            Text(shown(each.why)),
            Text(shown(hints.complete(each.advice))),
        )
    return table


def fields_of(report: PreflightReport, server: str, hints: Hints) -> dict[str, Any]:
    """The result as docs/reference/preflight.md describes it."""
    return {
        "cluster": server,
        "target": report.target,
        "safe": report.is_safe,
        "verdict": report.verdict,
        "evidence": None if report.evidence is None else report.evidence.value,
        "resources": report.checked,
        "blockers": [_fields(each, hints) for each in report.blockers],
        "warnings": [_fields(each, hints) for each in report.warnings],
        "notes": list(report.notes),
    }


def _fields(found: PreflightFinding, hints: Hints) -> dict[str, Any]:
    return {
        "resource": None if found.resource is None else str(found.resource),
        "reason": found.reason.value,
        "what": found.what,
        "why": found.why,
        "advice": hints.complete(found.advice),
    }


def _name(found: PreflightFinding) -> str:
    return "the cluster" if found.resource is None else str(found.resource)
