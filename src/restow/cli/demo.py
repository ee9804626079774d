"""`restow demo`: run a rolling upgrade with a rollback, on real servers, and check each step.

This module has the arguments and the order of start and stop: servers, then controllers, then the
steps; they stop in reverse order, whatever ends the demo. The steps are in `demo_story`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from restow.aio import Runtime, SeededRandomness, Tasks
from restow.apimachinery.status_error import StatusError
from restow.apiserver.pki import PkiError
from restow.cli.argument_types import directory
from restow.cli.demo_narrator import Narrator
from restow.cli.demo_stage import Controllers, Stage, StoryFailed
from restow.cli.demo_story import NEW, OLD, SERVERS, Plot, Story
from restow.cli.output import fail
from restow.client import ClientError
from restow.kinds.releases import ReleaseError
from restow.localcluster.cluster_plan import ClusterOptions
from restow.localcluster.cluster_run import run_cluster
from restow.localcluster.control_client import ControlClient
from restow.localcluster.errors import ClusterError, ClusterRefused
from restow.localcluster.layout import Layout
from restow.localcluster.managed_process import ManagedProcess, ProcessState
from restow.localcluster.messages import ControlRequest, ProcessOverview
from restow.localcluster.supervisor import Supervisor
from restow.storage.errors import StorageError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
SEED_DEFAULT: Final = "restow"
EXPECTED: Final = (
    StoryFailed,
    ClusterError,
    PkiError,
    ReleaseError,
    ClientError,
    StatusError,
    StorageError,
    OSError,
)
"""Errors that can happen on any machine; they are printed without a traceback."""

EPILOG = f"""\
  restow demo
  restow demo --fast --plain | less
  restow demo --data-dir demo        then: restow up --data-dir demo

Starts three servers of release {OLD} on this machine, creates a few hundred widgets, and upgrades
to {NEW}, which stores them in another version. One server is rolled back during the migration,
and upgraded again. It takes about a minute. Nothing is simulated: servers, controllers and store
are real, and each step is checked before the next one begins.

The address of the dashboard is printed at the start: open it to watch.

Exit codes: 0 all checks passed, 1 a check or a process failed, 2 wrong usage, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data-dir",
        type=directory,
        metavar="DIR",
        help="new directory for the cluster, kept at the end; default: a temporary directory,"
        " which is removed",
    )
    add("--keep", action="store_true", help="keep the temporary directory")
    add("--fast", action="store_true", help="do not pause after each step")
    add("--plain", action="store_true", help="plain lines without colors, as without a terminal")
    add(
        "--seed",
        type=int,
        metavar="N",
        help="seed that selects the widgets and the server that is rolled back; default: the same"
        " widgets each time, and the last server",
    )


def run(arguments: argparse.Namespace) -> int:
    narrator = Narrator(is_plain=arguments.plain)
    try:
        with _directory(arguments.data_dir, is_kept=arguments.keep) as place:
            demo = DemoRun(Layout(place.path), narrator=narrator, arguments=arguments)
            asyncio.run(demo.run())
            if isinstance(demo.failure, EXPECTED):
                # The logs are needed to find the cause.
                place.is_kept = True
                print(f"restow demo: {demo.failure}", file=sys.stderr)
                print(f"logs: {Layout(place.path).logs}", file=sys.stderr)
                return EXIT_FAILED
            if not demo.is_complete:
                return fail("demo", "interrupted; all processes were stopped", EXIT_INTERRUPTED)
    except ClusterRefused as error:
        return fail("demo", error, EXIT_FAILED)
    _advise(narrator, place)
    return 0


class _Directory:
    """The directory of the cluster, and whether it is kept."""

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self.path = path
        self.is_kept = is_kept


@contextmanager
def _directory(wanted: Path | None, *, is_kept: bool) -> Iterator[_Directory]:
    """Create the directory of the cluster. A given one is kept. Raises ClusterRefused."""
    if wanted is not None:
        path = wanted.absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_used = any(path.iterdir())
        except OSError as error:
            raise ClusterRefused(f"{path} cannot be used: {error.strerror}") from error
        if is_used:
            raise ClusterRefused(
                f"{path} is not empty: the demo starts a new cluster; choose a new directory, or"
                " omit --data-dir"
            )
        yield _Directory(path, is_kept=True)
        return
    place = _Directory(Path(tempfile.mkdtemp(prefix="restow-demo-")), is_kept=is_kept)
    try:
        yield place
    finally:
        if not place.is_kept:
            shutil.rmtree(place.path)


