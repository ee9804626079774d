"""The subresource `report` of StorageVersions: what servers with a store of their own may say."""

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
class Main:
    """A main server that takes reports."""

    server: RunningServer
    coordinator: Coordinator
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A client has one connection."""

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
async def main_server() -> AsyncIterator[Main]:
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
        yield Main(server, coordinator)
    finally:
        await coordinator.close()
        await server.stop()
        await storage.close()


@pytest_asyncio.fixture
async def main() -> AsyncIterator[Main]:
    async with main_server() as made:
        yield made


def said(**fields: Any) -> dict[str, Any]:
    """A report that is right, but for what is given."""
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
    """What is said, by server."""
    reply = await api.get(f"{ROOT}/{NAME}")
    if reply.status == 404:
        return {}
    found = reply.json["status"]["storageVersions"]
    return {each["apiServerID"]: each["encodingVersion"] for each in found}


async def test_a_report_comes_changes_and_goes(main: Main) -> None:
    """It is an entry like all others: conditions, epoch and state follow; it can be repeated."""
    api = main.api
    for _ in range(2):
        reply = await api.post(REPORT, said())
        assert reply.status == 201, reply.json
    found = (await api.get(f"{ROOT}/{NAME}")).json
    assert found["status"]["commonEncodingVersion"] == f"{GROUP}/v1"
    assert found["status"]["conditions"][0]["status"] == "True"
    epoch = found["metadata"]["annotations"]["coordination.restow.dev/epoch"]
    other = said(serverID=OTHER, encodingVersion=f"{GROUP}/v2")
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


async def test_older_words_are_refused_and_not_taken_back(main: Main) -> None:
    """What is late must not undo what was said since."""
    api = main.api
    assert (await api.post(REPORT, said(sequence=7))).status == 201
    older = said(encodingVersion=f"{GROUP}/v2", sequence=6)
    same = said(encodingVersion=f"{GROUP}/v2", sequence=7)
    for body in (older, same):
        reply = await api.post(REPORT, body)
        assert (reply.status, reply.json["reason"]) == (409, "Conflict")
    assert (await api.delete(withdrawal(sequence=6))).status == 200
    assert (await api.delete(withdrawal(store=OTHER_STORE, sequence=9))).status == 200
    assert await versions(api) == {SERVER: f"{GROUP}/v1"}
    assert (await api.post(REPORT, {**older, "sequence": 8})).status == 201
    assert await versions(api) == {SERVER: f"{GROUP}/v2"}
    assert (await api.delete(withdrawal(sequence=8))).status == 200


async def test_stores_are_not_mixed(main: Main) -> None:
    """What is kept in two stores, or in the cluster's, cannot be agreed on; ids belong to one."""
    api = main.api
    assert (await api.post(REPORT, said())).status == 201
    bad = said(serverID=OTHER, store=OTHER_STORE)
    assert (await api.post(REPORT, bad)).status == 409
    assert (await api.post(REPORT, said(serverID=OTHER, objectKind="Box"))).status == 409
    leases = {
        "encodingVersion": "coordination.k8s.io/v1",
        "decodableVersions": ["coordination.k8s.io/v1"],
        "servedVersions": [],
    }
    reply = await api.post(f"{ROOT}/coordination.k8s.io.leases/report", said(**leases))
    assert (reply.status, reply.json["reason"]) == (409, "Conflict")
    assert "store of this cluster" in reply.json["message"]
    own = said(serverID=main.coordinator.membership.id)
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


async def test_what_makes_no_sense_is_a_422(main: Main) -> None:
    """Whoever may report may still not put anything into the store that is no report."""
    for fields in SENSELESS:
        reply = await main.api.post(REPORT, said(**fields))
        assert (reply.status, reply.json["reason"]) == (422, "Invalid"), (fields, reply.json)
    assert (await main.api.post(REPORT, said(sequence=2**63))).status == 400
    assert await versions(main.api) == {}


async def test_keys_may_have_any_name_that_a_file_may_give_them(main: Main) -> None:
    """What names a key in a file, or a plug-in its own, can be reported too."""
    for key in ('aesgcm:k\u00e4y "1", #2:6f1d0c3b9a52', f"kms:{'n' * 253}:{'i' * 1024}"):
        fields = {"encryptionKey": key, "readableEncryptionKeys": [key]}
        reply = await main.api.post(REPORT, said(**fields))
        assert reply.status == 201, reply.json
        annotations = (await main.api.get(f"{ROOT}/{NAME}")).json["metadata"]["annotations"]
        assert orjson.loads(annotations[KEYS_ANNOTATION]) == {SERVER: key}
        assert (await main.api.delete(withdrawal())).status == 200


async def test_only_resources_of_a_domain_are_reported(main: Main) -> None:
    """The name of the path is judged as the rest is, also when something is taken back."""
    query = f"serverID={SERVER}&store={STORE}&sequence=1"
    for name in NAMES:
        assert (await main.api.post(f"{ROOT}/{name}/report", said())).status == 422, name
        assert (await main.api.delete(f"{ROOT}/{name}/report?{query}")).status == 422, name


async def test_other_bad_requests(main: Main) -> None:
    """Bodies that are none, parameters that are missing, and people who may not."""
    api = main.api
    for body, code in ((b"{", 400), (b"[]", 400), (b"x" * BODY_BYTES, 413), (b"", 400)):
        assert (await api.request("POST", REPORT, body)).status == code, body[:9]
    assert (await api.post(f"{REPORT}?dryRun=All", said())).status == 400
    for target in (REPORT, withdrawal(sequence=0), withdrawal(server="x"), withdrawal(store="")):
        assert (await api.delete(target)).status == 422
    assert (await api.delete(withdrawal(sequence="many"))).status == 400
    assert (await api.get(REPORT)).status == 405
    jane = ApiClient(main.server.port, token=OTHER_TOKEN)
    assert (await jane.post(REPORT, said())).status == 403
    assert (await jane.delete(withdrawal())).status == 403
    await jane.close()


async def test_a_server_with_its_own_store_reports_through_the_api(main: Main) -> None:
    """The whole way, with the real client and the real handlers: start, write, stop."""
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
