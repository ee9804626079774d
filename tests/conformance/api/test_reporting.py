"""The `report` subresource of StorageVersions: reports of servers with a store of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.apis.names import KEYS_ANNOTATION
from restow.apiserver.main_api import ClientMainApi
from restow.client import NO_RETRY, InProcessResponse, InProcessTransport
from restow.client import ApiClient as ReportingClient
from restow.endpoints.barrier import WriteBarrier
from restow.registry.catalog import Catalog
from restow.storage.memory import MemoryStorage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.errors import NotReported
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.remote_registration import Remote, ensure_store_id
from restow.storageversion.remote_reports import RemoteReports
from tests.conformance.api.servers import (
    BUILTIN,
    OTHER_TOKEN,
    RunningServer,
    catalog_of,
    start_server,
)
from tests.support.api_client import ApiClient

GROUP = "wares.example.org"
NAME = f"{GROUP}.crates"
ROOT = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
REPORT = f"{ROOT}/{NAME}/report"
SERVER, OTHER = f"apiserver-{'a' * 26}", f"apiserver-{'b' * 26}"
STORE, OTHER_STORE = "1" * 32, "2" * 32
LIST_MAX = 65
BODY_BYTES = 20_000


@dataclass(slots=True)
class MainServer:
    """A main server that accepts reports."""

    server: RunningServer
    coordinator: Coordinator
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A client uses one connection."""

    @property
    def api(self) -> ApiClient:
        return self.server.client

    async def handle(
        self, method: str, target: str, _headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        async with self.turn:
            reply = await self.api.request(method, target, body or None)
        headers = {name: values[0] for name, values in reply.headers.items()}
        return InProcessResponse(reply.status, reply.body, headers)


@asynccontextmanager
async def main_server() -> AsyncIterator[MainServer]:
    storage, catalog, runtime = MemoryStorage(), BUILTIN, Runtime.system()
    options = CoordinatorOptions(membership=MembershipOptions(host="main"))
    coordinator = Coordinator(storage, catalog, runtime, options)
    server = await start_server(
        storage,
        catalog,
        policy=coordinator.policy,
        barrier=WriteBarrier(coordinator),
        reports=RemoteReports(storage, coordinator.mirror, runtime),
    )
    await coordinator.start()
    try:
        yield MainServer(server, coordinator)
    finally:
        await coordinator.close()
        await server.stop()
        await storage.close()


@pytest_asyncio.fixture
async def main() -> AsyncIterator[MainServer]:
    async with main_server() as made:
        yield made


def report_of(**fields: Any) -> dict[str, Any]:
    """A valid report, with some fields replaced."""
    return {
        "kind": "StorageVersionReport",
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
        "serverID": SERVER,
        "store": STORE,
        "sequence": 5,
        "objectKind": "Crate",
        "encodingVersion": f"{GROUP}/v1",
        "decodableVersions": [f"{GROUP}/v1", f"{GROUP}/v2"],
        "servedVersions": [f"{GROUP}/v1"],
        **fields,
    }


def withdrawal(server: str = SERVER, store: str = STORE, sequence: object = 5) -> str:
    return f"{REPORT}?serverID={server}&store={store}&sequence={sequence}"


async def versions(api: ApiClient) -> dict[str, str]:
    """Returns the reported versions, by server."""
    reply = await api.get(f"{ROOT}/{NAME}")
    if reply.status == 404:
        return {}
    found = reply.json["status"]["storageVersions"]
    return {each["apiServerID"]: each["encodingVersion"] for each in found}


async def test_a_report_is_added_changed_and_withdrawn(main: MainServer) -> None:
    """It is an ordinary server entry: conditions, epoch and state follow; it can be repeated."""
    api = main.api
    for _ in range(2):
        reply = await api.post(REPORT, report_of())
        assert reply.status == 201, reply.json
    found = (await api.get(f"{ROOT}/{NAME}")).json
    assert found["status"]["commonEncodingVersion"] == f"{GROUP}/v1"
    assert found["status"]["conditions"][0]["status"] == "True"
    epoch = found["metadata"]["annotations"]["coordination.restow.dev/epoch"]
    other = report_of(serverID=OTHER, encodingVersion=f"{GROUP}/v2")
    assert (await api.post(REPORT, other)).status == 201
    found = (await api.get(f"{ROOT}/{NAME}")).json
    assert "commonEncodingVersion" not in found["status"]
    assert found["metadata"]["annotations"]["coordination.restow.dev/epoch"] > epoch
    state = (await api.get("/apis/migration.k8s.io/v1alpha1/storagestates/crates." + GROUP)).json
    assert len(state["status"]["persistedStorageVersionHashes"]) == 3  # one of them is unknown
    for server in (SERVER, OTHER):
        reply = await api.delete(withdrawal(server))
        assert (reply.status, reply.json["status"]) == (200, "Success")
    assert await versions(api) == {}
    assert (await api.delete(withdrawal())).status == 200


async def test_outdated_reports_are_refused(main: MainServer) -> None:
    """A late report or withdrawal must not undo a later one."""
    api = main.api
    assert (await api.post(REPORT, report_of(sequence=7))).status == 201
    older = report_of(encodingVersion=f"{GROUP}/v2", sequence=6)
    same = report_of(encodingVersion=f"{GROUP}/v2", sequence=7)
    for body in (older, same):
        reply = await api.post(REPORT, body)
        assert (reply.status, reply.json["reason"]) == (409, "Conflict")
    assert (await api.delete(withdrawal(sequence=6))).status == 200
    assert (await api.delete(withdrawal(store=OTHER_STORE, sequence=9))).status == 200
    assert await versions(api) == {SERVER: f"{GROUP}/v1"}
    assert (await api.post(REPORT, {**older, "sequence": 8})).status == 201
    assert await versions(api) == {SERVER: f"{GROUP}/v2"}
    assert (await api.delete(withdrawal(sequence=8))).status == 200


async def test_one_resource_in_two_stores_is_refused(main: MainServer) -> None:
    """Servers of different stores cannot agree on one resource; an ID belongs to one store."""
    api = main.api
    assert (await api.post(REPORT, report_of())).status == 201
    bad = report_of(serverID=OTHER, store=OTHER_STORE)
    assert (await api.post(REPORT, bad)).status == 409
    assert (await api.post(REPORT, report_of(serverID=OTHER, objectKind="Box"))).status == 409
    leases = {
        "encodingVersion": "coordination.k8s.io/v1",
        "decodableVersions": ["coordination.k8s.io/v1"],
        "servedVersions": [],
    }
    reply = await api.post(f"{ROOT}/coordination.k8s.io.leases/report", report_of(**leases))
    assert (reply.status, reply.json["reason"]) == (409, "Conflict")
    assert "store of this cluster" in reply.json["message"]
    own = report_of(serverID=main.coordinator.membership.id)
    assert (await api.post(REPORT, own)).status == 409
    assert (await api.delete(withdrawal())).status == 200


SENSELESS: Final[list[dict[str, Any]]] = [
    {"serverID": "apiserver-../../x"},
    {"serverID": ""},
    {"store": "short"},
    {"sequence": 0},
    {"sequence": "5"},
    {"sequence": None},
    {"objectKind": "crate"},
    {"objectKind": "C" * 100},
    {"encodingVersion": "v1"},
    {"encodingVersion": "apps/v1"},
    {"encodingVersion": f"{GROUP}/v3"},
    {"decodableVersions": []},
    {"decodableVersions": [f"{GROUP}/v1"] * 2},
    {"decodableVersions": [f"{GROUP}/v{n}" for n in range(LIST_MAX)]},
    {"decodableVersions": {"a": 1}},
    {"servedVersions": ["../v1"]},
    {"readableEncryptionKeys": []},
    {"readableEncryptionKeys": [f"k{n}" for n in range(LIST_MAX)]},
    {"readableEncryptionKeys": [""]},
    {"readableEncryptionKeys": ["a\x00b"]},
    {"encryptionKey": "a" * 1301},
    {"preferredEncryptionKey": "\n"},
    {"kind": "StorageVersion"},
    {"apiVersion": "v1"},
    {"metadata": {"name": "core.pods"}},
    {"unheardOf": 1},
]
NAMES: Final = ["core.pods", "crates", "wares.example.org.", "a.b", "x.y.Z"]


async def test_invalid_reports(main: MainServer) -> None:
    """A server with permission to report still cannot store anything but a valid report."""
    for fields in SENSELESS:
        reply = await main.api.post(REPORT, report_of(**fields))
        assert (reply.status, reply.json["reason"]) == (422, "Invalid"), (fields, reply.json)
    assert (await main.api.post(REPORT, report_of(sequence=2**63))).status == 400
    assert await versions(main.api) == {}


async def test_any_configured_key_name_is_accepted(main: MainServer) -> None:
    """Every key name that a configuration file or a plug-in may use can be reported too."""
    for key in ('aesgcm:k\u00e4y "1", #2:6f1d0c3b9a52', f"kms:{'n' * 253}:{'i' * 1024}"):
        fields = {"encryptionKey": key, "readableEncryptionKeys": [key]}
        reply = await main.api.post(REPORT, report_of(**fields))
        assert reply.status == 201, reply.json
        annotations = (await main.api.get(f"{ROOT}/{NAME}")).json["metadata"]["annotations"]
        assert orjson.loads(annotations[KEYS_ANNOTATION]) == {SERVER: key}
        assert (await main.api.delete(withdrawal())).status == 200


async def test_resources_must_have_a_group_with_a_domain(main: MainServer) -> None:
    """The name in the path is validated like the rest, for a withdrawal too."""
    query = f"serverID={SERVER}&store={STORE}&sequence=1"
    for name in NAMES:
        assert (await main.api.post(f"{ROOT}/{name}/report", report_of())).status == 422, name
        assert (await main.api.delete(f"{ROOT}/{name}/report?{query}")).status == 422, name


async def test_other_bad_requests(main: MainServer) -> None:
    """Invalid bodies, missing parameters, and users without permission."""
    api = main.api
    for body, code in ((b"{", 400), (b"[]", 400), (b"x" * BODY_BYTES, 413), (b"", 400)):
        assert (await api.request("POST", REPORT, body)).status == code, body[:9]
    assert (await api.post(f"{REPORT}?dryRun=All", report_of())).status == 400
    for target in (REPORT, withdrawal(sequence=0), withdrawal(server="x"), withdrawal(store="")):
        assert (await api.delete(target)).status == 422
    assert (await api.delete(withdrawal(sequence="many"))).status == 400
    assert (await api.get(REPORT)).status == 405
    jane = ApiClient(main.server.port, token=OTHER_TOKEN)
    assert (await jane.post(REPORT, report_of())).status == 403
    assert (await jane.delete(withdrawal())).status == 403
    await jane.close()


async def test_a_server_with_its_own_store_reports_through_the_api(main: MainServer) -> None:
    """End to end, with the real client and the real handlers: start, write, stop."""
    runtime, storage = Runtime.system(), MemoryStorage()
    widgets = catalog_of("x+1").named("example.com", "widgets")
    assert widgets is not None
    catalog = Catalog([widgets], name="widgets")
    client = ReportingClient(InProcessTransport(main.handle), runtime=runtime, retry=NO_RETRY)
    api = ClientMainApi(client)
    remote = Remote(main=api, store=await ensure_store_id(storage, runtime))
    options = CoordinatorOptions(membership=MembershipOptions(host="own", component="widgets"))
    coordinator = Coordinator(storage, catalog, runtime, options, remote=remote)
    await asyncio.wait_for(coordinator.start(), 10)
    name = "example.com.widgets"
    (entry,) = await api.entries_of(name)
    assert (entry.server_id, entry.store) == (coordinator.membership.id, remote.store)
    assert entry.sequence > 0
    assert (await api.entries())[name] == (entry,)
    await coordinator.close()
    assert await api.entries_of(name) == ()
    await client.close()
    with pytest.raises(NotReported):
        await api.entries()
    await storage.close()
