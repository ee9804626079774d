"""`restow upgrade`: upgrade the servers of a running cluster one by one, or roll them back.

The work is in `restow.localcluster.rolling_upgrade`; this module has the arguments, the table of
servers, and the confirmation.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from restow.aio import Runtime
from restow.apimachinery.names import GroupResource
from restow.apiserver.kubeconfig import CONTEXT_NAME
from restow.cli.argument_types import directory, whole_number
from restow.cli.hints import Hints
from restow.cli.output import fail
from restow.cli.up import STYLES, release_name
from restow.client import ApiClient, ClientError, read_kubeconfig
from restow.kinds.releases import ReleaseError
from restow.localcluster.cluster_facts import ClusterFacts
from restow.localcluster.cluster_plan import SERVERS_MAX
from restow.localcluster.control_client import ControlClient
from restow.localcluster.errors import ClusterError
from restow.localcluster.layout import Layout
from restow.localcluster.managed_process import ProcessState
from restow.localcluster.messages import ProcessOverview
from restow.localcluster.release_files import keep_release, release_of, restore_copy, with_file
from restow.localcluster.rolling_upgrade import (
    RollingUpgrade,
    Step,
    changing_resources,
    not_ready_text,
    plan_rollback,
    plan_upgrade,
)
from restow.localcluster.step_check import CheckStep, PreflightFinding, PreflightReport, check_step
from restow.migration.preflight import Reason

_fail = partial(fail, "upgrade")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BLOCKED = 3
WIDTH_OF_FILES: Final = 160
LOOK_SECONDS: Final = 0.5
MISSING: Final = "–"

EPILOG = """\
  restow upgrade --to x+1
  restow upgrade --to x+1 --pause-after 1      one server; continue with the same command
  restow upgrade --rollback                    back to the releases before the last upgrade

For a cluster run by `restow up`. Servers are upgraded one at a time: a server is stopped and
started with the other release, and the next step begins when it is ready and has reported its
storage versions. The other servers continue to serve. Before each step the check of `restow
preflight` runs; if the step is not safe, it is not taken.

A server that does not start with the other release is started with the old one again. To start
a server that failed and is no longer restarted, upgrade it to its current release.

Exit codes: 0 done or paused, 3 a step is not safe, 1 something failed, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--to", metavar="RELEASE", help="a file, or a shipped name such as x+1 or kubernetes-1.27"
    )
    way.add_argument("--rollback", action="store_true", help="undo the last upgrade")
    add("--server", type=int, metavar="I", help="only this server; numbers start at 0")
    add(
        "--pause-after", type=whole_number(1, SERVERS_MAX), metavar="K", help="stop after K servers"
    )
    add(
        "--data-dir",
        type=directory,
        default=Path(".restow"),
        metavar="DIR",
        help="default: .restow",
    )
    add(
        "--ignore-not-ready",
        type=int,
        action="append",
        default=[],
        metavar="I",
        help="continue although this server is not ready; its release is still checked",
    )
    add("--yes", "-y", action="store_true", help="do not ask for confirmation")


def run(arguments: argparse.Namespace) -> int:
    if not (arguments.yes or sys.stdin.isatty()):
        return _fail("stdin is not a terminal: use --yes", EXIT_USAGE)
    try:
        return asyncio.run(_upgrade(arguments))
    except ReleaseError as error:
        return _fail(error, EXIT_USAGE)
    except (ClusterError, ClientError, OSError) as error:
        return _fail(Hints.of(arguments).complete(str(error)), EXIT_FAILED)


async def _upgrade(arguments: argparse.Namespace, *, check: CheckStep = check_step) -> int:
    data_dir: Path = arguments.data_dir.absolute()
    hints = Hints.of(arguments)
    control = ControlClient(data_dir)
    overview = await control.overview()
    steps = _plan(arguments, overview, Layout(data_dir))
    if not steps:
        return report_nothing_to_do(overview, server=arguments.server)
    taken = steps[: arguments.pause_after or len(steps)]
    files = with_file(overview.release_files, steps[0].target, steps[0].file)
    label = msgspec.structs.replace(overview, release_files=files).label
    if not (arguments.yes or _is_confirmed(taken, label)):
        return EXIT_FAILED
    runtime = Runtime.system()

    def connect(context: str) -> ApiClient:
        config = read_kubeconfig([data_dir / "kubeconfig"], context=context)
        return ApiClient.connect(config, runtime=runtime)

    async with connect(CONTEXT_NAME) as client:
        roller = RollingUpgrade(
            control,
            client,
            open_client=lambda index: connect(f"{CONTEXT_NAME}-{index}"),
            check=check,
            release_of=release_of,
        )
        with Matrix(_columns(overview, steps)) as matrix:
            for step in taken:
                if not step.is_restart:
                    report = await roller.check(step, accepted=arguments.ignore_not_ready)
                    if not report.is_safe:
                        matrix.close()
                        _print_blockers(step, report.blockers, hints, label)
                        return EXIT_BLOCKED
                    for line in _warnings(report):
                        matrix.say(line)
                matrix.say(_step_text(step, label))
                await _take(step, roller, matrix, runtime, is_rollback=arguments.rollback)
                matrix.say(f"server {step.server} is ready with {label(step.target)}")
    if len(taken) < len(steps):
        _print_paused(steps[len(taken) :], hints, rollback=arguments.rollback)
    return 0


