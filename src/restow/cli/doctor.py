"""`restow doctor`: check a cluster for problems, and say how to fix them.

Files and store are found by `--data-dir`, running servers by a kubeconfig. This module has the
arguments and the output; the checks are in `doctor_files`, `doctor_cluster` and `doctor_findings`.
It changes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from restow.aio import Runtime
from restow.cli.connection import (
    add_connection,
    find_cluster,
    overrides_of,
    selects_cluster,
)
from restow.cli.doctor_cluster import examine
from restow.cli.doctor_files import judge_data_dir, judge_modes, judge_pem
from restow.cli.doctor_findings import (
    IDENTITY,
    OTHERS,
    Finding,
    Severity,
    error,
    judge_identity,
    judge_store,
    unseen,
)
from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.cli.hints import Hints
from restow.cli.output import fail, print_json
from restow.cli.store_arguments import DATA_DIR_DEFAULT, store_of
from restow.cli.untrusted_text import shown
from restow.client import ClientConfig, ConfigInvalid, read_kubeconfig
from restow.localcluster.errors import ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.lock import supervisor_of
from restow.storage.checkup import CHECKUP_FORMS, check_up, read_identity
from restow.storage.deleted_log import DELETED_LOG_ADVICE, deleted_log_problem
from restow.storage.drivers import place_name
from restow.storage.errors import OpenRefused, StorageError
from restow.storage.store_mark import MARK_NAME, check_log, read_mark

WIDTH_OF_FILES = 200

EXIT_WARNED = 1
EXIT_WRONG = 2

EPILOG = f"""\
  restow doctor
  restow doctor --data-dir /var/lib/restow -o json
  restow doctor --kubeconfig ~/.kube/config --context production
  restow doctor --store etcd://127.0.0.1:2379

With --data-dir it checks the files of a cluster, its store, and its servers through DIR/kubeconfig
(or the kubeconfig given). With --kubeconfig alone it checks only the servers, with --store only
that store. Without any of these: {DATA_DIR_DEFAULT} if it exists, else the cluster that kubectl
would use.

A check that could not be run is listed as such, and counts as a warning.

Exit codes: 0 no problems, 1 warnings, 2 errors, or wrong usage.
"""

_STYLES = {
    Severity.OK: ("ok", "green"),
    Severity.UNSEEN: ("not seen", "yellow"),
    Severity.WARNING: ("warning", "yellow"),
    Severity.ERROR: ("error", "bold red"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="directory of a cluster")
    parser.add_argument("--store", metavar="ADDRESS", help=CHECKUP_FORMS)
    add_etcd_files(parser)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.data_dir is not None and not arguments.data_dir.is_dir():
        return fail("doctor", f"{arguments.data_dir} is not a directory", EXIT_WRONG)
    try:
        hints, data_dir = _chosen(arguments)
        found = asyncio.run(_examine(arguments, data_dir, Runtime.system()))
    except (ConfigInvalid, OpenRefused, ClusterRefused) as problem:
        return fail("doctor", problem, EXIT_WRONG)
    findings = [replace(each, advice=hints.complete(each.advice)) for each in found]
    if arguments.output == "json":
        fields = fields_of(findings)
        print_json(fields)
    else:
        print_findings(findings)
    sys.stdout.flush()
    return exit_code(findings)


def _chosen(arguments: argparse.Namespace) -> tuple[Hints, Path | None]:
    """How the cluster was selected, and its directory; the default directory without any flag."""
    hints = Hints.of(arguments)
    is_selected = arguments.store is not None or selects_cluster(arguments)
    data_dir: Path | None = arguments.data_dir
    if data_dir is None and not is_selected and DATA_DIR_DEFAULT.is_dir():
        return replace(hints, data_dir=DATA_DIR_DEFAULT), DATA_DIR_DEFAULT
    return hints, data_dir


async def _examine(
    arguments: argparse.Namespace, data_dir: Path | None, runtime: Runtime
) -> list[Finding]:
    findings: list[Finding] = []
    address: str | None = arguments.store
    if data_dir is not None:
        try:
            findings += judge_data_dir(data_dir, runtime.clock.wall())
        except OSError as problem:
            findings.append(unseen("data directory", f"{data_dir} cannot be read: {problem}"))
        try:
            address = address or store_of(data_dir)
        except ClusterRefused as problem:
            advice = "correct the file, or restore it from a copy; the store itself is not affected"
            findings.append(error("state", str(problem), advice))
        if Layout(data_dir).state.exists():
            # `restow up` needs the libraries of the extra `server`.
            from restow.cli.doctor_supervisor import examine_processes, examine_releases

            findings += examine_releases(data_dir)
            findings += await examine_processes(data_dir, runtime)
    if address is not None:
        address = with_etcd_files(address, arguments)
        findings += await _judge_store(address, data_dir, runtime)
    config = _config(arguments, data_dir)
    if isinstance(config, Finding):
        findings.append(config)
    elif config is not None:
        findings += _judge_config(arguments, config, runtime)
        findings += await examine(config, runtime, start=_start(data_dir))
    return findings


async def _judge_store(address: str, data_dir: Path | None, runtime: Runtime) -> list[Finding]:
    """Check the identity of the store, then its state: a wrong store needs other advice."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite" and (problem := deleted_log_problem(Path(rest))) is not None:
        text = f"{rest} was not checked: its write-ahead log must be written back first"
        return [error(IDENTITY, problem, DELETED_LOG_ADVICE), unseen("store", text)]
    identity = [] if data_dir is None else await _judge_identity(address, data_dir, runtime)
    return [*identity, *judge_store(await check_up(address, runtime))]