class DemoRun:
    """One run of the demo, from the first process to the last. Ends by itself or by a signal."""

    def __init__(
        self, layout: Layout, *, narrator: Narrator, arguments: argparse.Namespace
    ) -> None:
        self.is_complete = False
        self.failure: Exception | None = None
        self._layout = layout
        self._say = narrator
        self._is_fast: bool = arguments.fast
        seed = arguments.seed
        self._randomness = SeededRandomness(SEED_DEFAULT if seed is None else seed)
        self._plot = Plot() if seed is None else Plot.drawn(self._randomness.child("plot"))
        self._runtime = Runtime.system()
        self._ended = asyncio.Event()
        self._cluster_ended = asyncio.Event()
        self._view = _View(narrator, self._ended)
        self._controllers: Controllers | None = None

    async def run(self) -> None:
        """Run the demo; returns when all processes have ended."""
        async with self._runtime.tasks("demo") as tasks:
            tasks.spawn("cluster", self._run_cluster())
            story = tasks.spawn("story", self._run_story(tasks))
            await self._ended.wait()
            await story.stop()
            if self._controllers is not None:
                await self._controllers.stop()
            if self._view.is_ready and not self._view.is_stopping:
                await self._stop_cluster()
            await self._cluster_ended.wait()

    async def _run_cluster(self) -> None:
        try:
            await run_cluster(
                ClusterOptions(servers=SERVERS, port=0, release=OLD),
                self._layout,
                view=self._view,
                runtime=self._runtime,
                has_controllers=False,  # started here, to be able to change their rate
            )
        except EXPECTED as error:
            self.failure = self.failure or error
        finally:
            self._cluster_ended.set()
            self._ended.set()

    async def _stop_cluster(self) -> None:
        """Stop the cluster as Ctrl-C does, but only once: a second stop kills the processes."""
        try:
            await ControlClient(self._layout.data_dir).ask(ControlRequest(verb="stop"))
        except ClusterError:
            if not self._view.is_stopping:  # otherwise it is being stopped already
                raise

    async def _run_story(self, tasks: Tasks) -> None:
        try:
            self._introduce()
            await self._view.ready_event.wait()
            self._controllers = Controllers(self._layout, runtime=self._runtime)
            stage = Stage(
                self._layout,
                controllers=self._controllers,
                overview=self._view.overview,
                runtime=self._runtime,
                randomness=self._randomness,
            )
            try:
                await self._controllers.start(tasks)
                await stage.observer.start(tasks)
                stage.observer.updated.subscribe(self._say.refresh)
                story = Story(stage, self._say, plot=self._plot, is_fast=self._is_fast)
                await story.run()
                self.is_complete = True
            finally:
                await stage.close()
        except EXPECTED as error:
            self.failure = error
        finally:
            self._ended.set()

    def _introduce(self) -> None:
        self._say.title("restow demo: a rolling upgrade with a rollback")
        self._say.say(
            f"Three servers share a store. {OLD} stores widgets as v1, {NEW} stores them as v2;"
            " both read both. All processes and data are real, and every step is checked."
        )
        self._say.link("D", str(self._layout.data_dir))


class _View:
    """Receives the state changes of the cluster."""

    def __init__(self, narrator: Narrator, ended: asyncio.Event) -> None:
        self.ready_event = asyncio.Event()
        self.is_stopping = False
        self._say = narrator
        self._ended = ended
        self._supervisor: Supervisor | None = None

    @property
    def is_ready(self) -> bool:
        return self.ready_event.is_set()

    def overview(self) -> ProcessOverview:
        assert self._supervisor is not None, "called before the servers were ready"
        return self._supervisor.overview()

    def notice(self, text: str) -> None:
        self._say.say(text)

    def begin(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def changed(self, process: ManagedProcess) -> None:
        if process.state is ProcessState.FAILED:
            self._say.say(process.describe())
        elif not self.is_ready and process.state is ProcessState.READY:
            self._say.say(f"{process.name} is ready")
        self._say.refresh()

    def ready(self, overview: ProcessOverview, dashboard_url: str | None) -> None:
        if dashboard_url is not None:
            self._say.link("dashboard", dashboard_url)
        self.ready_event.set()

    def stopping(self) -> None:
        self.is_stopping = True
        self._ended.set()


def _advise(narrator: Narrator, place: _Directory) -> None:
    narrator.gap()
    narrator.title("Next steps:")
    if place.is_kept:
        narrator.say("start this cluster again, with all its widgets:")
        narrator.command(f"restow up --data-dir {place.path}")
    narrator.say("repeat the upgrade by hand, on a cluster of your own:")
    narrator.command(f"restow up --release {OLD}")
    narrator.command("restow status -w --kubeconfig .restow/kubeconfig")
    narrator.command(f"restow upgrade --to {NEW} --pause-after 1")
    narrator.command("restow census")
