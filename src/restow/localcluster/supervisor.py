"""The supervisor: the processes of one cluster, started and stopped in the right order.

Start: etcd, if it is the cluster's own -> servers, all at once -> controllers. Stop: controllers ->
servers, which leave the front port first -> etcd. The listening sockets of the front port belong to
the supervisor, so that no queued connection is lost when a server stops.

Not here: the output, and authorization of requests (`control`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from restow.aio import Runtime
from restow.kinds.releases import ReleaseError
from restow.localcluster.child_process import Launch
from restow.localcluster.cluster_plan import OWN_ETCD
from restow.localcluster.commands import controllers_launch, server_launch
from restow.localcluster.errors import ClusterFailed, ClusterRefused, ControlRefused
from restow.localcluster.etcd import find_etcd, member_launch, peer_urls
from restow.localcluster.etcd_peers import move_peers
from restow.localcluster.health import ServerProbe
from restow.localcluster.layout import Layout
from restow.localcluster.logs import RotatingLog
from restow.localcluster.managed_process import ManagedProcess, ProcessState
from restow.localcluster.messages import ProcessOverview, ProcessView
from restow.localcluster.release_files import (
    original_notice,
    put_copy,
    read_copies,
    release_label,
    with_file,
)
from restow.localcluster.state import ClusterState, Upgrade, write_state

HEALTH_SECONDS: Final = 2.0
HEALTH_FAILURES_MAX: Final = 2
"""Consecutive failed checks after which a server is shown as not ready."""
CONTROLLERS: Final = "controllers"

logger = logging.getLogger(__name__)

OnChange = Callable[[ManagedProcess], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """Options that are set at each start."""

    has_controllers: bool = False
    on_change: OnChange = lambda _: None
    on_notice: Callable[[str], None] = logger.warning
    """Receives notices for the operator before a server is started."""


class Supervisor:
    """The processes of a cluster. One per data directory, under its lock."""

    def __init__(
        self,
        state: ClusterState,
        *,
        layout: Layout,
        front: Iterable[socket.socket],
        probe: ServerProbe,
        runtime: Runtime,
        options: SupervisorOptions,
    ) -> None:
        self.state = state
        self.failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Has a result when the cluster cannot continue."""
        self._layout = layout
        self._copies = read_copies(state)
        self._notices: set[str] = set()
        self._front = list(front)
        self._probe = probe
        self._runtime = runtime
        self._options = options
        self._tasks = runtime.tasks("supervisor")
        self._rolling = asyncio.Lock()
        self._is_ready = False
        self._is_stopping = False
        self.etcd = self._make_etcd() if state.store == OWN_ETCD else []
        self.servers = [
            self._make(f"server-{index}", lambda index=index: self._server_launch(index))  # type: ignore[misc]
            for index in range(len(state.servers))
        ]
        self.controllers = (
            [self._make(CONTROLLERS, lambda: controllers_launch(layout))]
            if options.has_controllers
            else []
        )

    @property
    def is_ready(self) -> bool:
        """Whether all processes were ready once; some may have failed since."""
        return self._is_ready

    @property
    def managed_processes(self) -> list[ManagedProcess]:
        return [*self.etcd, *self.servers, *self.controllers]

    # --- start and stop ----------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and wait until ready. Raises ClusterFailed with the end of a log."""
        for group in (self.etcd, self.servers, self.controllers):
            for managed in group:
                self._tasks.spawn(managed.name, managed.run())
            for managed in group:
                await managed.wait_ready()
            if group is self.etcd:
                await self._move_peers_to_tls()
        self._is_ready = True
        for index, managed in enumerate(self.servers):
            self._tasks.spawn(f"health {managed.name}", self._watch_health(index, managed))

    async def stop(self) -> None:
        """Stop all processes in order, each with its grace period."""
        self._is_stopping = True
        for group in (self.controllers, self.servers, self.etcd):
            await asyncio.gather(*(managed.stop() for managed in group))
        await self._close()

    def hurry(self) -> None:
        """Kill the processes that are being stopped."""
        for managed in self.managed_processes:
            managed.kill()

    def restore_options(self, options: tuple[str, ...]) -> None:
        """Store the previous options, because the servers did not start with the new ones."""
        with suppress(ClusterRefused):
            self._store_state(msgspec.structs.replace(self.state, server_options=options))

    async def _close(self) -> None:
        await self._tasks.close()
        await self._probe.close()
        for listening in self._front:
            listening.close()
        for managed in self.managed_processes:
            managed.log.close()
        with suppress(ClusterRefused):  # outdated process entries are detected
            self._store_state(msgspec.structs.replace(self.state, processes=()))

    # --- requests -----------------------------------------------------------------------------

    def overview(self) -> ProcessOverview:
        host = f"[{self.state.bind}]" if ":" in self.state.bind else self.state.bind
        views = [_view(managed) for managed in (*self.etcd, *self.controllers)]
        for index, managed in enumerate(self.servers):
            server = self.state.servers[index]
            views.append(
                msgspec.structs.replace(
                    _view(managed),
                    index=index,
                    port=server.port,
                    url=f"https://{host}:{server.port}",
                    release=server.release,
                )
            )
        return ProcessOverview(
            pid=os.getpid(),
            data_dir=str(self._layout.data_dir),
            kubeconfig=str(self._layout.kubeconfig),
            front_url=f"https://{host}:{self.state.front_port}",
            store=self.state.store,
            is_ready=self._is_ready
            and all(each.state is ProcessState.READY for each in self.managed_processes),
            upgrade=self.state.upgrade,
            processes=tuple(views),
            release_files=self.state.release_files,
        )

    async def restart(self, name: str) -> None:
        """Stop a process gracefully and start it again. Raises ClusterFailed."""
        managed = next((each for each in self.managed_processes if each.name == name), None)
        if managed is None:
            names = ", ".join(each.name for each in self.managed_processes)
            raise ControlRefused(f"there is no process {name!r}; processes: {names}")
        async with self._one_at_a_time():
            await managed.cycle()

    async def roll(self, index: int, release: str, *, file: str | None = None) -> None:
        """Restart a server with another release; with the previous one again if that fails.

        `file` is the original of a kept release.
        """
        before = self._server(index)
        files = with_file(self.state.release_files, release, file)
        self.state = msgspec.structs.replace(self.state, release_files=files)
        upgrade = self.state.upgrade
        if upgrade is None or upgrade.target != release:
            origins = tuple(each.release for each in self.state.servers)
            upgrade = Upgrade(target=release, origins=origins)
        await self._change(index, release, upgrade, was=before)

    async def roll_back(self, index: int) -> None:
        """Restart a server with the release that it had before the last upgrade."""
        before = self._server(index)
        upgrade = self.state.upgrade
        if upgrade is None:
            raise ControlRefused("nothing to roll back: there was no upgrade")
        await self._change(index, upgrade.origins[index], upgrade, was=before)
        if all(
            server.release == origin
            for server, origin in zip(self.state.servers, upgrade.origins, strict=True)
        ):
            self._store_state(msgspec.structs.replace(self.state, upgrade=None))

    async def _change(self, index: int, release: str, upgrade: Upgrade, *, was: str) -> None:
        managed, previous = self.servers[index], self.state.upgrade
        async with self._one_at_a_time():
            self._store_state(self.state.with_release(index, release, upgrade))
            self._copies = read_copies(self.state) | self._copies
            try:
                await managed.cycle()
            except ClusterFailed as error:
                if self._is_stopping:
                    raise
                self._store_state(self.state.with_release(index, was, previous))
                files = self.state.release_files
                try:
                    await managed.cycle()
                except ClusterFailed as again:
                    raise ClusterFailed(
                        f"{managed.name} starts neither with {release_label(release, files)} nor"
                        f" with {release_label(was, files)}, and is given up. Fix the error in its"
                        f" log, then start it: restow upgrade --to {was} --server {index}\n{again}"
                    ) from error
                raise ClusterFailed(
                    f"{managed.name} does not start with {release_label(release, files)}; it runs"
                    f" with {release_label(was, files)} again.\n{error}"
                ) from error

    def _one_at_a_time(self) -> asyncio.Lock:
        if self._rolling.locked():
            raise ControlRefused("another server is being restarted: wait until it is ready")
        if not self._is_ready:
            raise ControlRefused("the cluster is not ready yet: wait until it is")
        return self._rolling

    def _server(self, index: int) -> str:
        if not 0 <= index < len(self.state.servers):
            raise ControlRefused(
                f"there is no server {index}: servers are numbered 0 to"
                f" {len(self.state.servers) - 1}"
            )
        return self.state.servers[index].release

    # --- processes ----------------------------------------------------------------------------

    def _make_etcd(self) -> list[ManagedProcess]:
        program, members = find_etcd(), range(len(self.state.etcd))

        def launch(index: int) -> Launch:
            return member_launch(
                index,
                self.state.etcd,
                program=program,
                layout=self._layout,
                clock=self._runtime.clock,
            )

        for index in members:
            self._layout.etcd(index).mkdir(mode=0o700, parents=True, exist_ok=True)
        return [
            self._make(f"etcd-{index}", lambda index=index: launch(index))  # type: ignore[misc]
            for index in members
        ]

    async def _move_peers_to_tls(self) -> None:
        """Move the peers of an etcd of an earlier release to TLS, and close their plain ports.

        If it is interrupted, the next start repeats it.
        """
        members = self.state.etcd
        if all(member.plain_peer_port is None for member in members):
            return
        await move_peers(members, peer_urls(members), layout=self._layout, runtime=self._runtime)
        settled = (msgspec.structs.replace(each, plain_peer_port=None) for each in members)
        self._store_state(msgspec.structs.replace(self.state, etcd=tuple(settled)))
        for managed in self.etcd:
            await managed.cycle()

    def _server_launch(self, index: int) -> Launch:
        self._prepare_release(self.state.servers[index].release)
        fds = [listening.fileno() for listening in self._front]
        return server_launch(index, self.state, layout=self._layout, front_fds=fds)

    def _prepare_release(self, release: str) -> None:
        """Restore the copy of a release file if it was changed, and report a changed original."""
        self._restore_copy(release)
        notice = original_notice(release, self.state.release_files)
        if notice and notice not in self._notices:
            self._notices.add(notice)
            self._options.on_notice(notice)

    def restore_copies(self) -> None:
        """Restore the copies of all release files that servers run or can be rolled back to."""
        for release in self._copies:
            self._restore_copy(release)

    def _restore_copy(self, release: str) -> None:
        if (data := self._copies.get(release)) is not None:
            try:
                put_copy(Path(release), data)
            except ReleaseError as error:
                self._options.on_notice(str(error))

    def _make(self, name: str, make: Callable[[], Launch]) -> ManagedProcess:
        return ManagedProcess(
            name,
            make,
            log=RotatingLog(self._layout.log(name)),
            runtime=self._runtime,
            on_change=self._on_change,
        )

    def _on_change(self, managed: ManagedProcess) -> None:
        if managed.state is ProcessState.STARTING:
            children = [each.child for each in self.managed_processes if each.pid is not None]
            records = tuple(child.record() for child in children if child is not None)
            self.state = msgspec.structs.replace(self.state, processes=records)
            try:
                write_state(self._layout.state, self.state)
            except OSError as error:  # no process depends on this entry
                logger.warning("%s cannot be written: %s", self._layout.state, error)
        self._options.on_change(managed)
        if managed.state is ProcessState.FAILED and self._is_ready and not self._rolling.locked():
            self._check_lost(managed)

    def _check_lost(self, managed: ManagedProcess) -> None:
        """Check whether the cluster can continue without a failed process."""
        is_lost = managed in self.etcd or all(
            each.state is ProcessState.FAILED for each in self.servers
        )
        if is_lost and not self.failure.done():
            self.failure.set_result(managed.describe())

    async def _watch_health(self, index: int, managed: ManagedProcess) -> None:
        failures = 0
        while True:
            await self._runtime.clock.sleep(HEALTH_SECONDS)
            if managed.state not in (ProcessState.READY, ProcessState.UNREADY):
                failures = 0
                continue
            complaint = await self._probe.complaint(self.state.servers[index].port)
            failures = failures + 1 if complaint else 0
            if failures == 0 or failures >= HEALTH_FAILURES_MAX:
                managed.set_health(is_healthy=not complaint, note=complaint)

    def _store_state(self, state: ClusterState) -> None:
        self.state = state
        try:
            write_state(self._layout.state, state)
        except OSError as error:
            raise ClusterRefused(
                f"{self._layout.state} cannot be written: {error.strerror}"
            ) from error


def _view(managed: ManagedProcess) -> ProcessView:
    return ProcessView(
        name=managed.name,
        state=managed.state.value,
        note=managed.note,
        pid=managed.pid,
        restarts=managed.restarts,
    )
