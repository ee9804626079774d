"""Self-registration of an aggregated server: the addresses in its Endpoints over time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apimachinery.names import GroupVersion
from restow.apiserver.aggregated_registration import (
    ATTEMPTS_MAX,
    Identity,
    SelfRegistration,
)
from restow.client import NO_RETRY, ApiClient, InProcessResponse, InProcessTransport
from restow.controllers import EndpointAddress
from restow.storage.interface import Item, Revision
from restow.storageversion.identity import ServerId, server_key

OWN, PEER, CRASHED = (
    EndpointAddress("10.0.0.1", 443),
    EndpointAddress("10.0.0.2", 443),
    EndpointAddress("10.0.0.3", 443),
)
CONFLICT = {"kind": "Status", "code": 409, "reason": "Conflict"}
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
ENDPOINTS = "/api/v1/namespaces/kube-system/endpoints/parts"
METADATA = {"name": "parts", "namespace": "kube-system"}
IDENTITY = Identity(
    component="parts",
    namespace="kube-system",
    service="parts",
    ca_pem=b"pem",
    group_versions=(GroupVersion("parts.example.com", "v1"),),
)


class Main:
    """A main server that stores objects by path, and rejects updates if requested."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.conflicts = 0
        self._touched = asyncio.Event()

    async def __call__(
        self, method: str, path: str, _headers: Mapping[str, str], sent: bytes
    ) -> InProcessResponse:
        self._touched.set()
        match method:
            case "POST":
                made = orjson.loads(sent)
                self.objects[f"{path}/{made['metadata']['name']}"] = made
                return InProcessResponse(201, sent)
            case "PUT":
                if self.conflicts:
                    self.conflicts -= 1
                    return InProcessResponse(409, orjson.dumps(CONFLICT))
                self.objects[path] = orjson.loads(sent)
                return InProcessResponse(200, sent)
        found = self.objects.get(path)
        return (
            InProcessResponse(404, b"{}")
            if found is None
            else InProcessResponse(200, orjson.dumps(found))
        )

    @property
    def ips(self) -> list[str]:
        """All addresses in the Endpoints."""
        subsets = self.objects[ENDPOINTS]["subsets"]
        return [each["ip"] for subset in subsets for each in subset["addresses"]]

    def add(self, address: EndpointAddress) -> None:
        """Add an address, as a peer does."""
        subset = {
            "addresses": [{"ip": address.ip}],
            "ports": [{"name": "https", "port": address.port}],
        }
        found = self.objects.setdefault(ENDPOINTS, {"metadata": METADATA, "subsets": []})
        found["subsets"].append(subset)

    async def touched(self) -> None:
        """Wait for the next request."""
        self._touched.clear()
        await self._touched.wait()


class Server:
    """One server of the component, and the members that it knows."""

    def __init__(self, main: Main) -> None:
        runtime = Runtime.system()
        self.client = ApiClient(InProcessTransport(main), runtime=runtime, retry=NO_RETRY)
        self.members = {OWN}
        self.registration = SelfRegistration(
            self.client, runtime, IDENTITY, own=OWN, member_addresses=lambda: self.members
        )

    def write_server_key(self, *members: EndpointAddress) -> None:
        """Simulate a write of a server's key in the store."""
        self.members = set(members)
        key = server_key(ServerId("apiserver-x"))
        item = Item(key, b"{}", Revision(1), Revision(1))
        self.registration.server_changed(key, item)


@pytest.fixture
def main() -> Main:
    return Main()


@pytest.fixture
async def server(main: Main) -> AsyncIterator[Server]:
    made = Server(main)
    yield made
    await made.client.close()


async def test_it_comes_and_goes(main: Main, server: Server) -> None:
    """It adds its address, removes those of crashed servers, and its own when it stops."""
    server.members = {OWN, PEER, CRASHED}
    for address in (PEER, CRASHED):
        main.add(address)
    await server.registration.enter()
    assert main.ips == [OWN.ip, PEER.ip, CRASHED.ip]
    assert main.objects[f"{API_SERVICES}/v1.parts.example.com"]["spec"]["service"] == {
        "namespace": "kube-system",
        "name": "parts",
        "port": 443,
    }
    server.members = {OWN, PEER}
    await server.registration.leave()
    assert main.ips == [PEER.ip]


async def test_one_that_comes_back_is_known_again(main: Main, server: Server) -> None:
    """Its peers have removed its address after its lease expired; it adds it again without waiting
    for the next check."""
    await server.registration.enter()
    work = asyncio.ensure_future(server.registration.run())
    main.objects[ENDPOINTS]["subsets"] = []
    main.add(PEER)
    server.write_server_key(OWN, PEER)
    async with asyncio.timeout(10):
        while main.ips != [OWN.ip, PEER.ip]:
            await main.touched()
    work.cancel()


async def test_the_end_is_no_error(main: Main, server: Server) -> None:
    """Permanent conflicts on the Endpoints do not prevent a server from stopping."""
    await server.registration.enter()
    main.conflicts = ATTEMPTS_MAX
    await server.registration.leave()
    assert main.conflicts == 0
    assert main.ips == [OWN.ip]


async def test_api_services_of_other_services_are_not_changed(main: Main, server: Server) -> None:
    """An APIService that names another Service is not changed, and the reason is reported."""
    theirs = {"service": {"namespace": "kube-system", "name": "other"}}
    path = f"{API_SERVICES}/v1.parts.example.com"
    main.objects[path] = {"metadata": {"name": "v1.parts.example.com"}, "spec": theirs}
    entering = asyncio.ensure_future(server.registration.enter())
    async with asyncio.timeout(10):
        while server.registration.trouble is None:
            await main.touched()
    entering.cancel()
    assert "is served by kube-system/other" in server.registration.trouble
    assert main.objects[path]["spec"] == theirs
