"""`restow up`: run a cluster on this machine, in the foreground until a signal.

The work is in `restow.localcluster`; this module has the arguments and the output.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from restow.aio import Runtime
from restow.apiserver.pki import PkiError
from restow.cli.argument_types import directory, port, whole_number
from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.cli.hardening import harden
from restow.cli.hints import Hints
from restow.cli.output import fail
from restow.kinds.releases import ReleaseError
from restow.localcluster.cluster_plan import (
    PORT_DEFAULT,
    SERVERS_DEFAULT,
    SERVERS_MAX,
    ClusterOptions,
)
from restow.localcluster.cluster_run import run_cluster
from restow.localcluster.errors import ClusterError, ClusterRefused
from restow.localcluster.etcd import MEMBERS
from restow.localcluster.layout import Layout
from restow.localcluster.managed_process import ManagedProcess, ProcessState
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.localcluster.supervisor import Supervisor
from restow.storage.errors import OpenRefused

EXIT_REFUSED = 1

EPILOG = """\
  restow up
  restow up --servers 5 --store etcd --etcd-members 3 --data-dir /var/lib/restow
  restow up --release x          then: restow upgrade --to x+1

All files are in DIR: keys, the embedded store, logs, and DIR/kubeconfig with the contexts `restow`
(the front port, which all servers share) and `restow-0`, `restow-1`, ... (one per server):

  kubectl --kubeconfig DIR/kubeconfig --context restow-1 get namespaces

Ctrl-C stops the cluster gracefully; a second Ctrl-C kills it. The next start uses the same data,
ports and releases. A process that exits is restarted.

Exit codes: 0 stopped by a signal, 1 the cluster could not be started, or failed, 2 wrong usage.
"""

STYLES: Final = {
    ProcessState.READY: "green",
    ProcessState.UNREADY: "yellow",
    ProcessState.STARTING: "cyan",
    ProcessState.PAUSED: "yellow",
    ProcessState.FAILED: "bold red",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data-dir",
        type=directory,
        default=Path(".restow"),
        metavar="DIR",
        help="default: .restow",
    )
    add(
        "--servers",
        type=whole_number(1, SERVERS_MAX),
        metavar="N",
        help=f"1 to {SERVERS_MAX}; default: as at the last start; {SERVERS_DEFAULT} at the first",
    )
    add(
        "--store",
        metavar="STORE",
        help="sqlite (embedded, in DIR), etcd (started here, data in DIR), or the address of a"
        " running etcd: etcd://HOST:PORT; default: sqlite",
    )
    add_etcd_files(parser)
    add("--etcd-members", type=int, choices=MEMBERS, help="with --store etcd; default: 1")
    add(
        "--port",
        type=port,
        help=f"front port; 0: any free port; default: as at the last start;"
        f" {PORT_DEFAULT} at the first, or another one if that is in use",
    )
    add("--bind", metavar="ADDRESS", help="address to listen on; default: 127.0.0.1")
    add(
        "--release",
        metavar="NAME|FILE",
        help="release of all servers at the first start, or after a restore; later: restow upgrade",
    )
    add(
        "--server-option",
        action="append",
        metavar="WORD",
        help="additional option of each `restow serve`, such as"
        " --server-option=--coordination=vote; may be repeated; empty: remove those of the last"
        " start; default: as at the last start",
    )
    add("--no-controllers", action="store_true", help="do not run trigger and migrator")
    add("--no-dashboard", action="store_true", help="do not print the address of the dashboard")


def run(arguments: argparse.Namespace) -> int:
    harden()
    view = LiveView() if sys.stdout.isatty() else PlainView()
    view.shows_dashboard = not arguments.no_dashboard
    options = arguments.server_option
    try:
        store = _store(arguments)
    except ClusterRefused as error:
        return fail("up", error, EXIT_REFUSED)
    requested = ClusterOptions(
        servers=arguments.servers,
        store=store,
        etcd_members=arguments.etcd_members,
        bind=arguments.bind,
        port=arguments.port,
        release=None if arguments.release is None else release_name(arguments.release),
        server_options=None if options is None else tuple(filter(None, options)),
    )
    try:
        asyncio.run(
            run_cluster(
                requested,
                Layout(arguments.data_dir.absolute()),
                view=view,
                runtime=Runtime.system(),
                has_controllers=not arguments.no_controllers,
            )
        )
    except (ClusterError, PkiError, ReleaseError, OSError) as error:
        view.end()
        return fail("up", Hints.of(arguments).complete(str(error)), EXIT_REFUSED)
    return 0


def _store(arguments: argparse.Namespace) -> str | None:
    """The store address with its certificates. Raises ClusterRefused."""
    try:
        return with_etcd_files(arguments.store or "", arguments) or None
    except OpenRefused as error:
        raise ClusterRefused(str(error)) from error


def release_name(text: str) -> str:
    """A shipped name unchanged; a file as absolute path, because servers may run elsewhere."""
    path = Path(text)
    return str(path.absolute()) if path.exists() else text


class PlainView:
    """Prints one line per state change."""

    def __init__(self) -> None:
        self.shows_dashboard = True
        self._supervisor: Supervisor | None = None
        self._is_ready = False
        self._is_stopping = False

    def notice(self, text: str) -> None:
        self._say(text)

    def begin(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def changed(self, process: ManagedProcess) -> None:
        self._say(f"{process.name}: {self._described(process)}")
        if process.state is ProcessState.FAILED and self._is_ready:
            self._say(process.describe())

    def ready(self, overview: ProcessOverview, dashboard_url: str | None) -> None:
        self._is_ready = True
        self.end()
        dashboard = ""
        if dashboard_url is not None and self.shows_dashboard:
            dashboard = f" dashboard {dashboard_url}"
        self._say(f"ready: {overview.front_url} kubeconfig {overview.kubeconfig}{dashboard}")

    def stopping(self) -> None:
        self.end()
        if not self._is_stopping:
            self._is_stopping = True
            self._say("stopping")

    def end(self) -> None:
        """Stop drawing; nothing to do without a terminal."""

    def _described(self, process: ManagedProcess) -> str:
        note = f": {process.note}" if process.note else ""
        pid = f" (process {process.pid})" if process.state is ProcessState.STARTING else ""
        return f"{process.state.value}{pid}{note}"

    def _say(self, text: str) -> None:
        print(text, flush=True)


class LiveView(PlainView):
    """Draws a table while the cluster starts, then prints lines as without a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(highlight=False)
        self._live: Live | None = None

    def begin(self, supervisor: Supervisor) -> None:
        super().begin(supervisor)
        self._live = Live(
            console=self._console,
            get_renderable=lambda: overview_table(supervisor.overview()),
            auto_refresh=False,  # each change is shown as it happens, without a thread
        )
        self._live.start()

    def changed(self, process: ManagedProcess) -> None:
        if self._live is None:
            super().changed(process)
        else:
            self._live.refresh()

    def end(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


def overview_table(overview: ProcessOverview) -> Table:
    """The table of the processes of a cluster."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("PROCESS", "STATE", "RELEASE", "ADDRESS", "PID", "NOTE"):
        table.add_column(heading, overflow="fold")
    for each in overview.processes:
        table.add_row(
            each.name,
            Text(each.state, style=STYLES.get(ProcessState(each.state), "")),
            overview.label(each.release) if each.release else "–",
            each.url or "–",
            str(each.pid or "–"),
            _note(each),
        )
    return table


def _note(view: ProcessView) -> Text:
    restarts = f"restarts: {view.restarts}" if view.restarts else ""
    return Text(", ".join(part for part in (view.note, restarts) if part))
