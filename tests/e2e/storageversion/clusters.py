"""Several real servers on one store, and direct access to that store.

A cluster starts without servers, on a store of its own, with keys that all its servers share, so
that any number of them can be started at once. A server that a test will pause or kill gets a
`SHORT_LEASE`, which expires after `LEASE_SECONDS`. The others have the default lease, so that it
does not expire on a busy machine; tests that could not tolerate even that use an `ENDLESS_LEASE`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from restow.aio import Runtime
from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.storage.drivers import open_storage
from restow.storage.interface import Span, Storage
from restow.storageversion.identity import SERVERS_PREFIX, ServerId, decode_record, server_of
from restow.storageversion.object_codec import LEASES_PREFIX
from restow.storageversion.records import ENCODERS_PREFIX, parse_encoder_key
from tests.support.server_process import ServerProcess
from tests.support.storageversion_audit import audit_history

LEASE_SECONDS: Final = 3
RENEW_SECONDS: Final = 1
SHORT_LEASE: Final = (
    *("--identity-lease-duration-seconds", str(LEASE_SECONDS)),
    *("--identity-lease-renew-interval-seconds", str(RENEW_SECONDS)),
)
ENDLESS_LEASE: Final = ("--identity-lease-duration-seconds", "3600")
"""Longer than any pause of the machine."""
WAIT_SECONDS_MAX: Final = 40.0
"""For eventual conditions: a busy machine is no failure."""
POLL_SECONDS: Final = 0.05
STOP_SECONDS_MAX: Final = 5.0
"""For the graceful stop of a server."""

REPORTS: Final = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
STATES: Final = "/apis/migration.k8s.io/v1alpha1/storagestates"
EVENTS: Final = "/api/v1/namespaces/default/events"
WIDGETS: Final = "/apis/example.com/v1/namespaces/default/widgets"
WIDGETS_NAME: Final = "example.com.widgets"
V1, V2 = "example.com/v1", "example.com/v2"

T = TypeVar("T")


class Cluster:
    """Servers that share a store and keys. Created without servers."""

    def __init__(self, directory: Path, store: str, pki_dir: Path) -> None:
        self.directory = directory
        self.store = store
        self.servers: list[ServerProcess] = []
        """All servers that were ever created, running or not."""
        self._pki_dir = pki_dir

    def server(self, release: str = "x+1", *arguments: str) -> ServerProcess:
        """Creates a new server without starting it."""
        data_dir = self.directory / f"server-{len(self.servers) + 1}"
        data_dir.mkdir(mode=0o700, parents=True)
        shutil.copytree(self._pki_dir, data_dir / "pki")
        server = ServerProcess(
            data_dir, store=self.store, arguments=("--release", release, *arguments)
        )
        self.servers.append(server)
        return server

    def start(
        self, *releases: str, short_leases: int = 0, others: Sequence[str] = ()
    ) -> list[ServerProcess]:
        """Starts a server of each of these releases together; returns when all are ready.

        The first `short_leases` servers get a short lease, the others get the arguments `others`.
        """
        servers = [
            self.server(release, *(SHORT_LEASE if number < short_leases else others))
            for number, release in enumerate(releases)
        ]
        for server in servers:
            server.launch()
        return [server.wait_ready(seconds_max=WAIT_SECONDS_MAX) for server in servers]

    def close(self) -> None:
        """Ends all processes."""
        for server in self.servers:
            server.kill()

    # Contents of the store, independent of the servers.

    def look(self, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the store itself."""

        async def run() -> T:
            storage = await open_storage(self.store, Runtime.system())
            try:
                return await work(storage)
            finally:
                await storage.close()

        return asyncio.run(run())

    def keys(self, prefix: str) -> list[str]:
        async def read(storage: Storage) -> list[str]:
            return [item.key for item in (await storage.range(Span.of_prefix(prefix))).items]

        return self.look(read)

    def members(self) -> set[ServerId]:
        """Returns the servers with a membership record."""
        return set(self._members())

    def id_of(self, server: ServerProcess) -> ServerId:
        """Returns the identity of a running server."""
        wait_for(lambda: self.find_id(server), "it has a key", servers=[server])
        found = self.find_id(server)
        assert found is not None, "it had one a moment ago"
        return found

    def find_id(self, server: ServerProcess) -> ServerId | None:
        """Returns the identity of a server, if it has a membership record."""
        for server_id, address in self._members().items():
            if address.endswith(f":{server.port}"):
                return server_id
        return None

    def _members(self) -> dict[ServerId, str]:
        """Returns the servers with a membership record, with their addresses."""

        async def read(storage: Storage) -> dict[ServerId, str]:
            found = (await storage.range(Span.of_prefix(SERVERS_PREFIX))).items
            records = {server_of(item.key): decode_record(item.value) for item in found}
            return {
                each: "" if record is None else record.address for each, record in records.items()
            }

        return self.look(read)

    def records_of(self, server_id: ServerId) -> list[str]:
        """Returns all keys in the store that belong to a server."""

        async def read(storage: Storage) -> list[str]:
            found = (await storage.range(Span.of_prefix("/"))).items
            own = f'"{server_id}"'.encode()
            return [
                item.key
                for item in found
                if server_id in item.key
                or (item.key.startswith("/registry/storageversions/") and own in item.value)
            ]

        return self.look(read)

    def encoders(self, server_id: ServerId) -> set[str]:
        """Returns the resources that a server has reported."""
        found = (parse_encoder_key(_key(key)) for key in self.keys(ENCODERS_PREFIX))
        return {name for each, name in found if each == server_id}

    def identity_leases(self) -> set[str]:
        return {key.removeprefix(LEASES_PREFIX) for key in self.keys(LEASES_PREFIX)}

    def audit(self) -> int:
        """Checks that no object was ever written in a version that was not reported; returns the
        number of objects."""
        catalog = release_catalog(shipped_release("x+1"))
        return self.look(lambda storage: audit_history(storage, catalog))


