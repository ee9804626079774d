"""`restow demo`: a rolling upgrade with a rollback in the middle, told and checked on real servers.

Here are the words of the command and the order in which things begin and end: servers, then
controllers, then the story; at the end the other way round, whatever has ended it. The story is in
`demo_story`.
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
"""What may go wrong on some machine, and is told without a traceback."""

EPILOG = f"""\
  restow demo
  restow demo --fast --plain | less
  restow demo --data-dir demo        then: restow up --data-dir demo

Three servers of release {OLD} on this machine, some hundred widgets, and a rolling upgrade to
{NEW}, which stores them in another version; one server is rolled back while they are being
migrated, and goes forward again. It takes about a minute. Nothing is played: servers, controllers
and the store are real, and each step is checked before the next one begins.

The address of the dashboard is shown at the start: open it to watch.

Exit codes: 0 everything came out as told, 1 it did not, 2 wrong usage, 130 interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--data-dir",
        type=directory,
        metavar="DIR",
        help="a new directory for the cluster, which stays there; default: a temporary one, which"
        " is removed at the end",
    )
    add("--keep", action="store_true", help="do not remove the temporary directory")
    add("--fast", action="store_true", help="do not wait for the reader after each step")
    add("--plain", action="store_true", help="lines without colours, as without a terminal")
    add(
        "--seed",
        type=int,
        metavar="N",
        help="draw the widgets and the server that is rolled back by this number; default: the"
        " same ones each time, and the last server",
    )


def run(arguments: argparse.Namespace) -> int:
    narrator = Narrator(is_plain=arguments.plain)
    try:
        with _directory(arguments.data_dir, is_kept=arguments.keep) as place:
            play = Play(Layout(place.path), narrator=narrator, arguments=arguments)
            asyncio.run(play.run())
            if isinstance(play.failure, EXPECTED):
                # Its logs are all that tells what has happened.
                place.is_kept = True
                print(f"restow demo: {play.failure}", file=sys.stderr)
                print(f"logs: {Layout(place.path).logs}", file=sys.stderr)
                return EXIT_FAILED
            if not play.is_told:
                return fail("demo", "interrupted; everything was stopped", EXIT_INTERRUPTED)
    except ClusterRefused as error:
        return fail("demo", error, EXIT_FAILED)
    _advise(narrator, place)
    return 0


class _Place:
    """Where the cluster is."""

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self.path = path
        self.is_kept = is_kept


@contextmanager
def _directory(wanted: Path | None, *, is_kept: bool) -> Iterator[_Place]:
    """A new directory. One that was asked for stays. Raises ClusterRefused."""
    if wanted is not None:
        path = wanted.absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_used = any(path.iterdir())
        except OSError as error:
            raise ClusterRefused(f"{path} cannot be used: {error.strerror}") from error
        if is_used:
            raise ClusterRefused(
                f"{path} is not empty: the story begins with a new cluster, so choose a new"
                " directory, or none"
            )
        yield _Place(path, is_kept=True)
        return
    place = _Place(Path(tempfile.mkdtemp(prefix="restow-demo-")), is_kept=is_kept)
    try:
        yield place
    finally:
        if not place.is_kept:
            shutil.rmtree(place.path)


class Play:
    """One telling, from the first process to the last. Ends by itself or by a signal."""

    def __init__(
        self, layout: Layout, *, narrator: Narrator, arguments: argparse.Namespace
    ) -> None:
        self.is_told = False
        self.failure: Exception | None = None
        self._layout = layout
        self._say = narrator
        self._is_fast: bool = arguments.fast
        seed = arguments.seed
        self._randomness = SeededRandomness(SEED_DEFAULT if seed is None else seed)
        self._plot = Plot() if seed is None else Plot.drawn(self._randomness.child("plot"))
        self._runtime = Runtime.system()
        self._over = asyncio.Event()
        self._cluster_ended = asyncio.Event()
        self._view = _View(narrator, self._over)
        self._controllers: Controllers | None = None

    async def run(self) -> None:
        """Returns when nothing runs any more."""
        async with self._runtime.tasks("demo") as tasks:
            tasks.spawn("cluster", self._run_cluster())
            story = tasks.spawn("story", self._tell(tasks))
            await self._over.wait()
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
                has_controllers=False,  # they are started here, for the sake of their pace
            )
        except EXPECTED as error:
            self.failure = self.failure or error
        finally:
            self._cluster_ended.set()
            self._over.set()

    async def _stop_cluster(self) -> None:
        """As Ctrl-C would; who asks twice wants to hurry, so only once."""
        try:
            await ControlClient(self._layout.data_dir).ask(ControlRequest(verb="stop"))
        except ClusterError:
            if not self._view.is_stopping:  # else somebody has asked for it in this moment
                raise

    async def _tell(self, tasks: Tasks) -> None:
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
                await stage.witness.start(tasks)
                stage.witness.on_change(self._say.refresh)
                story = Story(stage, self._say, plot=self._plot, is_fast=self._is_fast)
                await story.tell()
                self.is_told = True
            finally:
                await stage.close()
        except EXPECTED as error:
            self.failure = error
        finally:
            self._over.set()

    def _introduce(self) -> None:
        self._say.title("restow demo: a rolling upgrade, and a rollback in the middle of it")
        self._say.say(
            f"Three servers share a store. {OLD} stores widgets as v1, {NEW} stores them as v2;"
            " both read both. Everything you see is real, and is checked while it is told."
        )
        self._say.link("D", str(self._layout.data_dir))


class _View:
    """What the cluster tells of itself, and when it ends."""

    def __init__(self, narrator: Narrator, over: asyncio.Event) -> None:
        self.ready_event = asyncio.Event()
        self.is_stopping = False
        self._say = narrator
        self._over = over
        self._supervisor: Supervisor | None = None

    @property
    def is_ready(self) -> bool:
        return self.ready_event.is_set()

    def overview(self) -> ProcessOverview:
        assert self._supervisor is not None, "the story begins when the servers are ready"
        return self._supervisor.overview()

    def notice(self, text: str) -> None:
        self._say.say(text)

    def begin(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def changed(self, keeper: ManagedProcess) -> None:
        if keeper.state is ProcessState.FAILED:
            self._say.say(keeper.story())
        elif not self.is_ready and keeper.state is ProcessState.READY:
            self._say.say(f"{keeper.name} is ready")
        self._say.refresh()

    def ready(self, overview: ProcessOverview, dashboard_url: str | None) -> None:
        if dashboard_url is not None:
            self._say.link("watch it on the dashboard", dashboard_url)
        self.ready_event.set()

    def stopping(self) -> None:
        self.is_stopping = True
        self._over.set()


def _advise(narrator: Narrator, place: _Place) -> None:
    narrator.gap()
    narrator.title("What to try next:")
    if place.is_kept:
        narrator.say("this cluster again, with all its widgets:")
        narrator.command(f"restow up --data-dir {place.path}")
    narrator.say("a cluster of your own, and the same by hand:")
    narrator.command(f"restow up --release {OLD}")
    narrator.command("restow status -w --kubeconfig .restow/kubeconfig")
    narrator.command(f"restow upgrade --to {NEW} --pause-after 1")
    narrator.command("restow census")
