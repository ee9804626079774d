"""One look at a cluster: also at one that lacks what we read, or does not let us read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.client import ApiClient, ApiResource, ClientConfig, HttpTransport, NoSuchResource
from restow.client.transport import Request, Response
from restow.controllers import overview_reading as reading
from restow.controllers.overview import look
from restow.controllers.overview_values import Verdict
from restow.machinery import status
from restow.machinery.names import GroupVersionResource
from restow.runtime import Runtime
from tests.unit.controllers.running import running_server

KEYS = st.sampled_from(
    [
        *("metadata", "spec", "status", "name", "conditions", "type", "resource", "labels"),
        *("renewTime", "progress", "failedObjects", "persistedStorageVersionHashes"),
        *("storageVersions", "encodingVersion"),
    ]
)
MIGRATIONS = GroupVersionResource("migration.k8s.io", "v1alpha1", "storageversionmigrations")
STATES = GroupVersionResource("migration.k8s.io", "v1alpha1", "storagestates")


class Lesser:
    """A way to a server that hides some groups, and forbids some lists."""

    def __init__(self, config: ClientConfig, runtime: Runtime) -> None:
        self._inner = HttpTransport(config, clock=runtime.clock)
        self.server = self._inner.server
        self.hidden: set[str] = set()
        self.forbidden = "nothing"

    def send(self, request: Request) -> AbstractAsyncContextManager[Response]:
        return self._send(request)

    @asynccontextmanager
    async def _send(self, request: Request) -> AsyncIterator[Response]:
        if self.forbidden in request.target:
            error = status.forbidden("no", resource=MIGRATIONS.group_resource, name="")
            yield Response(403, {}, _piece(error.to_bytes()), self.server)
            return
        async with self._inner.send(request) as response:
            if request.target != "/apis":
                yield response
                return
            body = orjson.loads(await response.read(bytes_max=1_000_000))
            body["groups"] = [each for each in body["groups"] if each["name"] not in self.hidden]
            yield Response(200, {}, _piece(orjson.dumps(body)), self.server)

    async def close(self) -> None:
        await self._inner.close()


async def _piece(body: bytes) -> AsyncIterator[bytes]:
    yield body


@asynccontextmanager
async def lesser_client(directory: Path) -> AsyncIterator[tuple[ApiClient, Lesser]]:
    runtime = Runtime.system()
    async with running_server(directory) as config:
        transport = Lesser(config, runtime)
        async with ApiClient(transport, runtime=runtime) as client:
            yield client, transport


async def test_a_cluster_without_these_apis(tmp_path: Path) -> None:
    """On a plain Kubernetes the hash in discovery is shown, and the notes say what is missing."""
    async with lesser_client(tmp_path) as (client, transport):
        transport.hidden = {
            "migration.k8s.io",
            "storagemigration.k8s.io",
            "internal.apiserver.k8s.io",
        }
        view = await look(client)
    pods = next(each for each in view.resources if each.resource == "pods")
    assert (str(pods.written), pods.persisted, pods.verdict) == ("v1", (), Verdict.UNKNOWN)
    assert view.migrations == []
    assert [note.split(":")[0] for note in view.notes] == [
        "the server has no storagestates.migration.k8s.io (v1alpha1)",
        "the server has no storageversions.internal.apiserver.k8s.io (v1alpha1)",
        "the server has no API for migrations",
    ]
    assert any("--install" in note for note in view.notes)


async def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    """A list that is forbidden is a note; everything else is shown."""
    async with lesser_client(tmp_path) as (client, transport):
        transport.forbidden = "/storagestates"
        view = await look(client)
    assert [note for note in view.notes if "storagestates" in note]
    assert {each.verdict for each in view.resources} == {Verdict.UNKNOWN}
    assert len(view.servers) == 1


async def test_verdicts(tmp_path: Path) -> None:
    """A resource is to be migrated, being migrated, ok, or gone, by its state and its requests."""
    async with lesser_client(tmp_path) as (client, _):
        await client.create(MIGRATIONS, request("secrets"))
        state = await client.get(STATES, "pods")
        state["status"]["persistedStorageVersionHashes"] = [
            state["status"]["currentStorageVersionHash"]
        ]
        await client.update(STATES, state, subresource="status")
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
    assert found["secrets"] is Verdict.MIGRATING
    assert found["pods"] is Verdict.OK
    assert found["nodes"] is Verdict.TO_MIGRATE
    assert found["ghosts.example.com"] is Verdict.GONE
    assert {each.resource for each in some.resources} == {"pods", "secrets"}
    assert [each.resource for each in some.migrations] == ["secrets"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, JSON))
def test_garbage_in_objects_is_no_reason_to_fail(value: dict[str, Any]) -> None:
    """Whatever a request, a lease or a state holds, it is shown as far as it is understood."""
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