def _plan(arguments: argparse.Namespace, overview: ProcessOverview, layout: Layout) -> list[Step]:
    if arguments.rollback:
        steps = plan_rollback(overview, server=arguments.server)
        for release in {step.target for step in steps}:
            try:
                restore_copy(release, overview.release_files)
            except ReleaseError as error:
                raise ReleaseError(
                    f"a rollback is not possible: {error}; or go to another release: restow upgrade"
                    " --to RELEASE"
                ) from error
        return steps
    file = release_name(arguments.to)
    target = keep_release(file, layout)
    return plan_upgrade(
        overview, target, server=arguments.server, file=None if file == target else file
    )


async def _take(
    step: Step, roller: RollingUpgrade, matrix: Matrix, runtime: Runtime, *, is_rollback: bool
) -> None:
    """Take one step, and update the table meanwhile."""
    async with runtime.tasks("upgrade") as tasks:
        tasks.spawn("matrix", _draw(matrix, roller, runtime))
        await roller.take(step, is_rollback=is_rollback)
    matrix.show(await roller.overview(), await roller.look())


async def _draw(matrix: Matrix, roller: RollingUpgrade, runtime: Runtime) -> None:
    """Update the table until closed; errors are handled by the step itself."""
    while matrix.is_live:
        with suppress(ClusterError):
            matrix.show(await roller.overview(), await roller.look())
        await runtime.clock.sleep(LOOK_SECONDS)


def _columns(overview: ProcessOverview, steps: Sequence[Step]) -> list[GroupResource]:
    names = {each.release for each in overview.servers} | {step.target for step in steps}
    return changing_resources(release_of(name) for name in sorted(names))


class Matrix:
    """The table of servers, releases, and the versions that differ between the releases."""

    def __init__(self, columns: Sequence[GroupResource]) -> None:
        self._columns = columns
        self._console = Console(
            highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES
        )
        self._live: Live | None = None
        if sys.stdout.isatty():
            self._live = Live(console=self._console, auto_refresh=False)

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop updating the table and leave its last state; plain lines follow."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)

    def show(self, overview: ProcessOverview, world: ClusterFacts) -> None:
        table = matrix_table(overview, world, self._columns)
        if self._live is None:
            self._console.print(table)
        else:
            self._live.update(table, refresh=True)


def matrix_table(
    overview: ProcessOverview, world: ClusterFacts, columns: Sequence[GroupResource]
) -> Table:
    """The table: what each server runs and writes, and the agreed versions."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("SERVER", "STATE", "RELEASE", *(str(column) for column in columns)):
        table.add_column(heading, overflow="fold")
    for each in overview.servers:
        member = world.member_at(each.port)
        written = {} if member is None else world.reports_of(member)
        table.add_row(
            str(each.index),
            Text(each.state, style=STYLES.get(ProcessState(each.state), "")),
            overview.label(each.release),
            *(written.get(column, MISSING) for column in columns),
        )
    agreed = [
        facts.common_version if (facts := world.resources.get(column)) else None
        for column in columns
    ]
    table.add_row(
        *("all", "", ""),
        *(Text(each or "no agreement", style="" if each else "yellow") for each in agreed),
    )
    return table


def report_nothing_to_do(overview: ProcessOverview, *, server: int | None) -> int:
    """Print why there are no steps, and servers that are not ready; returns the exit code."""
    chosen = [each for each in overview.servers if server is None or each.index == server]
    waiting = [each for each in chosen if each.state != ProcessState.READY.value]
    if not waiting:
        print("nothing to do: the servers already run this release")
        return 0
    for each in waiting:
        log = Layout(Path(overview.data_dir)).log(each.name)
        _fail(
            f"{not_ready_text(overview, each)}; it already has this release; check its log {log}",
            EXIT_FAILED,
        )
    return EXIT_FAILED


def _step_text(step: Step, label: Callable[[str], str]) -> str:
    if step.is_restart:
        return f"server {step.server} is not running: it is started again with {label(step.target)}"
    return f"server {step.server}: {label(step.origin)} -> {label(step.target)}"


def _is_confirmed(steps: Sequence[Step], label: Callable[[str], str] = str) -> bool:
    for step in steps:
        print(_step_text(step, label))
    try:
        answer = input("upgrade these servers one by one? [y/N] ")
    except EOFError:  # Ctrl-D
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


def _print_blockers(
    step: Step,
    blockers: Sequence[PreflightFinding],
    hints: Hints,
    label: Callable[[str], str] = str,
) -> None:
    print(
        f"server {step.server} is not upgraded to {label(step.target)}: it would not be safe",
        file=sys.stderr,
    )
    for blocker in blockers:
        place = "" if blocker.resource is None else f"{blocker.resource}: "
        print(f"  {place}{blocker.what}: {blocker.why}", file=sys.stderr)
        print(f"    remedy: {hints.complete(blocker.advice)}", file=sys.stderr)


def _warnings(report: PreflightReport) -> Iterator[str]:
    """Warnings to print before a step. States that are not verified yet are omitted: they are
    normal right after a step."""
    for warning in report.warnings:
        if warning.reason is not Reason.UNKNOWN:
            place = "" if warning.resource is None else f"{warning.resource}: "
            yield f"warning: {place}{warning.what}: {warning.why}"


def _print_paused(left: Sequence[Step], hints: Hints, *, rollback: bool) -> None:
    numbers = ", ".join(str(step.server) for step in left)
    print(f"paused; remaining: server {numbers}")
    back = hints.command("upgrade", "--rollback")
    if rollback:
        print(f"continue: {back}")
        return
    print(f"continue: {hints.command('upgrade', '--to', left[0].target)}    roll back: {back}")
