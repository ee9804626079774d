"""The processes under test: three servers on one store, and the controllers.

Starting a process blocks for a moment, and is done here, in the main thread; everything slow is
awaited, because the proxies to the store may run in this process. One server, the victim, has the
older release and a short lease: while it participates servers do not agree; when its lease has
expired they do, and a migration begins under the load. Not here: the load, and the faults.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from restow.aio import Runtime, SystemClock
from restow.apiserver.pki import PkiOptions, ensure_pki
from restow.storage.drivers import open_storage
from restow.storage.interface import Span, Storage
from restow.storageversion.identity import SERVERS_PREFIX, ServerId, decode_record, server_of
from tests.support.controllers_process import ControllersProcess
from tests.support.fire.clients import Target
from tests.support.fire.objects import NAMESPACES
from tests.support.fire.skewed_server import SkewedServerProcess
from tests.support.fire.stores import FireStore
from tests.support.server_process import ServerProcess
from tests.support.verified_states import verify_states

OLD, NEW = "x+1", "x+2"
"""Releases; the new one stores the kind in another version."""
MIXED: Final = (OLD, NEW, NEW)
VICTIM: Final = 0
LEASE_SECONDS: Final = 3
MORTAL: Final = (
    *("--identity-lease-duration-seconds", str(LEASE_SECONDS)),
    *("--identity-lease-renew-interval-seconds", "1"),
)
KEPT: Final = ("--compaction-interval", "24h")
"""Keep all history, so that all of it can be checked."""
OFTEN: Final = ("--compaction-interval", "30s")
STARTED_SECONDS_MAX: Final = 60.0
STOPPED_SECONDS_MAX: Final = 30.0
WAIT_SECONDS_MAX: Final = 60.0
"""Timeout for eventual conditions: a busy machine is no failure."""
POLL_SECONDS: Final = 0.05
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"


class StageFailed(Exception):
    """An expected condition was not reached; the text has the condition, and the logs."""


class Stage:
    """Three servers, controllers, and their store."""

    def __init__(
        self,
        directory: Path,
        store: FireStore,
        *,
        releases: Sequence[str] = MIXED,
        has_skews: bool = False,
        has_history: bool = True,
    ) -> None:
        """Nothing is started yet. Clocks can only be set for servers made for it. Without history
        servers compact as usual, only more often."""
        self._compaction = KEPT if has_history else OFTEN
        self.directory = directory
        self.store = store
        self.servers: list[ServerProcess] = []
        self._maker = SkewedServerProcess if has_skews else ServerProcess
        self._releases = tuple(releases)
        self._clock = SystemClock()
        self._runtime = Runtime.system()
        self._controllers: ControllersProcess | None = None

    @property
    def victim(self) -> ServerProcess:
        return self.servers[VICTIM]

    async def open(self) -> None:
        """Start the store, servers and controllers, and create the namespaces."""
        keys = self.directory / "pki"
        ensure_pki(keys, self._runtime, PkiOptions(bind="127.0.0.1"))
        await self.store.open()
        for number, release in enumerate(self._releases):
            data_dir = self.directory / f"server-{number + 1}"
            data_dir.mkdir(mode=0o700, parents=True)
            shutil.copytree(keys, data_dir / "pki")
            lease = MORTAL if number == VICTIM and len(set(self._releases)) > 1 else ()
            self.servers.append(
                self._maker(
                    data_dir,
                    store=self.store.address_for(number),
                    arguments=("--release", release, *self._compaction, *lease),
                )
            )
        await self.start(*self.servers)
        await asyncio.to_thread(self._prepare)
        self._controllers = ControllersProcess(
            self.directory / "controllers", kubeconfig=self.servers[1].kubeconfig
        )
        self._controllers.launch()
        await self.wait(
            lambda: self._is_ready(self._controllers), "controllers are ready", STARTED_SECONDS_MAX
        )

    def end(self) -> None:
        """End servers and controllers, all at once; the store keeps running."""
        for process in (*self.servers, *([self._controllers] if self._controllers else [])):
            process.kill()

    async def close(self) -> None:
        """End all."""
        self.end()
        await self.store.close()

    def target(self) -> Target:
        """Addresses of the servers for clients."""
        return Target(
            ports=tuple(server.port for server in self.servers),
            token=self.victim.token,
            ca_file=str(self.victim.pki_dir / "ca.crt"),
        )

    async def start(self, *servers: ServerProcess) -> None:
        """Start servers concurrently, and wait until all are ready."""
        for server in servers:
            server.launch()
        for server in servers:
            await self.wait(
                lambda: self._is_ready(server),  # noqa: B023  (awaited in the same iteration)
                f"{server.data_dir.name} is ready",
                STARTED_SECONDS_MAX,
            )

    async def stop(self, server: ServerProcess) -> None:
        """Stop gracefully."""
        server.send_stop_signal()
        process = server.process
        assert process is not None
        await self.wait(
            lambda: process.poll() is not None,
            f"{server.data_dir.name} stops",
            STOPPED_SECONDS_MAX,
        )
        code = server.wait_stopped()
        if code:
            raise StageFailed(f"{server.data_dir.name} stopped with {code}:\n{server.log_tail()}")

    async def change_release(self, number: int, release: str) -> None:
        """Stop a server gracefully and start another release in its place."""
        server = self.servers[number]
        await self.stop(server)
        arguments = list(server.arguments)
        arguments[arguments.index("--release") + 1] = release
        server.arguments = tuple(arguments)
        await self.start(server)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def now(self) -> float:
        return self._clock.monotonic()

    async def wait(
        self,
        condition: Callable[[], object],
        what: str,
        seconds_max: float = WAIT_SECONDS_MAX,
    ) -> None:
        """Wait until a condition holds, which must not block; on a timeout, raise with all logs."""
        deadline = self._clock.monotonic() + seconds_max
        while not condition():
            if self._clock.monotonic() > deadline:
                raise StageFailed(f"timeout: {what}\n{self.logs()}")
            await self._clock.sleep(POLL_SECONDS)

    async def wait_blocking(self, condition: Callable[[], object], what: str) -> None:
        """Like `wait`, for a condition that blocks, such as a request to a server."""
        deadline = self._clock.monotonic() + WAIT_SECONDS_MAX
        while not await asyncio.to_thread(condition):
            if self._clock.monotonic() > deadline:
                raise StageFailed(f"timeout: {what}\n{self.logs()}")
            await self._clock.sleep(POLL_SECONDS)

    async def wait_all_ready(self) -> None:
        """Wait until every server reports ready."""
        await self.wait_blocking(
            lambda: all(is_serving(server) for server in self.servers), "all servers are ready"
        )

    def logs(self) -> str:
        everybody = [*self.servers, *([self._controllers] if self._controllers else [])]
        return "\n".join(f"--- {each.directory.name}\n{each.log_tail()}" for each in everybody)

    # The store, below the servers.

    async def open_storage(self) -> Storage:
        return await open_storage(self.store.address, self._runtime)

    async def identities(self, storage: Storage) -> dict[int, set[ServerId]]:
        """The ids in the store, by the number of the server."""
        found: dict[int, set[ServerId]] = {number: set() for number in range(len(self.servers))}
        for item in (await storage.range(Span.of_prefix(SERVERS_PREFIX))).items:
            record = decode_record(item.value)
            for number, server in enumerate(self.servers):
                if record is not None and record.address.endswith(f":{server.port}"):
                    found[number].add(server_of(item.key))
        return found

    async def wait_removed(self, storage: Storage, ids: set[ServerId]) -> None:
        """Wait until none of these ids is a member."""
        deadline = self._clock.monotonic() + WAIT_SECONDS_MAX
        while ids & set().union(*(await self.identities(storage)).values()):
            if self._clock.monotonic() > deadline:
                raise StageFailed(f"{ids} were not removed\n{self.logs()}")
            await self._clock.sleep(POLL_SECONDS)

    # Requests to servers; each blocks.

    def ask(self, method: str, path: str, body: object = None, *, server: int = 1) -> Any:
        code, answer = self.servers[server].request(method, path, body)
        if code not in (200, 201):
            raise StageFailed(f"{method} {path}: {code} {answer}")
        return json.loads(answer)

    def _prepare(self) -> None:
        for name in NAMESPACES:
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        # All other kinds are stored in the current version, as only these servers have written; to
        # verify that would take controllers longer than most runs.
        verify_states(self.ask, but="widgets.example.com")

    @staticmethod
    def _is_ready(process: ServerProcess | ControllersProcess | None) -> bool:
        if process is None or process.process is None:
            return False
        code = process.process.poll()
        if code is not None:
            raise StageFailed(f"exit code {code} before it was ready:\n{process.log_tail()}")
        return process.is_ready(process.out_file.read_text(errors="replace"))


def is_serving(server: ServerProcess) -> bool:
    """Whether a server reports ready. Blocks."""
    try:
        return server.process is not None and server.get("/readyz")[0] == 200
    except (OSError, HTTPException):
        return False
