"""A whole main server in this process, and a small aggregated API written for the tests."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersionResource
from restow.apiserver.options import ServeOptions
from restow.apiserver.server import ApiServer
from restow.client import ApiClient, ClientConfig, HttpTransport, read_kubeconfig
from restow.client.transport import ClientRequest
from tests.support.aggregated_backend import JSON, AggregatedBackend, Asked, BackendConnection

GROUP = "samples.example.com"
API_NAME = f"v1.{GROUP}"
NOTES = GroupVersionResource(GROUP, "v1", "notes")
API_SERVICES = GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SERVICES = GroupVersionResource("", "v1", "services")
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
SERVICE = "samples"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list")


@dataclass
class Notes:
    """The aggregated API: notes in namespaces, with the minimum that a correct server needs."""

    verbs: tuple[str, ...] = ALL_VERBS
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By namespace and name."""
    refuses: bool = False

    def add(self, namespace: str, name: str, *finalizers: str) -> None:
        metadata = {"namespace": namespace, "name": name, "finalizers": list(finalizers)}
        self.objects[namespace, name] = {"metadata": metadata}

    async def answer(self, asked: Asked, line: BackendConnection) -> None:
        """Answer one request of the main server."""
        path = urlsplit(asked.target).path
        root = f"/apis/{GROUP}/v1"
        if path == root:
            await _say(line, 200, self._resources())
        elif not path.startswith(f"{root}/namespaces/"):
            await _say(line, 404, {"kind": "Status"})
        elif self.refuses:
            await _say(line, 403, {"kind": "Status", "message": "not for you"})
        else:
            _, namespace, _, *name = path[len(root) + 1 :].split("/")
            await _say(line, *self._objects(asked.method, namespace, *name))

    def _resources(self) -> dict[str, Any]:
        note = {"name": "notes", "singularName": "note", "namespaced": True, "kind": "Note"}
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/v1",
            "resources": [{**note, "verbs": list(self.verbs)}],
        }

    def _objects(self, method: str, namespace: str, name: str = "") -> tuple[int, Any]:
        found = {key: each for key, each in self.objects.items() if key[0] == namespace}
        if method == "GET":
            return 200, {"kind": "NoteList", "metadata": {}, "items": list(found.values())}
        if not name and "deletecollection" not in self.verbs:
            return 405, {"kind": "Status"}
        for key, each in found.items():
            if key[1] == (name or key[1]) and not each["metadata"]["finalizers"]:
                del self.objects[key]
        return 200, {"kind": "Status", "status": "Success"}


async def _say(line: BackendConnection, code: int, body: Any) -> None:
    await line.answer(orjson.dumps(body), status=f"{code} X", headers=[JSON])


@dataclass
class Joined:
    """A main server and the aggregated server behind it."""

    kubeconfig: Path
    api: ApiClient
    backend: AggregatedBackend
    notes: Notes

    async def until(self, is_so: Callable[[Any], bool], read: Callable[[], Any]) -> Any:
        """Read repeatedly until the result is as expected, and return it."""
        async with self.api.runtime.clock.timeout(30):
            while True:
                found = await read()
                if is_so(found):
                    return found
                await self.api.runtime.clock.sleep(0.02)

    async def available(self, status: str) -> dict[str, Any]:
        """Return the condition of the APIService, once it has this status."""

        async def read() -> dict[str, Any]:
            found: Any = await self.api.get(API_SERVICES, API_NAME)
            return {**([{}] + ((found.get("status") or {}).get("conditions") or []))[-1]}

        return dict(await self.until(lambda each: each.get("status") == status, read))


@asynccontextmanager
async def joined(directory: Path) -> AsyncIterator[Joined]:
    """Start all of it; returns when requests for notes are forwarded."""
    runtime, data = Runtime.system(), directory / "main"
    options = ServeOptions(data_dir=data, store="memory:", port=0, grace_seconds=0.1)
    server = await ApiServer.start(options, runtime)
    [proxy_ca] = (data / "pki").glob("front-proxy-ca.crt")
    backend = await AggregatedBackend.start(
        directory / "backend",
        host_names=[f"{SERVICE}.default.svc"],
        client_ca_file=proxy_ca,
    )
    notes = Notes()
    backend.script = notes.answer
    config = read_kubeconfig([server.kubeconfig])
    try:
        async with ApiClient.connect(config, runtime=runtime) as api:
            made = Joined(server.kubeconfig, api, backend, notes)
            await _register(made)
            await made.available("True")
            await _discovered(config, made)
            yield made
    finally:
        await server.stop()
        await backend.stop()


async def _discovered(config: ClientConfig, made: Joined) -> None:
    """Wait until the main server has read the backend's discovery document."""
    transport = HttpTransport(config, clock=made.api.runtime.clock)
    request = ClientRequest(method="GET", target="/apis", headers=(("Accept", AGGREGATED),))

    async def read() -> list[str]:
        async with transport.send(request) as response:
            found = orjson.loads(await response.read(bytes_max=10_000_000))
        [group] = [each for each in found["items"] if each["metadata"]["name"] == GROUP]
        return [each["freshness"] for each in group["versions"]]

    try:
        await made.until(lambda each: each == ["Current"], read)
    finally:
        await transport.close()


async def _register(made: Joined) -> None:
    ports = [{"port": 443}]
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": ports}}
    addresses = [{"ip": "127.0.0.1"}]
    subset = {"addresses": addresses, "ports": [{"port": made.backend.port}]}
    endpoints = {"metadata": {"name": SERVICE}, "subsets": [subset]}
    await made.api.create(SERVICES, service, namespace="default")
    await made.api.create(ENDPOINTS, endpoints, namespace="default")
    spec = {
        "group": GROUP,
        "version": "v1",
        "service": {"namespace": "default", "name": SERVICE},
        "caBundle": base64.b64encode(made.backend.ca_pem.encode()).decode(),
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
    }
    await made.api.create(API_SERVICES, {"metadata": {"name": API_NAME}, "spec": spec})