async def _judge_identity(address: str, data_dir: Path, runtime: Runtime) -> list[Finding]:
    """Compare the store with the identity that its servers recorded in the data directory."""
    name = place_name(address)
    try:
        mark = read_mark(data_dir / MARK_NAME)
        if mark is None:
            return []
        if name.startswith("sqlite:"):
            check_log(mark, Path(name.removeprefix("sqlite:")))
        seen = await read_identity(address, runtime)
    except OpenRefused as problem:
        text, _, advice = str(problem).partition(": ")
        return [error(IDENTITY, text, advice)]
    except StorageError as problem:
        return [unseen(IDENTITY, f"{name} cannot be compared: {problem}")]
    return [judge_identity(mark, seen, name=name)]


def _config(arguments: argparse.Namespace, data_dir: Path | None) -> ClientConfig | Finding | None:
    """How to reach the servers; None if they are not to be checked."""
    if arguments.kubeconfig is not None or (data_dir is None and arguments.store is None):
        return find_cluster(arguments)
    if data_dir is None:
        return find_cluster(arguments) if selects_cluster(arguments) else None
    kubeconfig = data_dir / "kubeconfig"
    if not kubeconfig.exists():
        return _no_kubeconfig(kubeconfig, data_dir)
    try:
        return read_kubeconfig(
            [kubeconfig], context=arguments.context, overrides=overrides_of(arguments)
        )
    except ConfigInvalid as problem:
        advice = f"stop the servers; the next start writes it again: {_start(data_dir)}"
        return error("kubeconfig", str(problem), advice)


def _no_kubeconfig(kubeconfig: Path, data_dir: Path) -> Finding:
    """Report a missing kubeconfig: it exists from when a cluster is ready until the next start."""
    pid = supervisor_of(Layout(data_dir))
    if pid is not None:
        text = f"{kubeconfig} does not exist: `restow up` (process {pid}) is not ready yet"
        return unseen("server", text, _start(data_dir))
    text = f"{kubeconfig} does not exist: no server runs in this directory"
    return error("server", text, _start(data_dir))


def _start(data_dir: Path | None) -> str:
    """The advice if no server responds: `restow up` if the directory has its state file."""
    if data_dir is None:
        return "start the server, or correct the kubeconfig"
    layout = Layout(data_dir)
    if supervisor_of(layout) is not None:
        return (
            f"wait until `restow up` reports that it is ready, or check its logs in {layout.logs}"
        )
    if not layout.state.exists():
        return "start it: restow serve"
    from restow.cli.doctor_supervisor import examine_releases

    if any(each.level is Severity.ERROR for each in examine_releases(data_dir)):
        return "correct the release files first (see above), then start it: restow up"
    return "start it: restow up"


def _judge_config(
    arguments: argparse.Namespace, config: ClientConfig, runtime: Runtime
) -> list[Finding]:
    """Check the given kubeconfig: permissions and certificates."""
    now = runtime.clock.wall()
    findings: list[Finding] = []
    if arguments.kubeconfig is not None:
        findings.append(judge_modes("kubeconfig", [arguments.kubeconfig], forbidden=OTHERS))
    for name, pem in (("authority", config.ca_pem), ("client", config.client_cert_pem)):
        if pem is not None:
            findings += judge_pem(f"the {name} certificate in {config.source}", pem.encode(), now)
    return findings


def exit_code(findings: Sequence[Finding]) -> int:
    worst = max((each.level for each in findings), default=Severity.OK)
    match worst:
        case Severity.OK:
            return 0
        case Severity.ERROR:
            return EXIT_WRONG
        case _:
            return EXIT_WARNED


def print_findings(findings: Sequence[Finding]) -> None:
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("CHECK", "", "FOUND", "WHAT TO DO"):
        table.add_column(title, overflow="fold")
    for each in findings:
        word, style = _STYLES[each.level]
        table.add_row(
            Text(each.check), Text(word, style=style), Text(shown(each.text)), Text(each.advice)
        )
    console.print(table)
    counts = {level: sum(each.level is level for each in findings) for level in Severity}
    parts = [
        f"{counts[level]} {_STYLES[level][0]}" for level in reversed(Severity) if counts[level]
    ]
    console.print(", ".join(parts), soft_wrap=True)


def fields_of(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as docs/reference/doctor.md describes them."""
    worst = max((each.level for each in findings), default=Severity.OK)
    return {
        "verdict": _STYLES[worst][0],
        "findings": [
            {
                "check": each.check,
                "level": _STYLES[each.level][0],
                "text": each.text,
                "advice": each.advice,
            }
            for each in findings
        ],
    }
