"""`restow upgrade`: rolls the servers of a running cluster to a release, one by one, and back.

The work is in `restow.localcluster.rolling_upgrade`; here are the words of the command, the matrix
that a person sees, and the questions that are asked.
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

_say = partial(fail, "upgrade")
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BLOCKED = 3
WIDTH_OF_FILES: Final = 160
LOOK_SECONDS: Final = 0.5
MISSING: Final = "–"

EPILOG = """\
  restow upgrade --to x+1
  restow upgrade --to x+1 --pause-after 1      one server, then look; go on with the same command
  restow upgrade --rollback                    back to the releases before the last upgrade

A cluster that `restow up` runs. Each server is stopped, started with the other release, and waited
for: until it is ready and has reported how it writes. The others serve meanwhile. Before each step
it is checked that it is safe, as `restow preflight` does; if it is not, the step is not taken.

A server that does not start with the other release is started with the old one again. A server that
does not run, because it was given up, is started again by an upgrade to the release that it has.

Exit codes: 0 done or paused, 3 a step is not safe, 1 something failed, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--to", metavar="RELEASE", help="a file, or a shipped name such as x+1 or kubernetes-1.27"
    )
    way.add_argument("--rollback", action="store_true", help="undo the last upgrade")
    add("--server", type=int, metavar="I", help="only this one; the first has the number 0")
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
        help="take steps although this server is not ready; its release counts all the same",
    )
    add("--yes", "-y", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace) -> int:
    if not (arguments.yes or sys.stdin.isatty()):
        return _say("stdin is not a terminal: use --yes", EXIT_USAGE)
    try:
        return asyncio.run(_upgrade(arguments))
    except ReleaseError as error:
        return _say(error, EXIT_USAGE)
    except (ClusterError, ClientError, OSError) as error:
        return _say(Hints.of(arguments).complete(str(error)), EXIT_FAILED)


async def _upgrade(arguments: argparse.Namespace, *, check: CheckStep = check_step) -> int:
    data_dir: Path = arguments.data_dir.absolute()
    hints = Hints.of(arguments)
    talk = ControlClient(data_dir)
    overview = await talk.overview()
    steps = _plan(arguments, overview, Layout(data_dir))
    if not steps:
        return say_nothing_to_do(overview, server=arguments.server)
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
            talk,
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
                matrix.say(f"server {step.server} is ready as {label(step.target)}")
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
    """One step, with the matrix changing beside it."""
    async with runtime.tasks("upgrade") as tasks:
        tasks.spawn("matrix", _draw(matrix, roller, runtime))
        await roller.take(step, is_rollback=is_rollback)
    matrix.show(await roller.overview(), await roller.look())


async def _draw(matrix: Matrix, roller: RollingUpgrade, runtime: Runtime) -> None:
    """Show how it changes, as far as it can be seen; the step itself meets what goes wrong."""
    while matrix.is_live:
        with suppress(ClusterError):
            matrix.show(await roller.overview(), await roller.look())
        await runtime.clock.sleep(LOOK_SECONDS)


def _columns(overview: ProcessOverview, steps: Sequence[Step]) -> list[GroupResource]:
    names = {each.release for each in overview.servers} | {step.target for step in steps}
    return changing_resources(release_of(name) for name in sorted(names))


class Matrix:
    """Servers, their releases, and how they write what differs between these."""

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
        """Leave the last state where it is; lines follow."""
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
    """What each server runs and writes, and what they agree on."""
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


def say_nothing_to_do(overview: ProcessOverview, *, server: int | None) -> int:
    """No step is to be taken; returns the exit code. Servers that are not ready are named."""
    chosen = [each for each in overview.servers if server is None or each.index == server]
    waiting = [each for each in chosen if each.state != ProcessState.READY.value]
    if not waiting:
        print("nothing to do: the servers run it already")
        return 0
    for each in waiting:
        log = Layout(Path(overview.data_dir)).log(each.name)
        _say(f"{not_ready_text(overview, each)}; it has this release: see {log}", EXIT_FAILED)
    return EXIT_FAILED


def _step_text(step: Step, label: Callable[[str], str]) -> str:
    if step.is_restart:
        return f"server {step.server} does not run: it is started again as {label(step.target)}"
    return f"server {step.server}: {label(step.origin)} -> {label(step.target)}"


def _is_confirmed(steps: Sequence[Step], label: Callable[[str], str] = str) -> bool:
    for step in steps:
        print(_step_text(step, label))
    try:
        answer = input("roll them, one by one? [y/N] ")
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
        f"server {step.server} is not rolled to {label(step.target)}: that would not be safe",
        file=sys.stderr,
    )
    for blocker in blockers:
        place = "" if blocker.resource is None else f"{blocker.resource}: "
        print(f"  {place}{blocker.what}: {blocker.why}", file=sys.stderr)
        print(f"    what to do: {hints.complete(blocker.advice)}", file=sys.stderr)


def _warnings(report: PreflightReport) -> Iterator[str]:
    """What does not stop a step and should be known before it. States that are not verified yet are
    the usual thing right after a step."""
    for warning in report.warnings:
        if warning.reason is not Reason.UNKNOWN:
            place = "" if warning.resource is None else f"{warning.resource}: "
            yield f"warning: {place}{warning.what}: {warning.why}"


def _print_paused(left: Sequence[Step], hints: Hints, *, rollback: bool) -> None:
    numbers = ", ".join(str(step.server) for step in left)
    print(f"paused; still to do: server {numbers}")
    back = hints.command("upgrade", "--rollback")
    if rollback:
        print(f"go on: {back}")
        return
    print(f"go on: {hints.command('upgrade', '--to', left[0].target)}    back: {back}")
