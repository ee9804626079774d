"""Documents of remote APIs without a network: backends with responses defined by the test.

A backend serves the real documents of its own catalog, unless a test replaces some paths. Time is
simulated; threads are not, so tests wait for conditions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from restow import httpserver as listener
from restow.aggregator.documents import RemoteDocuments
from restow.aggregator.interface import RemoteApi, ServiceRef
from restow.aio import Runtime, SimulatedClock, SystemClock
from restow.aio.events import EventChannel
from restow.client.transport import (
    ClientRequest,
    ClientResponse,
    InProcessResponse,
    InProcessTransport,
)
from restow.endpoints.discovery import Discovery
from restow.endpoints.health import HealthChecks
from restow.endpoints.nonresource import NonResources
from restow.endpoints.openapi_paths import OpenApi
from restow.httpserver.request import Headers, Peer
from restow.httpserver.request import HttpRequest as Received
from restow.openapi import ApiInfo
from restow.registry.catalog import Catalog, builtin_catalog, version_hash_of
from restow.registry.resource import Resource
from restow.request.context import Context
from restow.request.metrics import Metrics
from restow.request.request_info import parse_request
from tests.unit.endpoints.custom_kinds import gadgets

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GROUP = "remote.example.com"
SETTLE_ROUNDS_MAX = 10_000
BUILTIN = builtin_catalog()

Script = Callable[[Mapping[str, str]], Awaitable[InProcessResponse]]
"""Called with the headers of the request."""


def small_catalog() -> Catalog:
    """A few of the built-in kinds: enough to overlap with others, and fast to describe."""
    named = [("", "configmaps"), ("apps", "deployments"), ("batch", "jobs")]
    found = [BUILTIN.named(*each) for each in named]
    return Catalog([each for each in found if each is not None])


def api(group: str = GROUP, version: str = "v1", **values: Any) -> RemoteApi:
    """A remote API of the backend `gadgets`, unless a service is given."""
    service = ServiceRef(namespace="default", name=values.pop("service", "gadgets"))
    defaults = {"group_priority": 2000, "version_priority": 10, "uid": f"uid-{group}-{version}"}
    return RemoteApi(
        name=f"{version}.{group}",
        group=group,
        version=version,
        service=service,
        **{**defaults, **values},
    )


def _hash(resource: Resource) -> str:
    return version_hash_of(resource, resource.storage_api_version)


class Site:
    """All documents of one server, without a network."""

    def __init__(self, catalog: Catalog, **more: Any) -> None:
        remotes = more.pop("remotes", None)
        self.discovery = Discovery(catalog, _hash, address="", remotes=remotes)
        self.openapi = OpenApi(catalog, ApiInfo(version="v1.36.0"), remotes)
        self.catalog = catalog
        self.parts = NonResources(
            discovery=self.discovery,
            openapi=self.openapi,
            health=HealthChecks(),
            metrics=Metrics(),
            version={"gitVersion": "v1.36.0", "major": "1", "minor": "36"},
            **more,
        )

    async def ask(self, target: str, headers: Mapping[str, str] | None = None) -> InProcessResponse:
        lines = [(name.lower(), value) for name, value in (headers or {}).items()]
        path, _, query = target.partition("?")
        request = Received("GET", path, query, Headers(lines), b"", Peer(1), 0.0)
        answer = await _kept(self.parts.answer(Context(request, parse_request("GET", target))))
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        named = [line.split(": ", 1) for line in answer.headers.decode().split("\r\n") if line]
        return InProcessResponse(answer.status, body, dict(named))

    async def document(self, target: str, **headers: str) -> Any:
        answer = await self.ask(target, headers)
        assert answer.status == 200, answer
        assert isinstance(answer.body, bytes)
        return orjson.loads(answer.body)


async def _kept(promise: Any) -> listener.HttpResponse:
    answer = await promise if isinstance(promise, Awaitable) else promise
    assert isinstance(answer, listener.HttpResponse)
    return answer


@dataclass(slots=True)
class Directory:
    """The list of APIs, defined by the test."""

    apis: dict[str, RemoteApi] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    changed: EventChannel[[]] = field(default_factory=EventChannel)

    def find(self, group: str, version: str) -> RemoteApi | None:
        return self.apis.get(f"{version}.{group}")

    def all(self) -> Sequence[RemoteApi]:
        return list(self.apis.values())

    def unavailable(self, api: RemoteApi) -> str | None:
        return self.reasons.get(api.name)

    def put(self, *apis: RemoteApi) -> None:
        self.apis |= {each.name: each for each in apis}
        self.tell()

    def drop(self, *names: str) -> None:
        for name in names:
            del self.apis[name]
        self.tell()

    def say(self, name: str, reason: str | None) -> None:
        """Make an API unavailable, or available again."""
        if reason is None:
            self.reasons.pop(name, None)
        else:
            self.reasons[name] = reason
        self.tell()

    def tell(self) -> None:
        self.changed.emit()


class ScriptedBackends:
    """Responds for services by name."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.scripts: dict[tuple[str, str], Script | InProcessResponse] = {}
        """By service and path: responses that replace the real ones."""
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []

    def send(
        self, api: RemoteApi, request: ClientRequest
    ) -> AbstractAsyncContextManager[ClientResponse]:
        service = api.service.name

        async def handle(
            method: str, target: str, headers: Mapping[str, str], _: bytes
        ) -> InProcessResponse:
            assert method == "GET"
            self.asked.append((service, target, headers))
            script = self.scripts.get((service, target))
            if isinstance(script, InProcessResponse):
                return script
            if script is not None:
                return await script(headers)
            if service not in self.sites:
                raise ConnectionRefusedError
            return await self.sites[service].ask(target, headers)

        return InProcessTransport(handle, server=service).send(request)

    def count(self, target: str, service: str = "gadgets") -> int:
        return sum(each[:2] == (service, target) for each in self.asked)

    async def close(self) -> None:
        """Nothing to close."""


