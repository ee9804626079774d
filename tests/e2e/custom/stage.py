"""Two servers, controllers beside them, and a custom resource whose storage version is to change.

Each test has an API group of its own on servers that go on. Its objects are made through the API of
both servers; at the end the whole log of the store is looked at.
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
"""For whatever must happen sooner or later: a busy machine is no failure."""
POLL_SECONDS: Final = 0.02
COMMAND_SECONDS_MAX: Final = 60.0
CLIENTS_PER_SERVER: Final = 4
REQUESTS: Final = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
MERGE: Final = {"Content-Type": "application/merge-patch+json"}

PAGE_OBJECTS: Final = 50
SLOWLY: Final = ("--page-objects", str(PAGE_OBJECTS), "--rate", "200")
"""Pages that one can look at one by one."""

Object = dict[str, Any]
Answer = tuple[int, Any]


def definition(place: Place, conversion: Object | None = None, **fields: Object) -> Object:
    """Stored in v1. Each version knows the fields of both; `fields` overrules what they are."""
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
    """What a test plays on."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.servers: list[ServerProcess] = []
        """Those that are asked, in this order."""
        self.place: Place
        """Of the kind of this test."""
        self._directory = directory
        self._controllers: list[ControllersProcess] = []

    # Begin and end.

    def know_all(self) -> None:
        """Have all kinds that there are verified. Controllers take longer for that than most
        tests."""
        verify_states(self.ask)

    def begin(self, group: str, *, conversion: Object | None = None) -> None:
        """Define the kind of this test, stored in v1."""
        for server in self.servers:
            if server.process is None:  # a test that has failed may leave it so
                server.start()
        self.place = Place(group)
        self.define(definition(self.place, conversion))

    def define(self, wanted: Object) -> None:
        """Create a definition, and wait until all servers serve it."""
        name = wanted["metadata"]["name"]
        self.ask("POST", DEFINITIONS, wanted)
        self.wait(
            lambda: (
                ("Established", "True") in _conditions(self.ask("GET", f"{DEFINITIONS}/{name}"))
            ),
            "it is established",
        )

    def end(self) -> None:
        """End all controllers, and leave nothing to do to those who come next."""
        for each in self._controllers:
            each.kill()
        for request in self.requests():
            self.ask("DELETE", f"{REQUESTS}/{request['metadata']['name']}")
        # It goes when all servers have agreed, which for one that was killed takes its time.
        self.answer("DELETE", f"{DEFINITIONS}/{self.place.name}")

    def undefine(self) -> None:
        """Delete the definition, and wait until it is gone."""
        path = f"{DEFINITIONS}/{self.place.name}"
        self.ask("DELETE", path)
        self.wait(lambda: self.answer("GET", path)[0] == 404, "the definition goes")

    def controllers(self, *arguments: str, server: int = 0) -> ControllersProcess:
        """A process of controllers, not started."""
        made = ControllersProcess(
            self._directory / f"controllers-{len(self._controllers) + 1}",
            kubeconfig=self.servers[server].kubeconfig,
            arguments=("-v", "2", "--no-leader-elect", *arguments),
        )
        self._controllers.append(made)
        return made

    def restow(self, *arguments: str) -> Answer:
        """A command of ours: its exit code, and its JSON."""
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
        """What the first server says that can be asked."""
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
        """An answer that must be a success."""
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
        """Make objects in both versions through all servers."""

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
        """The identity of each server, by its port."""
        return {server.port: self.cluster.id_of(server) for server in self.servers}

    # The definition.

    def found(self) -> Object:
        found: Object = self.ask("GET", f"{DEFINITIONS}/{self.place.name}")
        return found

    def listed(self) -> list[str]:
        """`status.storedVersions`."""
        found: list[str] = self.found()["status"]["storedVersions"]
        return found

    def flip(self, storage: str, *, server: int = 0) -> None:
        """Let another version be the one that is stored."""
        path, asked = f"{DEFINITIONS}/{self.place.name}", self.servers[server]

        def is_done() -> bool:
            found = json.loads(asked.get(path)[1])
            for version in found["spec"]["versions"]:
                version["storage"] = version["name"] == storage
            code, answer = asked.request("PUT", path, found)
            assert code in (200, 409), answer  # somebody may have been faster
            return code == 200

        self.wait(is_done, f"{storage} is stored")

    def wait_agreed(self, version: str) -> None:
        """Wait until all servers write a version."""
        wanted = f"{self.place.group}/{version}"
        self.wait(lambda: self.common() == wanted, f"all write {version}")

    def common(self) -> str:
        report = self.ask("GET", f"{REPORTS}/{self.place.report_name}")
        return str(report["status"].get("commonEncodingVersion", ""))

    def drop(self, version: str) -> Answer:
        """Try to take a version out of the definition."""
        found = self.found()
        versions = found["spec"]["versions"]
        found["spec"]["versions"] = [each for each in versions if each["name"] != version]
        return self.answer("PUT", f"{DEFINITIONS}/{self.place.name}", found)

    # The migration.

    def requests(self) -> list[Object]:
        """All requests for the kind, the newest last."""
        found: list[Object] = [
            each
            for each in self.ask("GET", REQUESTS)["items"]
            if each["spec"]["resource"]["group"] == self.place.group
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    def request(self) -> Object:
        """The newest; nothing if there is none."""
        return (self.requests() or [{}])[-1]

    def ask_for_migration(self, name: str) -> None:
        """Make a request by hand."""
        resource = {"group": self.place.group, "version": "v2", "resource": PLURAL}
        self.ask("POST", REQUESTS, {"metadata": {"name": name}, "spec": {"resource": resource}})

    def conditions(self) -> set[tuple[str, str]]:
        """Of the newest request."""
        return _conditions(self.request())

    def scanned(self) -> tuple[int, int]:
        """In which pass the newest request is, and behind how many objects."""
        marks = self.request().get("metadata", {}).get("annotations", {})
        found = json.loads(marks.get(POSITION_ANNOTATION, "{}"))
        return found.get("pass", 0), found.get("scanned", 0)

    def persisted(self) -> list[str]:
        code, state = self.answer("GET", f"{STATES}/{self.place.name}")
        found: list[str] = state["status"]["persistedStorageVersionHashes"] if code == 200 else []
        return found

    def reasons(self, name: str) -> set[str]:
        """What Events tell about objects with this in their name."""
        items = self.ask("GET", EVENTS)["items"]
        return {each["reason"] for each in items if name in each["involvedObject"]["name"]}

    def is_proven(self, version: str) -> bool:
        return self.listed() == [version] and self.persisted() == [self.place.hash(version)]

    def wait_proven(self, version: str) -> None:
        self.wait(lambda: self.is_proven(version), f"{version} is all that is stored")

    # Waiting and judging.

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; if it never does, everybody tells what was logged."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"it does not come that {what}\n{self.logs()}")
            time.sleep(POLL_SECONDS)

    def logs(self) -> str:
        told: Sequence[ServerProcess | ControllersProcess] = [*self.servers, *self._controllers]
        return "\n".join(f"--- {each.log_file}\n{each.log_tail()}" for each in told)

    def trace(self, *, by_writer: bool = False) -> Trace:
        """What has happened to the kind; nothing that must not."""
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


def is_told_to_try_again(reply: Reply) -> bool:
    """Whether an answer says that nothing was done, and that it may help to ask once more: in
    words, or by a time to come again."""
    if reply.status in (429, 503) and reply.header("retry-after"):
        return True
    return reply.status in (409, 429, 503, 504) and "again" in reply.message


def _conditions(found: Object) -> set[tuple[str, str]]:
    conditions = found.get("status", {}).get("conditions") or []
    return {(each["type"], each["status"]) for each in conditions}
