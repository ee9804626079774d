"""The run of a whole cluster: what `restow up` does.

In order: the lock of the data directory -> orphans of an earlier run -> the plan -> keys -> the
front port -> the control socket -> the processes -> kubeconfig -> ready. Then it waits for a
signal, for a stop request, or for the failure of a process that the cluster needs.

Not here: the output; a `RunView` receives the events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from restow.aio import Runtime
from restow.aio.extras import require_extra
from restow.apiserver.certificate_reload import CertificateReload
from restow.apiserver.cluster_keys import check_keys_exist
from restow.apiserver.kubeconfig import ExtraContext, write_kubeconfig
from restow.apiserver.pki import Pki, PkiOptions, ensure_pki
from restow.httpserver.shared_port import open_front_sockets
from restow.kinds.releases import ReleaseError
from restow.localcluster.cluster_plan import (
    BIND_DEFAULT,
    OWN_ETCD,
    STORE_DEFAULT,
    ClusterOptions,
    is_elsewhere,
    plan_cluster,
)
from restow.localcluster.commands import needs_certificate
from restow.localcluster.control import ControlServer
from restow.localcluster.errors import ClusterFailed, ClusterRefused, ControlRefused
from restow.localcluster.health import ServerProbe, reachable
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked
from restow.localcluster.managed_process import ManagedProcess
from restow.localcluster.messages import ControlReply, ControlRequest, ProcessOverview
from restow.localcluster.orphans import end_orphans
from restow.localcluster.ports import is_free
from restow.localcluster.release_files import (
    keep_release,
    release_label,
    release_of,
    releases_in_use,
    rollback_notices,
    settle_releases,
)
from restow.localcluster.restore_record import apply_record, check_keys, read_record
from restow.localcluster.shutdown_signals import ShutdownSignals
from restow.localcluster.state import ClusterState, read_state, write_state
from restow.localcluster.supervisor import Supervisor, SupervisorOptions
from restow.storage.errors import OpenRefused
from restow.storage.private_files import make_data_directory


class RunView(Protocol):
    """Receives the events of a run."""

    def notice(self, text: str) -> None:
        """A notice for the user."""
        ...

    def begin(self, supervisor: Supervisor) -> None:
        """Called before the processes are started."""
        ...

    def changed(self, managed: ManagedProcess) -> None:
        """Called when the state of a process has changed."""
        ...

    def ready(self, overview: ProcessOverview, dashboard_url: str | None) -> None:
        """Called when all processes are ready."""
        ...

    def stopping(self) -> None:
        """Called when the stop begins."""
        ...


async def run_cluster(
    requested: ClusterOptions,
    layout: Layout,
    *,
    view: RunView,
    runtime: Runtime,
    has_controllers: bool,
) -> None:
    """Run a cluster until it is stopped. Raises ClusterError, PkiError, ReleaseError."""
    try:
        make_data_directory(layout.data_dir)
    except OpenRefused as error:
        raise ClusterRefused(str(error)) from error
    with locked(layout):
        found = read_state(layout.state)
        state = await _prepare(requested, found, layout, view=view, runtime=runtime)
        options_of_keys = PkiOptions(bind=state.bind, with_etcd=state.store == OWN_ETCD)
        pki = await asyncio.to_thread(ensure_pki, layout.pki, runtime, options_of_keys)
        if state.store == STORE_DEFAULT:
            await check_keys(layout, pki)
        try:
            front = open_front_sockets(state.bind, state.front_port, count=len(state.servers))
        except OSError as error:
            raise ClusterRefused(
                f"the front port {state.bind}:{state.front_port} cannot be opened: {error.strerror}"
            ) from error
        renewal = CertificateReload(pki, options_of_keys, runtime)
        probe = ServerProbe(pki, state.bind, runtime)
        renewal.changed.subscribe(probe.take)
        supervisor = Supervisor(
            state,
            layout=layout,
            front=front,
            probe=probe,
            runtime=runtime,
            options=SupervisorOptions(
                has_controllers=has_controllers, on_change=view.changed, on_notice=view.notice
            ),
        )
        try:
            await _Run(supervisor, renewal, layout, view, runtime).go()
        except ClusterFailed:
            if not supervisor.is_ready:
                supervisor.restore_options(found.server_options if found else ())
                if found is None and is_elsewhere(state.store):
                    # The store was never reached: the next start may use another address.
                    layout.state.unlink(missing_ok=True)
            raise


async def _prepare(
    requested: ClusterOptions,
    found: ClusterState | None,
    layout: Layout,
    *,
    view: RunView,
    runtime: Runtime,
) -> ClusterState:
    if found is not None:
        for name in await end_orphans(found.processes, runtime.clock):
            view.notice(f"{name} was left from an earlier run, and was stopped")
        found = settle_releases(found, layout)
        for notice in rollback_notices(found):
            view.notice(notice)
    record = read_record(layout)
    if record is not None and requested.release is None and record.release is not None:
        requested = replace(requested, release=record.release)
    if requested.release is not None:
        kept = keep_release(requested.release, layout)
        requested = replace(requested, release=kept, release_file=requested.release)
    if record is not None and found is not None:
        found = _restored(found, requested.release, view)
    bind = requested.bind or (found.bind if found else BIND_DEFAULT)
    plan = plan_cluster(requested, found, lambda port: is_free(bind, port), runtime.randomness)
    for notice in plan.notices:
        view.notice(notice)
    for release in releases_in_use(plan.state):
        release_of(release)
    if plan.state.store.startswith("etcd"):
        require_extra("etcd")  # fail here instead of in each server
    if plan.state.store == STORE_DEFAULT and not layout.pki.exists():
        await check_keys(layout, None)
    elif is_elsewhere(plan.state.store):
        try:
            await check_keys_exist(plan.state.store, layout.pki, runtime)
        except OpenRefused as error:
            raise ClusterRefused(str(error)) from error
    layout.kubeconfig.unlink(missing_ok=True)  # written again when the cluster is ready
    write_state(layout.state, plan.state)
    return plan.state


def _restored(found: ClusterState, release: str | None, view: RunView) -> ClusterState:
    """The state after a restore. A notice is shown if it changes the servers' releases."""
    state = apply_record(found, release)
    if state.servers != found.servers:
        before, after = (
            ", ".join(release_label(name, each.release_files) for name in releases_in_use(each))
            for each in (found, state)
        )
        view.notice(
            f"the store was restored from a backup: the servers start with release {after}, not"
            f" {before}"
        )
    return state


