"""Two servers, controllers, and a custom resource whose storage version is to change.

Each test has an API group of its own on servers that keep running. Its objects are created through
the API of both servers; at the end the whole log of the store is checked.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from restow.migration.names import POSITION_ANNOTATION
from tests.e2e.custom.switching import DEFINITIONS, client_of
from tests.e2e.custom.tracing import KIND, PLURAL, VERSIONS, Place, Trace, traced
from tests.e2e.storageversion.clusters import EVENTS, REPORTS, STATES, Cluster
from tests.sizes import SIZES
from tests.support.api_client import Reply
from tests.support.controllers_process import ControllersProcess
from tests.support.server_process import ServerProcess
from tests.support.verified_states import verify_states

WAIT_SECONDS_MAX: Final = SIZES.test_seconds_max * 0.8
"""For eventual conditions: a busy machine is no failure."""
POLL_SECONDS: Final = 0.02
COMMAND_SECONDS_MAX: Final = 60.0
CLIENTS_PER_SERVER: Final = 4
MIGRATIONS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
MERGE: Final = {"Content-Type": "application/merge-patch+json"}

PAGE_OBJECTS: Final = 50
SLOWLY: Final = ("--page-objects", str(PAGE_OBJECTS), "--rate", "200")
"""Pages small enough to stop a migration between two of them."""

Object = dict[str, Any]
Answer = tuple[int, Any]


def definition(place: Place, conversion: Object | None = None, **fields: Object) -> Object:
    """A CRD stored in v1. Each version has the fields of both; `fields` overrides parts of the
    spec."""
    color = {"type": "string"}
    known = {
        "writer": {"type": "string"},
        "turn": {"type": "integer"},
        "color": color,
        "paint": {"type": "object", "properties": {"color": color}},
    }
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": known | fields}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": place.name},
        "spec": {
            "group": place.group,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "kind": KIND},
            "conversion": conversion or {"strategy": "None"},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == "v1",
                    "schema": {"openAPIV3Schema": schema},
                }
                for name in VERSIONS
            ],
        },
    }


class Stage:
    """The cluster of a test, and its custom resource."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.servers: list[ServerProcess] = []
        """In the order in which requests try them."""
        self.place: Place
        """Of the kind of this test."""
        self._directory = directory
        self._controllers: list[ControllersProcess] = []

    # Begin and end.

    def verify_all_kinds(self) -> None:
        """Marks all existing kinds as verified. Controllers take longer for that than most
        tests."""
        verify_states(self.ask)

    def begin(self, group: str, *, conversion: Object | None = None) -> None:
        """Creates the CRD of this test, stored in v1."""
        for server in self.servers:
            if server.process is None:  # a failed test may leave it stopped
                server.start()
        self.place = Place(group)
        self.define(definition(self.place, conversion))

    def define(self, wanted: Object) -> None:
        """Creates a CRD, and waits until all servers serve it."""
        name = wanted["metadata"]["name"]
        self.ask("POST", DEFINITIONS, wanted)
        self.wait(
            lambda: (
                ("Established", "True") in _conditions(self.ask("GET", f"{DEFINITIONS}/{name}"))
            ),
            "it is established",
        )

    def end(self) -> None:
        """Ends all controllers, and deletes what they would still process in the next test."""
        for each in self._controllers:
            each.kill()
        for migration in self.migrations():
            self.ask("DELETE", f"{MIGRATIONS}/{migration['metadata']['name']}")
        # It is deleted when all servers agree, which takes a while after one was killed.
        self.answer("DELETE", f"{DEFINITIONS}/{self.place.name}")

    def undefine(self) -> None:
        """Deletes the CRD, and waits until it is removed."""
        path = f"{DEFINITIONS}/{self.place.name}"
        self.ask("DELETE", path)
        self.wait(lambda: self.answer("GET", path)[0] == 404, "the definition goes")

    def controllers(self, *arguments: str, server: int = 0) -> ControllersProcess:
        """Returns a process of controllers, not started."""
        made = ControllersProcess(
            self._directory / f"controllers-{len(self._controllers) + 1}",
            kubeconfig=self.servers[server].kubeconfig,
            arguments=("-v", "2", "--no-leader-elect", *arguments),
        )
        self._controllers.append(made)
        return made

    def restow(self, *arguments: str) -> Answer:
        """Runs a restow command; returns its exit code and its JSON."""
        ran = subprocess.run(
            [sys.executable, "-m", "restow", *arguments, "-o", "json"],
            capture_output=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        assert ran.stdout, ran.stderr.decode()
        return ran.returncode, json.loads(ran.stdout)

    # Requests.

    def answer(self, method: str, path: str, body: object = None) -> Answer:
        """Returns the response of the first server that can be reached."""
        headers = MERGE if method == "PATCH" else None
        for server in self.servers:
            if server.process is None:
                continue
            try:
                code, text = server.request(method, path, body, headers=headers)
            except (OSError, HTTPException):
                continue  # it is just starting or ending
            if code != 503:
                return code, json.loads(text)
        return 503, {}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Returns the body of a response, which must be a success."""
        found: list[Answer] = []

        def is_answered() -> bool:
            found.append(self.answer(method, path, body))
            return found[-1][0] != 503

        self.wait(is_answered, "somebody answers")
        code, answer = found[-1]
        assert code in (200, 201), f"{method} {path}: {code} {answer}"
        return answer

    # Objects.

    def fill(self, count: int) -> None:
        """Creates objects in both versions through all servers."""

        async def make(server: ServerProcess, numbers: range) -> None:
            client, writer = client_of(server), writers[server.port]
            try:
                for number in numbers:
                    version = VERSIONS[number % 2]
                    body = gadget(self.place, object_name(number), version=version, writer=writer)
                    reply = await client.post(self.place.path(version), body)
                    assert reply.status == 201, reply.body
            finally:
                await client.close()

        async def make_all() -> None:
            makers = [server for server in self.servers for _ in range(CLIENTS_PER_SERVER)]
            async with asyncio.TaskGroup() as group:
                for index, server in enumerate(makers):
                    group.create_task(make(server, range(index, count, len(makers))))

        writers = self.ids()
        asyncio.run(make_all())

    def ids(self) -> dict[int, str]:
        """Returns the identity of each server, by its port."""
        return {server.port: self.cluster.id_of(server) for server in self.servers}

    # The CRD.

    def found(self) -> Object:
        found: Object = self.ask("GET", f"{DEFINITIONS}/{self.place.name}")
        return found

    def listed(self) -> list[str]:
        """Returns `status.storedVersions`."""
        found: list[str] = self.found()["status"]["storedVersions"]
        return found

    def flip(self, storage: str, *, server: int = 0) -> None:
        """Changes the storage version."""
        path, asked = f"{DEFINITIONS}/{self.place.name}", self.servers[server]

        def is_done() -> bool:
            found = json.loads(asked.get(path)[1])
            for version in found["spec"]["versions"]:
                version["storage"] = version["name"] == storage
            code, answer = asked.request("PUT", path, found)
            assert code in (200, 409), answer  # another writer may have been faster
            return code == 200

        self.wait(is_done, f"{storage} is stored")

    def wait_agreed(self, version: str) -> None:
        """Waits until all servers write a version."""
        wanted = f"{self.place.group}/{version}"
        self.wait(lambda: self.common() == wanted, f"all write {version}")

    def common(self) -> str:
        report = self.ask("GET", f"{REPORTS}/{self.place.report_name}")
        return str(report["status"].get("commonEncodingVersion", ""))

    def drop(self, version: str) -> Answer:
        """Tries to remove a version from the CRD."""
        found = self.found()
        versions = found["spec"]["versions"]
        found["spec"]["versions"] = [each for each in versions if each["name"] != version]
        return self.answer("PUT", f"{DEFINITIONS}/{self.place.name}", found)

    # The migration.

    def migrations(self) -> list[Object]:
        """Returns all migrations of the kind, the newest last."""
        found: list[Object] = [
            each
            for each in self.ask("GET", MIGRATIONS)["items"]
            if each["spec"]["resource"]["group"] == self.place.group
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def migration(self) -> Object:
        """Returns the newest migration; empty if there is none."""
        return (self.migrations() or [{}])[-1]

    def create_migration(self, name: str) -> None:
        """Creates a migration as a user does."""
        resource = {"group": self.place.group, "version": "v2", "resource": PLURAL}
        self.ask("POST", MIGRATIONS, {"metadata": {"name": name}, "spec": {"resource": resource}})

    def conditions(self) -> set[tuple[str, str]]:
        """Returns the conditions of the newest migration."""
        return _conditions(self.migration())

    def scanned(self) -> tuple[int, int]:
        """Returns the pass of the newest migration, and the number of objects scanned in it."""
        marks = self.migration().get("metadata", {}).get("annotations", {})
        found = json.loads(marks.get(POSITION_ANNOTATION, "{}"))
        return found.get("pass", 0), found.get("scanned", 0)

    def persisted(self) -> list[str]:
        code, state = self.answer("GET", f"{STATES}/{self.place.name}")
        found: list[str] = state["status"]["persistedStorageVersionHashes"] if code == 200 else []
        return found

    def reasons(self, name: str) -> set[str]:
        """Returns the reasons of Events about objects with this in their name."""
        items = self.ask("GET", EVENTS)["items"]
        return {each["reason"] for each in items if name in each["involvedObject"]["name"]}

    def is_verified(self, version: str) -> bool:
        return self.listed() == [version] and self.persisted() == [self.place.hash(version)]

    def wait_verified(self, version: str) -> None:
        self.wait(lambda: self.is_verified(version), f"{version} is all that is stored")

    # Waits and checks.

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Waits until a condition holds; after a time limit it fails with all logs."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not come that {what}\n{self.logs()}")
            time.sleep(POLL_SECONDS)

    def logs(self) -> str:
        told: Sequence[ServerProcess | ControllersProcess] = [*self.servers, *self._controllers]
        return "\n".join(f"--- {each.log_file}\n{each.log_tail()}" for each in told)

    def trace(self, *, by_writer: bool = False) -> Trace:
        """Returns the replayed log of the kind, which must have no violations."""
        trace = Trace(self.place, by_writer=by_writer)
        self.cluster.look(lambda storage: traced(storage, trace))
        assert not trace.broken, f"{trace.broken[:5]}\n{self.logs()}"
        for each in (*self._controllers, *self.servers):
            assert "Traceback" not in each.log(), each.log_tail()
        return trace


def object_name(number: int) -> str:
    return f"o-{number:05d}"


def gadget(place: Place, name: str, *, version: str = "v1", **spec: Any) -> Object:
    return {
        "apiVersion": f"{place.group}/{version}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"paint": {"color": "red"}} | spec if version == "v2" else {"color": "red"} | spec,
    }


def is_retryable(reply: Reply) -> bool:
    """Returns whether a response says that nothing was done and a retry may help: by its
    message, or by Retry-After."""
    if reply.status in (429, 503) and reply.header("retry-after"):
        return True
    return reply.status in (409, 429, 503, 504) and "again" in reply.message


def _conditions(found: Object) -> set[tuple[str, str]]:
    conditions = found.get("status", {}).get("conditions") or []
    return {(each["type"], each["status"]) for each in conditions}
