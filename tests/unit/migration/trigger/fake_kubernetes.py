"""A cluster that is not restow, for the trigger's tests: several servers, CRDs, no epochs.

It extends the fake API server of the client's tests with discovery per server, status subresources
and conditional patches.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import orjson

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionKind, GroupVersionResource
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, InProcessResponse, InProcessTransport, Object
from restow.migration.records import record_of
from tests.unit.client.fake_api import FakeApi, Sent

WIDGETS = GroupVersionResource("example.org", "v1", "widgets")
STATE = "/apis/migration.k8s.io/v1alpha1/storagestates/widgets.example.org"
MIGRATIONS_PATH = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
STORAGE_VERSION = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.org.widgets"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_NAMES = GroupResource("", "objects")


def hash_of(version: str) -> str:
    """Returns the storage version hash of widgets stored in a version."""
    return storage_version_hash(GroupVersionKind("example.org", version, "Widget"))


def proof_for(request: Object) -> str:
    """Returns the verification that a migrator writes after a completed migration."""
    record = record_of(request["metadata"]["annotations"])
    assert record is not None
    return orjson.dumps({"target": record.target, "mark": record.storage_version}).decode()


class Kubernetes(FakeApi):
    """The state that all servers of the cluster share."""

    def __init__(self, *, storage_versions: bool = False) -> None:
        super().__init__()
        self.clock = SimulatedClock()
        self.servers: dict[str, Server] = {}
        self.groups = {
            "v1": [("endpoints", "Endpoints")],
            "example.org/v1": [("widgets", "Widget")],
            "migration.k8s.io/v1alpha1": [
                ("storagestates", "StorageState"),
                ("storageversionmigrations", "StorageVersionMigration"),
            ],
        }
        if storage_versions:
            self.groups["internal.apiserver.k8s.io/v1alpha1"] = [
                ("storageversions", "StorageVersion")
            ]

    def server(self, name: str, version: str) -> Server:
        """Adds or upgrades a server that stores widgets in a version."""
        if name not in self.servers:
            self.servers[name] = Server(self, name)
        self.servers[name].version = version
        return self.servers[name]

    def show_endpoints(self, *hosts: str) -> None:
        addresses = [{"ip": host} for host in hosts]
        ports = [{"name": "https", "port": 6443, "protocol": "TCP"}]
        self.put(
            ENDPOINTS,
            {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "subsets": [{"addresses": addresses, "ports": ports}],
            },
        )

    def report(self, *versions: str, uid: str = "") -> None:
        """Sets the encoding version of each server in the StorageVersion."""
        common = {"commonEncodingVersion": f"example.org/{versions[0]}"}
        value: Object = {
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
            "kind": "StorageVersion",
            "metadata": {},
            "spec": {},
            "status": {
                "storageVersions": [
                    {
                        "apiServerID": f"server-{number}",
                        "encodingVersion": f"example.org/{version}",
                        "decodableVersions": ["example.org/v1", "example.org/v2"],
                    }
                    for number, version in enumerate(versions)
                ],
                **(common if len(set(versions)) == 1 else {}),
            },
        }
        old = self.objects.get(STORAGE_VERSION)
        if old is not None:
            value["metadata"]["uid"] = old["metadata"]["uid"]
        self.put(STORAGE_VERSION, value)

    def client(self, name: str) -> ApiClient:
        server = self.servers[name]
        runtime = Runtime.simulated(f"client of {name}", clock=self.clock)
        return ApiClient(InProcessTransport(server.handle, server=name), runtime=runtime)

    def connect_to(self, address: str) -> ApiClient:
        return self.client(address.partition(":")[0])

    # Access for tests.

    @property
    def persisted(self) -> list[str]:
        """Returns the persisted hashes as names of versions."""
        names = {hash_of(version): version for version in ("v1", "v2", "v3")}
        found = self.objects[STATE].get("status", {}).get("persistedStorageVersionHashes", [])
        return [names.get(each, each) for each in found]

    @property
    def reported(self) -> list[str]:
        names = {hash_of(version): version for version in ("v1", "v2", "v3")}
        found = self.objects[STATE].get("status", {}).get("currentStorageVersionHashes", [])
        return [names.get(each["currentStorageVersionHash"], "?") for each in found]

    @property
    def open(self) -> list[str]:
        """Returns the names of the migrations in progress."""
        return [
            path.rsplit("/", 1)[1]
            for path, value in self.objects.items()
            if path.startswith(f"{MIGRATIONS_PATH}/")
            and not value.get("status", {}).get("conditions")
        ]

    def finish(self, kind: str = "Succeeded") -> None:
        """Ends all migrations, as a migrator does."""
        moment = self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in self.open:
            value = copy.deepcopy(self.objects[f"{MIGRATIONS_PATH}/{name}"])
            value["metadata"]["annotations"]["migrator.restow.dev/proof"] = proof_for(value)
            done = {"type": kind, "status": "True", "lastUpdateTime": moment}
            value["status"] = {"conditions": [done]}
            self.put(f"{MIGRATIONS_PATH}/{name}", value)

    # The servers' replies.

    def _answer(self, sent: Sent) -> Object:
        match sent.method:
            case "PUT" if sent.path.endswith("/status"):
                path = sent.path.removesuffix("/status")
                self._check_all(path, sent.body["metadata"])
                old = self._found(path)
                return self.put(path, {**old, "status": sent.body["status"]})
            case "PATCH":
                self._check_all(sent.path, sent.body.get("metadata", {}))
                return self.put(sent.path, _merged(self._found(sent.path), sent.body))
            case "POST":
                body = {name: each for name, each in sent.body.items() if name != "status"}
                return super()._answer(Sent(sent.method, sent.path, sent.query, {}, body))
            case "DELETE":
                self._check_all(sent.path, sent.body.get("preconditions", {}))
        return super()._answer(sent)

    def _check_all(self, path: str, wanted: Mapping[str, Any]) -> None:
        found = self._found(path)["metadata"]
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != found[name]:
                raise status.conflict(_NAMES, path)


class Server:
    """One server: the shared objects, and a discovery of its own."""

    def __init__(self, cluster: Kubernetes, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.version = ""
        """The version in which it stores widgets; if empty, discovery has no hash."""
        self.hashes: dict[str, str] = {}
        """The hashes of other resources."""
        self.is_down = False
        self.delay_seconds = 0.0
        """The latency of each reply."""
        self.hidden = ""
        """A group whose discovery document cannot be read."""

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        if self.is_down:
            raise ConnectionRefusedError
        await self.cluster.clock.sleep(self.delay_seconds)
        path = target.partition("?")[0]
        if self.hidden and path.startswith(f"/apis/{self.hidden}/") and path.count("/") == 3:
            return InProcessResponse(503, status.unavailable("starting").to_bytes())
        document = self._document(path)
        if document is not None:
            return InProcessResponse(200, orjson.dumps(document))
        group_version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
        if not any(group_version.startswith(each) for each in self.cluster.groups):
            return InProcessResponse(404, b"404 page not found")
        return await self.cluster.handle(method, target, headers, body)

    def _document(self, path: str) -> Object | None:
        groups = self.cluster.groups
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            return {"groups": [_group(each) for each in groups if "/" in each]}
        name = path.removeprefix("/apis/").removeprefix("/api/")
        if name not in groups:
            return None
        return {"resources": [self._entry(*each) for each in groups[name]]}

    def _entry(self, plural: str, kind: str) -> Object:
        entry: Object = {"name": plural, "kind": kind, "namespaced": False, "verbs": _VERBS}
        if plural == "widgets" and self.version:
            entry["storageVersionHash"] = hash_of(self.version)
        if plural in self.hashes:
            entry["storageVersionHash"] = self.hashes[plural]
        return entry


def _group(group_version: str) -> Object:
    group, _, version = group_version.partition("/")
    entry = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    found = dict(old)
    for name, each in patch.items():
        found[name] = _merged(found.get(name), each)
        if each is None:
            del found[name]
    return found