def _kept(name: str, layout: Layout) -> str:
    try:
        return keep_release(name, layout)
    except ReleaseError as error:
        raise ControlRefused(str(error)) from error


class _Run:
    """One run, until it is stopped."""

    def __init__(
        self,
        supervisor: Supervisor,
        renewal: CertificateReload,
        layout: Layout,
        view: RunView,
        runtime: Runtime,
    ) -> None:
        self._supervisor = supervisor
        self._renewal = renewal
        self._tasks = runtime.tasks("cluster")
        self._layout = layout
        self._view = view
        self._runtime = runtime
        self._ending = ShutdownSignals(runtime.clock, supervisor.hurry)

    async def go(self) -> None:
        """Run the cluster until it is stopped. Raises ClusterFailed."""
        control = None
        try:
            async with self._ending.interrupts():
                self._layout.servers.mkdir(mode=0o700, exist_ok=True)
                self._write_kubeconfig(self._layout.front_kubeconfig)
                control = await ControlServer.start(
                    self._handle, runtime=self._runtime, data_dir=self._layout.data_dir
                )
                await self._start_and_wait()
        finally:
            self._view.stopping()
            if control is not None:
                await control.close()
            await self._tasks.close()
            await self._supervisor.stop()

    async def _start_and_wait(self) -> None:
        """Start everything, then wait for the failure of a process that the cluster needs."""
        supervisor = self._supervisor
        self._view.begin(supervisor)
        await supervisor.start()
        self._layout.restored.unlink(missing_ok=True)
        self._write_kubeconfig(self._layout.kubeconfig)
        self._renewal.changed.subscribe(self._rewrite_kubeconfigs)
        self._tasks.spawn("certificates", self._renewal.run())
        self._view.ready(supervisor.overview(), await self._dashboard_url())
        raise ClusterFailed(await supervisor.failure)

    async def _dashboard_url(self) -> str | None:
        state = self._supervisor.state
        probe = ServerProbe(self._renewal.pki, state.bind, self._runtime)
        try:
            return await probe.dashboard_link(state.front_port)
        finally:
            await probe.close()

    def _rewrite_kubeconfigs(self, _pki: Pki) -> None:
        """Write the kubeconfigs again, because their client certificate was renewed."""
        for path in (self._layout.front_kubeconfig, self._layout.kubeconfig):
            self._write_kubeconfig(path)

    def _write_kubeconfig(self, path: Path) -> None:
        state = self._supervisor.state
        host = reachable(state.bind)
        write_kubeconfig(
            path,
            server_url=f"https://{host}:{state.front_port}",
            pki=self._renewal.pki,
            needs_certificate=needs_certificate(state.server_options),
            extra=[
                ExtraContext(f"restow-{index}", f"https://{host}:{server.port}")
                for index, server in enumerate(state.servers)
            ],
        )

    async def _handle(self, request: ControlRequest) -> AsyncIterator[ControlReply]:
        """Handle a request of the control socket."""
        supervisor = self._supervisor
        match request.verb:
            case "list":
                supervisor.restore_copies()
            case "restart":
                yield ControlReply(progress=f"{request.name} is being restarted")
                await supervisor.restart(request.name or "")
            case "roll":
                if request.server is None or (request.release is None) != request.is_rollback:
                    raise ControlRefused("roll needs a server, and either a release or is_rollback")
                yield ControlReply(progress=f"server {request.server} is being restarted")
                if request.release is None:
                    await supervisor.roll_back(request.server)
                else:
                    release = _kept(request.release, self._layout)
                    await supervisor.roll(
                        request.server, release, file=request.release_file or request.release
                    )
            case "stop":
                asyncio.get_running_loop().call_soon(self._ending.ask)
        yield ControlReply(overview=supervisor.overview())