def _key(text: str) -> Any:
    return text


# Answers of the servers.


def call(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    """Returns the response to a request that must succeed."""
    code, answer = server.request(method, path, body)
    assert code in (200, 201), f"{method} {path}: {code} {answer}"
    return json.loads(answer)


def report(server: ServerProcess, name: str = WIDGETS_NAME) -> dict[str, Any]:
    """Returns the StorageVersion status of a resource, from one server."""
    found: dict[str, Any] = call(server, "GET", f"{REPORTS}/{name}")["status"]
    return found


def common(server: ServerProcess, name: str = WIDGETS_NAME) -> str | None:
    """Returns the common encoding version, from one server."""
    found: str | None = report(server, name).get("commonEncodingVersion")
    return found


def entries(server: ServerProcess, name: str = WIDGETS_NAME) -> dict[str, str]:
    """Returns the encoding version of each server, from one server."""
    return {
        entry["apiServerID"]: entry["encodingVersion"]
        for entry in report(server, name).get("storageVersions", [])
    }


def reports(server: ServerProcess) -> dict[str, set[str]]:
    """Returns the servers that have reported each resource."""
    return {
        item["metadata"]["name"]: {
            entry["apiServerID"] for entry in item["status"].get("storageVersions", [])
        }
        for item in call(server, "GET", REPORTS)["items"]
    }


def widget(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def add_widget(server: ServerProcess, name: str, **fields: Any) -> None:
    call(server, "POST", WIDGETS, widget(name, **fields))


def is_ready(server: ServerProcess) -> bool:
    return server.get("/readyz")[0] == 200


def wait_for(
    condition: Callable[[], object], what: str, *, servers: Sequence[ServerProcess] = ()
) -> None:
    """Waits until a condition holds; after a time limit it fails with the logs of `servers`."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {each.data_dir.name}\n{each.log_tail()}" for each in servers)
            raise AssertionError(f"it does not come that {what}\n{logs}")
        time.sleep(POLL_SECONDS)


def replace(server: ServerProcess, release: str) -> None:
    """Stops a server and starts another release instead."""
    arguments = list(server.arguments)
    arguments[arguments.index("--release") + 1] = release
    assert server.stop(seconds_max=STOP_SECONDS_MAX) == 0
    server.arguments = tuple(arguments)
    server.start()
