"""Several server processes on one port: `restow serve --workers N`.

The parent owns the listening sockets and restarts its workers; each worker has its own identity and
an additional port. No state is kept between runs. The output of workers goes to the output of the
parent.

Not here: the options of a server, which are passed on unchanged.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from restow.aio import Runtime
from restow.apiserver.certificate_reload import CertificateReload
from restow.apiserver.cluster_keys import check_keys_exist
from restow.apiserver.kubeconfig import ExtraContext, write_kubeconfig
from restow.apiserver.pki import Pki, PkiOptions, ensure_pki
from restow.httpserver.shared_port import open_front_sockets
from restow.localcluster.child_process import Launch, restow_command
from restow.localcluster.errors import ClusterFailed, ClusterRefused
from restow.localcluster.health import reachable
from restow.localcluster.managed_process import ManagedProcess, ProcessState
from restow.localcluster.ports import PortChooser, is_free
from restow.localcluster.shutdown_signals import ShutdownSignals
from restow.storage.errors import OpenRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options that the parent itself uses."""

    count: int
    bind: str
    port: int
    data_dir: Path
    store: str
    """The address of the store."""
    kubeconfig: Path
    pki: PkiOptions
    needs_certificate: bool = False
    """Whether the workers require client certificates."""
    words: tuple[str, ...]
    """The command line as given; changed options are appended, because the last one counts."""


class _OutputSink:
    """Copies the output of a worker to standard error."""

    path = Path("standard error")

    def __init__(self, name: str) -> None:
        # Prefixed, also because a line that begins with `ready` may only come from the parent.
        self._mark = f"{name}: ".encode()
        self._is_at_start = True

    def write(self, data: bytes) -> None:
        if not data:
            return
        lines = data.splitlines(keepends=True)
        marked = [self._mark + line for line in lines]
        if not self._is_at_start:
            marked[:1] = lines[:1]
        self._is_at_start = data.endswith(b"\n")
        with suppress(OSError):  # the reader has closed the pipe, or the disk is full
            sys.stderr.buffer.write(b"".join(marked))
            sys.stderr.flush()

    def close(self) -> None:
        pass


class Workers:
    """The processes of one `restow serve`."""

    def __init__(self, options: WorkerOptions, runtime: Runtime) -> None:
        self._options = options
        self._runtime = runtime
        self._tasks = runtime.tasks("workers")
        self._failure: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        taken = () if options.port == 0 else (options.port,)
        if options.port and not is_free(options.bind, options.port):
            raise ClusterRefused(
                f"port {options.port} is in use: another process listens there; use --port 0 for"
                " any free port"
            )
        self._front = open_front_sockets(options.bind, options.port, count=options.count)
        self.port: int = self._front[0].getsockname()[1]
        chooser = PortChooser(
            lambda port: is_free(options.bind, port), runtime.randomness, (*taken, self.port)
        )
        self._ports = [chooser.take() for _ in range(options.count)]
        self.managed_processes = [self._make(index) for index in range(options.count)]

    async def start(self) -> str:
        """Start the workers; return the address when all are ready. Raises ClusterFailed."""
        options, host = self._options, reachable(self._options.bind)
        try:
            await check_keys_exist(options.store, options.data_dir / "pki", self._runtime)
        except OpenRefused as error:
            raise ClusterRefused(str(error)) from error
        pki = await asyncio.to_thread(
            ensure_pki, options.data_dir / "pki", self._runtime, options.pki
        )
        for managed in self.managed_processes:
            self._tasks.spawn(managed.name, managed.run())
        for managed in self.managed_processes:
            await managed.wait_ready()
        url = f"https://{host}:{self.port}"
        extra = [
            ExtraContext(f"restow-{index}", f"https://{host}:{port}")
            for index, port in enumerate(self._ports)
        ]

        def write(pki: Pki) -> None:
            write_kubeconfig(
                options.kubeconfig,
                server_url=url,
                pki=pki,
                extra=extra,
                needs_certificate=options.needs_certificate,
            )

        write(pki)
        renewal = CertificateReload(pki, options.pki, self._runtime)
        renewal.changed.subscribe(write)
        self._tasks.spawn("certificates", renewal.run())
        return url

    async def wait_failed(self) -> str:
        """Wait until all workers have failed; the description of the last one."""
        return await self._failure

    async def stop(self) -> None:
        await asyncio.gather(*(managed.stop() for managed in self.managed_processes))
        await self._tasks.close()
        for listening in self._front:
            listening.close()

    def hurry(self) -> None:
        """Kill the workers that are being stopped."""
        for managed in self.managed_processes:
            managed.kill()

    def _make(self, index: int) -> ManagedProcess:
        fds = [listening.fileno() for listening in self._front]
        own_first = (*fds[index:], *fds[:index])
        options = self._options
        words = (
            *options.words,
            "--workers=1",
            f"--port={self._ports[index]}",
            f"--front-fds={','.join(map(str, own_first))}",
            f"--kubeconfig={options.data_dir / 'servers' / f'{index}.kubeconfig'}",
        )
        launch = Launch(command=restow_command(*words), fds=own_first)
        return ManagedProcess(
            f"worker-{index}",
            lambda: launch,
            log=_OutputSink(f"worker-{index}"),
            runtime=self._runtime,
            on_change=self._on_change,
        )

    def _on_change(self, managed: ManagedProcess) -> None:
        is_lost = all(each.state is ProcessState.FAILED for each in self.managed_processes)
        if is_lost and not self._failure.done():
            self._failure.set_result(managed.describe())


async def run_workers(
    options: WorkerOptions, runtime: Runtime, on_ready: Callable[[str], None]
) -> None:
    """Run the workers until SIGINT or SIGTERM. Raises ClusterError, PkiError."""
    workers = Workers(options, runtime)
    ending = ShutdownSignals(runtime.clock, workers.hurry)
    try:
        async with ending.interrupts():
            on_ready(await workers.start())
            raise ClusterFailed(await workers.wait_failed())
    finally:
        await workers.stop()