class World:
    """A server, its directory, its backends, and the clock."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.directory = Directory()
        self.backends = ScriptedBackends()
        self.backends.sites["gadgets"] = Site(Catalog([gadgets(GROUP)]))
        runtime = Runtime.simulated(1, clock=self.clock)
        self.documents = RemoteDocuments(self.directory, self.backends, runtime)
        self.forwarded: list[tuple[str, str]] = []
        self.site = Site(
            small_catalog(),
            remotes=self.documents,
            directory=self.directory,
            forward=self._forward,
        )

    def _forward(self, context: Context, api: RemoteApi) -> Any:
        self.forwarded.append((context.info.path, api.name))
        return self._passed(context, api)

    async def _passed(self, context: Context, api: RemoteApi) -> listener.HttpResponse:
        request = ClientRequest(method="GET", target=context.info.path)
        async with self.backends.send(api, request) as response:
            return listener.HttpResponse(response.status, await response.read(bytes_max=1_000_000))

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let tasks and threads run until a condition holds; no simulated time passes."""
        for _ in range(SETTLE_ROUNDS_MAX):
            await self.clock.settle()
            if is_so():
                return
            await SystemClock().sleep(0.002)
        raise AssertionError("it did not become so")

    def is_current(self, name: str) -> bool:
        return any(
            each.api.name == name and each.is_fresh and each.v2 is not None and each.v3 is not None
            for each in self.documents.versions()
        )

    def state(self, group: str = GROUP) -> dict[str, tuple[str, list[str]]]:
        """For each group version its freshness and resources, as clients see them."""
        items = orjson.loads(self.site.discovery.aggregated("/apis"))["items"]
        (found,) = [item for item in items if item["metadata"]["name"] == group]
        return {
            each["version"]: (each["freshness"], [one["resource"] for one in each["resources"]])
            for each in found["versions"]
        }


@asynccontextmanager
async def running_world() -> AsyncIterator[World]:
    world = World()
    async with Runtime.simulated(2, clock=world.clock).tasks("documents") as tasks:
        tasks.spawn("run", world.documents.run())
        yield world
