"""The cluster of the demo, and the operations on it.

    servers       `restow up` in this process, which starts the servers as processes
    controllers   a `restow controllers` process of its own, so that its rate can be changed
    Stage         upgrade a server, create widgets, count stored versions, wait for a state

Not here: the steps, and when processes are stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from restow.aio import Randomness, Runtime, Tasks
from restow.apimachinery.names import GroupVersionResource
from restow.apiserver.kubeconfig import CONTEXT_NAME
from restow.census import ResourceSelection, open_source, take_census
from restow.census.resource_names import PREFIX_DEFAULT
from restow.cli.demo_view import KIND, WIDGETS, DemoState, Observer
from restow.client import ApiClient, read_kubeconfig
from restow.localcluster.child_process import Launch, restow_command
from restow.localcluster.control_client import ControlClient
from restow.localcluster.layout import Layout
from restow.localcluster.logs import RotatingLog
from restow.localcluster.managed_process import ManagedProcess
from restow.localcluster.messages import ProcessOverview
from restow.localcluster.release_files import release_of
from restow.localcluster.rolling_upgrade import RollingUpgrade, Step
from restow.localcluster.step_check import PreflightFinding, check_step
from restow.localcluster.supervisor import CONTROLLERS

WAIT_SECONDS_MAX: Final = 180.0
"""Limit of every wait: generous for a busy machine, but the demo must not hang."""
WRITES_AT_ONCE: Final = 20
NAMESPACE: Final = "default"
COLOURS: Final = ("amber", "blue", "green", "red", "violet", "white")
SIZE_MAX: Final = 100


class StoryFailed(Exception):
    """A check of the demo failed. The text says which one, and the state found."""


@dataclass(frozen=True, slots=True)
class MigratorPace:
    """The rate at which the migrator works."""

    options: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        return " ".join(("restow controllers --kubeconfig $D/kubeconfig", *self.options))


class Controllers:
    """The process that runs trigger and migrator."""

    def __init__(self, layout: Layout, *, runtime: Runtime) -> None:
        self._layout = layout
        self._pace = MigratorPace()
        self.process = ManagedProcess(
            CONTROLLERS,
            self._launch,
            log=RotatingLog(layout.log(CONTROLLERS)),
            runtime=runtime,
            on_change=lambda _: None,
        )

    async def start(self, tasks: Tasks) -> None:
        """Start them; returns when they are ready. Raises ClusterFailed."""
        tasks.spawn(CONTROLLERS, self.process.run())
        await self.process.wait_ready()

    async def set_pace(self, pace: MigratorPace) -> None:
        """Restart them with another rate. Raises ClusterFailed."""
        self._pace = pace
        await self.process.cycle()

    async def stop(self) -> None:
        await self.process.stop()
        self.process.log.close()

    def _launch(self) -> Launch:
        words = (CONTROLLERS, f"--kubeconfig={self._layout.front_kubeconfig}", "--port=0")
        return Launch(command=restow_command(*words, *self._pace.options))


class Stage:
    """Operations of the steps on a cluster whose servers are ready."""

    def __init__(
        self,
        layout: Layout,
        *,
        controllers: Controllers,
        overview: Callable[[], ProcessOverview],
        runtime: Runtime,
        randomness: Randomness,
    ) -> None:
        self.layout = layout
        self.controllers = controllers
        self.client = self._connect(CONTEXT_NAME, runtime)
        self.observer = Observer(self.client)
        self._overview = overview
        self._runtime = runtime
        self._randomness = randomness
        self._written = 0
        self._roller = RollingUpgrade(
            ControlClient(layout.data_dir),
            self.client,
            open_client=self._open_server,
            check=check_step,
            release_of=release_of,
        )

    async def close(self) -> None:
        await self.client.close()

    def board(self) -> DemoState:
        return self.observer.board(self._overview())

    async def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. Raises StoryFailed after WAIT_SECONDS_MAX."""
        try:
            async with self._runtime.clock.timeout(WAIT_SECONDS_MAX):
                while not condition():
                    await self.observer.changed()
        except TimeoutError:
            raise StoryFailed(
                f"not within {WAIT_SECONDS_MAX:g} s: {what} ({self.board()})"
            ) from None

    async def roll(self, server: int, release: str, *, is_rollback: bool = False) -> None:
        """Check and take a step as `restow upgrade` does, and wait for the server's report."""
        origin = next(each.release for each in self._overview().servers if each.index == server)
        step = Step(server, origin, release)
        report = await self._roller.check(step)
        if not report.is_safe:
            raise StoryFailed(
                f"server {server} cannot be upgraded from {origin} to {release}:"
                f" {_blockers_text(report.blockers)}"
            )
        await self._roller.take(step, is_rollback=is_rollback)

    async def preflight(self, release: str) -> Sequence[PreflightFinding]:
        """Return the blockers of a release."""
        first = self._overview().servers[0]
        return (await self._roller.check(Step(0, first.release, release))).blockers

    async def write(self, count: int, *, server: int | None = None) -> None:
        """Create widgets through the front port, or through one server."""
        if server is None:
            await self._write(self.client, count)
            return
        async with self._open_server(server) as client:
            await self._write(client, count)

    async def census(self) -> Counter[str]:
        """Count the widgets in each stored version, from the raw store."""
        source = await open_source(f"sqlite:{self.layout.store}", self._runtime)
        try:
            census = await take_census(
                source,
                prefix=f"/{PREFIX_DEFAULT.strip('/')}/",
                selection=ResourceSelection.of([str(WIDGETS)]),
                arguments={},
                samples_max=1,
            )
        finally:
            await source.close()
        counts: Counter[str] = Counter()
        for each in census.resources:
            for row in each.rows:
                counts[row.stored.api_version.rpartition("/")[2]] += row.objects
        return counts

    async def pause(self, seconds: float) -> None:
        """Give the reader time to read."""
        await self._runtime.clock.sleep(seconds)

    async def _write(self, client: ApiClient, count: int) -> None:
        # Both versions are served; clients of the older release use v1.
        resource = GroupVersionResource(WIDGETS.group, "v1", WIDGETS.resource)
        for begin in range(0, count, WRITES_AT_ONCE):
            many = min(WRITES_AT_ONCE, count - begin)
            made = [self._new_widget() for _ in range(many)]
            await asyncio.gather(
                *(client.create(resource, each, namespace=NAMESPACE) for each in made)
            )

    def _new_widget(self) -> dict[str, Any]:
        self._written += 1
        return {
            "apiVersion": f"{WIDGETS.group}/v1",
            "kind": KIND,
            "metadata": {"name": f"widget-{self._written:04d}"},
            "spec": {
                "colour": COLOURS[self._randomness.randrange(len(COLOURS))],
                "size": 1 + self._randomness.randrange(SIZE_MAX),
            },
        }

    def _open_server(self, index: int) -> ApiClient:
        return self._connect(f"{CONTEXT_NAME}-{index}", self._runtime)

    def _connect(self, context: str, runtime: Runtime) -> ApiClient:
        config = read_kubeconfig([self.layout.kubeconfig], context=context)
        return ApiClient.connect(config, runtime=runtime)


def _blockers_text(blockers: Sequence[PreflightFinding]) -> str:
    return "; ".join(f"{each.resource or ''} {each.what}: {each.why}" for each in blockers)
