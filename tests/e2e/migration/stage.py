"""Servers of a cluster, controllers, and a kind with old objects to migrate.

Objects are written in the old version below the API, as an older release left them. At the end the
whole log of the store is checked, and every raw value.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from restow.migration.names import POSITION_ANNOTATION
from restow.registry.stored_bytes import encode
from restow.storage.interface import Delete, Key, Put, Storage, Transaction, Write
from tests.e2e.migration.history import HASHES, KIND, OLD, ROOT, History, replay, snapshot
from tests.e2e.storageversion.clusters import EVENTS, STATES, V1, V2, WIDGETS, Cluster
from tests.sizes import SIZES
from tests.support.controllers_process import ControllersProcess
from tests.support.server_process import ServerProcess
from tests.support.verified_states import verify_states

WAIT_SECONDS_MAX: Final = SIZES.test_seconds_max * 0.8
"""For eventual conditions: a busy machine is no failure."""
POLL_SECONDS: Final = 0.02
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
NAME: Final = "widgets.example.com"
STATE: Final = f"{STATES}/{NAME}"
WIDGETS_V2: Final = WIDGETS.replace("/v1/", "/v2/")

PAGE_OBJECTS: Final = 10
SLOWLY, SLOWER, SLOWEST = (
    ("--page-objects", str(PAGE_OBJECTS), "--rate", str(rate)) for rate in (40, 15, 10)
)
"""Pages small enough to stop a migration between two of them; the slower rates leave time to
start servers."""


class Stage:
    """The cluster of a test, and its old objects."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.servers: list[ServerProcess] = []
        """In the order in which requests try them."""
        self._directory = directory
        self._controllers: list[ControllersProcess] = []
        self._begun = cluster.look(snapshot)

    def close(self) -> None:
        """Ends all controllers."""
        for each in self._controllers:
            each.kill()

    def controllers(self, *arguments: str, server: int = 0) -> ControllersProcess:
        """Returns a process of controllers, not started."""
        made = ControllersProcess(
            self._directory / f"controllers-{len(self._controllers) + 1}",
            kubeconfig=self.servers[server].kubeconfig,
            arguments=("-v", "2", *arguments),
        )
        self._controllers.append(made)
        return made

    # Objects.

    def plant(self, count: int, version: str = V1) -> None:
        """Writes old objects into the store."""
        self.plant_raw(
            {f"{OLD}{number:04d}": old_object(number, version) for number in range(count)}
        )

    def plant_raw(self, values: dict[str, bytes | None]) -> None:
        """Puts values into the store, or deletes them, past the servers."""

        async def write(storage: Storage) -> None:
            commits = [
                storage.commit(Transaction(writes=(_write(*each),))) for each in values.items()
            ]
            await asyncio.gather(*commits)

        self.cluster.look(write)

    def start_over(self, count: int) -> None:
        """Starts over on running servers, without controllers: the state is unknown, and old
        objects are stored."""
        assert all(each.process is None for each in self._controllers), "they would see it"
        self._repair()
        self.ask("DELETE", MIGRATIONS)
        self.ask("DELETE", EVENTS)
        self.ask("DELETE", WIDGETS_V2)
        state = self.ask("GET", STATE)
        state["status"]["persistedStorageVersionHashes"] = ["Unknown", HASHES[V2]]
        self.ask("PUT", f"{STATE}/status", state)
        self.plant(count)
        self._begun = self.cluster.look(snapshot)

    def _repair(self) -> None:
        """A failed test may have left servers stopped or in another release."""
        for server in self.servers:
            if server.process is None or "x+2" not in server.arguments:
                server.kill()
                server.arguments = ("--release", "x+2")
                server.start()

    def verify_other_kinds(self) -> None:
        """Marks all other kinds as verified. Controllers take longer for that than most tests."""
        verify_states(self.ask, but=NAME)

    # API requests.

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """Returns the response of the first server that can be reached; it must be a success."""
        for server in self.servers:
            if server.process is None:
                continue
            try:
                code, answer = server.request(method, path, body, **more)
            except (OSError, HTTPException):
                continue  # it is just starting or ending
            if code == 503:
                continue
            assert code in (200, 201), f"{method} {path}: {code} {answer}"
            return json.loads(answer)
        return None

    def persisted(self) -> list[str]:
        state = self.ask("GET", STATE) or {}
        found: list[str] = state.get("status", {}).get("persistedStorageVersionHashes", [])
        return found

    def migration(self) -> dict[str, Any]:
        """Returns the newest migration of the kind; empty if there is none."""
        found = [
            each
            for each in (self.ask("GET", MIGRATIONS) or {}).get("items", [])
            if each["spec"]["resource"]["resource"] == "widgets"
        ]
        found.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return found[-1] if found else {}

    def create_migration(self, name: str) -> None:
        """Creates a migration as a user does."""
        resource = {"group": "example.com", "version": "v2", "resource": "widgets"}
        self.ask("POST", MIGRATIONS, {"metadata": {"name": name}, "spec": {"resource": resource}})

    def position(self) -> dict[str, Any]:
        """Returns the position of the newest migration."""
        marks = self.migration().get("metadata", {}).get("annotations", {})
        found: dict[str, Any] = json.loads(marks.get(POSITION_ANNOTATION, "{}"))
        return found

    def scanned(self) -> tuple[int, int]:
        """Returns its pass, and the number of objects scanned in it."""
        found = self.position()
        return found.get("pass", 0), found.get("scanned", 0)

    def is_complete(self) -> bool:
        return self.persisted() == [HASHES[V2]]

    def reasons(self, name: str = "widgets") -> list[str]:
        """Returns the reasons of Events about objects with this in their name: migrations, the
        state."""
        items = (self.ask("GET", EVENTS) or {}).get("items", [])
        return [each["reason"] for each in items if name in each["involvedObject"]["name"]]

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Returns status and reason of each condition of the newest migration."""
        found = self.migration().get("status", {}).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    # Waits and checks.

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Waits until a condition holds; after a time limit it fails with all logs."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not come that {what}\n{self.logs()}")
            time.sleep(POLL_SECONDS)

    def wait_complete(self) -> None:
        self.wait(self.is_complete, "the persisted hashes are narrowed")

    def logs(self) -> str:
        told: Sequence[ServerProcess | ControllersProcess] = [*self.servers, *self._controllers]
        now = [f"request {self.conditions()} {self.position()}, persisted {self.persisted()}"]
        return "\n".join([*now, *(f"--- {each.log_file}\n{each.log_tail()}" for each in told)])

    def history(self) -> History:
        """Replays the log since the start, which must have no violations."""
        history = self.cluster.look(lambda storage: replay(storage, self._begun))
        assert not history.broken, f"{history.broken[:5]}\n{self.logs()}"
        return history

    def audit_complete(self) -> History:
        """Checks that all objects are in the target version, and that there were no violations."""
        history = self.history()
        assert set(history.left) <= {V2}, f"{history.left}\n{self.logs()}"
        assert history.persisted == (HASHES[V2],)
        self.cluster.audit()
        for each in self._controllers:
            assert "Traceback" not in each.log(), each.log_tail()
        return history


def old_object(number: int, version: str = V1) -> bytes:
    metadata = {
        "name": f"{OLD}{number:04d}",
        "namespace": "default",
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "generation": 1,
        "creationTimestamp": "2024-01-01T00:00:00Z",
    }
    return encode({"metadata": metadata, "spec": {"count": number}}, version, KIND)


def _write(name: str, value: bytes | None) -> Write:
    key = Key(f"{ROOT}default/{name}")
    return Delete(key) if value is None else Put(key, value)
