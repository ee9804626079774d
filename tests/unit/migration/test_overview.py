"""The overview of a cluster, also one that lacks some APIs or forbids reading them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionKind, GroupVersionResource
from restow.apimachinery.version_hash import storage_version_hash
from restow.apis.storage_scan import StoredCount
from restow.client import ApiClient, ApiResource, ClientConfig, HttpTransport, NoSuchResource
from restow.client.transport import ClientRequest, ClientResponse
from restow.migration import overview_reader as reading
from restow.migration import readability
from restow.migration.overview import look
from restow.migration.overview_values import Hash, ResourceSeen, ResourceStatus, StoredSeen
from restow.migration.store_scan import StoreScan
from tests.unit.migration.running_process import running_server

KEYS = st.sampled_from(
    [
        *("metadata", "spec", "status", "name", "conditions", "type", "resource", "labels"),
        *("renewTime", "progress", "failedObjects", "persistedStorageVersionHashes"),
        *("storageVersions", "encodingVersion"),
    ]
)
MIGRATIONS = GroupVersionResource("migration.k8s.io", "v1alpha1", "storageversionmigrations")
STATES = GroupVersionResource("migration.k8s.io", "v1alpha1", "storagestates")


class RestrictedTransport:
    """A transport that hides some API groups, and forbids some lists."""

    def __init__(self, config: ClientConfig, runtime: Runtime) -> None:
        self._inner = HttpTransport(config, clock=runtime.clock)
        self.server = self._inner.server
        self.hidden: set[str] = set()
        self.forbidden = "nothing"
        self.broken: tuple[str, ...] = ("nothing",)
        """A request whose target contains all of these gets 500."""

    async def prepare(self) -> None:
        await self._inner.prepare()

    def send(self, request: ClientRequest) -> AbstractAsyncContextManager[ClientResponse]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        if self.forbidden in request.target:
            error = status.forbidden("no", resource=MIGRATIONS.group_resource, name="")
            yield ClientResponse(403, {}, _piece(error.to_bytes()), self.server)
            return
        if all(each in request.target for each in self.broken):
            broken = status.internal("configmaps cannot be read: default/bad: it is no object")
            yield ClientResponse(500, {}, _piece(broken.to_bytes()), self.server)
            return
        async with self._inner.send(request) as response:
            if request.target != "/apis":
                yield response
                return
            body = orjson.loads(await response.read(bytes_max=1_000_000))
            body["groups"] = [each for each in body["groups"] if each["name"] not in self.hidden]
            yield ClientResponse(200, {}, _piece(orjson.dumps(body)), self.server)

    async def close(self) -> None:
        await self._inner.close()


async def _piece(body: bytes) -> AsyncIterator[bytes]:
    yield body


@asynccontextmanager
async def restricted_client(
    directory: Path,
) -> AsyncIterator[tuple[ApiClient, RestrictedTransport]]:
    runtime = Runtime.system()
    async with running_server(directory) as config:
        transport = RestrictedTransport(config, runtime)
        async with ApiClient(transport, runtime=runtime) as client:
            yield client, transport


async def test_a_cluster_without_these_apis(tmp_path: Path) -> None:
    """On a plain Kubernetes the hash of discovery is shown, and the notes name the missing APIs."""
    async with restricted_client(tmp_path) as (client, transport):
        transport.hidden = {
            "migration.k8s.io",
            "storagemigration.k8s.io",
            "internal.apiserver.k8s.io",
        }
        view = await look(client)
    pods = next(each for each in view.resources if each.resource == "pods")
    assert (str(pods.written), pods.persisted, pods.verdict) == ("v1", (), ResourceStatus.UNKNOWN)
    assert view.migrations == []
    assert [note.split(":")[0] for note in view.notes] == [
        "the server has no storagestates.migration.k8s.io (v1alpha1)",
        "the server has no storageversions.internal.apiserver.k8s.io (v1alpha1)",
        "the server has no API for migrations",
    ]
    assert any("--install" in note for note in view.notes)
    assert not view.is_partial, "the server has nothing that is not shown"


async def test_a_forbidden_list_is_noted(tmp_path: Path) -> None:
    """A forbidden list becomes a note; everything else is shown."""
    async with restricted_client(tmp_path) as (client, transport):
        transport.forbidden = "/storagestates"
        view = await look(client)
    assert [note for note in view.notes if "storagestates" in note]
    assert view.is_partial
    assert {each.verdict for each in view.resources} == {ResourceStatus.UNKNOWN}
    assert len(view.servers) == 1


async def test_verdicts(tmp_path: Path) -> None:
    """A resource is to be migrated, being migrated, ok, or gone, by its StorageState and
    migrations."""
    async with restricted_client(tmp_path) as (client, _):
        await client.create(MIGRATIONS, request("secrets"))
        pods = (await client.create(MIGRATIONS, request("pods")))["metadata"]["name"]
        done = await client.create(MIGRATIONS, {}, name=pods, subresource="rewrite")
        assert done["verified"] is True  # an empty resource is verified by one pass
        await client.delete(MIGRATIONS, pods)
        gone = {"group": "example.com", "resource": "ghosts"}
        await client.create(
            STATES,
            {
                "apiVersion": "migration.k8s.io/v1alpha1",
                "kind": "StorageState",
                "metadata": {"name": "ghosts.example.com"},
                "spec": {"resource": gone},
            },
        )
        view = await look(client)
        some = await look(client, ["po", "secrets"])
        with pytest.raises(NoSuchResource):
            await look(client, ["ghosts"])
    found = {each.resource: each.verdict for each in view.resources}
    assert found["secrets"] is ResourceStatus.MIGRATING
    assert found["pods"] is ResourceStatus.OK
    assert found["nodes"] is ResourceStatus.TO_MIGRATE
    assert found["ghosts.example.com"] is ResourceStatus.GONE
    assert {each.resource for each in some.resources} == {"pods", "secrets"}
    assert [each.resource for each in some.migrations] == ["secrets"]


async def test_a_resource_that_cannot_be_listed_is_not_ok(tmp_path: Path) -> None:
    """Unreadable values and forbidden lists override the verdict of the StorageState."""
    async with restricted_client(tmp_path) as (client, transport):
        transport.broken = ("/configmaps?",)
        transport.forbidden = "/secrets?"
        view = await look(client)
        some = await look(client, ["pods"])
    found = {each.resource: each.verdict for each in view.resources}
    assert found["configmaps"] is ResourceStatus.UNREADABLE
    notes = [note for note in view.notes if "default/bad" in note]
    assert len(notes) == 1
    assert any(note.startswith("whether the objects of secrets can be read") for note in view.notes)
    assert some.unread == [], "only what was asked for is listed"


@pytest.mark.parametrize(
    ("verdict", "damaged", "forbidden"),
    [
        (ResourceStatus.OK, ResourceStatus.UNREADABLE, ResourceStatus.UNKNOWN),
        (ResourceStatus.TO_MIGRATE, ResourceStatus.UNREADABLE, ResourceStatus.TO_MIGRATE),
        (ResourceStatus.DISAGREEING, ResourceStatus.UNREADABLE, ResourceStatus.DISAGREEING),
        (ResourceStatus.LEFT_ALONE, ResourceStatus.LEFT_ALONE, ResourceStatus.LEFT_ALONE),
    ],
)
def test_evidence(
    verdict: ResourceStatus, damaged: ResourceStatus, forbidden: ResourceStatus
) -> None:
    """A failed list makes a verdict worse, never better."""
    seen = ResourceSeen(resource="pods", written=Hash("h"), verdict=verdict)
    for is_damaged, expected in ((True, damaged), (False, forbidden)):
        unread = readability.Unread(resource="pods", is_damaged=is_damaged, why="")
        (found,) = reading.with_evidence([seen], [unread], StoredSeen())
        assert found.verdict is expected
    assert reading.with_evidence([seen], [], StoredSeen()) == [seen]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ResourceStatus.OK),
        ({"api_version": "example.com/v2"}, ResourceStatus.TO_MIGRATE),
        ({"encryption_key": "aesgcm:key1:f"}, ResourceStatus.TO_MIGRATE),
        ({"api_version": "", "problem": "NotDecodable"}, ResourceStatus.UNREADABLE),
        ({"scope": "Cluster"}, ResourceStatus.UNREADABLE),
        ({"prefix": "/registry/widgets/"}, ResourceStatus.UNREADABLE),
    ],
)
def test_ok_means_that_the_raw_values_agree(
    fields: dict[str, Any], expected: ResourceStatus
) -> None:
    """A resource that its StorageState calls migrated is ok only if every raw value is stored that
    way."""
    widgets = GroupResource("example.com", "widgets")
    usual: dict[str, Any] = {
        "prefix": "/registry/example.com/widgets/",
        "group": "example.com",
        "resource": "widgets",
        "scope": "Namespaced",
        "api_version": "example.com/v1",
        "kind": "Widget",
        "encoding": "json",
        "values": 1,
    }
    scan = StoreScan(revision=1, rows=(StoredCount(**usual | fields),))
    stored = StoredSeen(is_expected=True, scan=scan, namespaced={widgets: True})
    hashed = storage_version_hash(GroupVersionKind("example.com", "v1", "Widget"))
    seen = ResourceSeen(
        resource="widgets.example.com",
        written=Hash(hashed, "example.com/v1"),
        prefixes=("/registry/example.com/widgets/",),
        verdict=ResourceStatus.OK,
    )
    (found,) = reading.with_evidence([seen], [], stored)
    assert found.verdict is expected
    assert ("restow migrate widgets.example.com" in found.remark) is (
        expected is ResourceStatus.TO_MIGRATE
    )
    (unscanned,) = reading.with_evidence([seen], [], StoredSeen(is_expected=True))
    assert unscanned.verdict is ResourceStatus.UNKNOWN
    silent = replace(seen, written=Hash(""))
    (uncompared,) = reading.with_evidence([silent], [], stored)
    assert uncompared.verdict in (ResourceStatus.UNKNOWN, ResourceStatus.UNREADABLE)


async def test_all_pages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable value on a later page is found, unless the limit is one page."""
    monkeypatch.setattr(readability, "PAGE_OBJECTS", 1)
    async with restricted_client(tmp_path) as (client, transport):
        transport.broken = ("/namespaces?", "continue=")
        resources = (await client.discover()).preferred()
        (found,) = await readability.find_unread(client, resources)
        assert await readability.find_unread(client, resources, pages_max=1) == []
    assert (found.resource, found.is_damaged) == ("namespaces", True)
    assert "default/bad" in found.why


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON))
def test_garbage_in_objects_is_no_reason_to_fail(value: dict[str, Any]) -> None:
    """A migration, lease or StorageState with arbitrary fields is shown as far as it can be
    parsed."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert reading.migration_seen(value).phase
    assert reading.server_seen(value, now).is_live in {True, False}
    assert reading.leader_seen(value, now).is_live in {True, False}
    assert reading._vanished("x", value).resource == "x"
    found = ApiResource(group="", version="v1", name="pods", kind="Pod", is_namespaced=True)
    assert reading._resource(found, value, value, (), is_migrating=False).verdict


def request(resource: str) -> dict[str, Any]:
    return {
        "apiVersion": "migration.k8s.io/v1alpha1",
        "kind": "StorageVersionMigration",
        "metadata": {"generateName": "m-"},
        "spec": {"resource": {"version": "v1", "resource": resource}},
    }


def ended(name: str, resource: str, phase: str, *, created: int, finished: int) -> dict[str, Any]:
    """Returns a completed migration, with times in seconds after noon."""
    condition = {
        "type": phase,
        "status": "True",
        "lastUpdateTime": f"2026-01-01T12:00:{finished:02}Z",
    }
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T12:00:{created:02}Z"},
        "spec": {"resource": {"group": "", "resource": resource}},
        "status": {"conditions": [condition]},
    }


def test_a_later_success_supersedes_a_failure() -> None:
    """Only for the same resource, and only if the success ended after the failure."""
    found = reading.migrations_seen(
        [
            ended("failed", "pods", "Failed", created=1, finished=5),
            ended("same-second", "pods", "Failed", created=7, finished=9),
            ended("fixed", "pods", "Succeeded", created=8, finished=9),
            ended("again", "pods", "Failed", created=10, finished=11),
            ended("before", "nodes", "Succeeded", created=1, finished=2),
            ended("after", "nodes", "Failed", created=3, finished=4),
            {"status": {"conditions": [{"type": "Failed", "status": "True"}]}},
        ]
    )
    assert [each.name for each in found if each.is_superseded] == ["failed", "same-second"]
