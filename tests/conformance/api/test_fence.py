"""No write of a versioned resource bypasses the fence, on any path through the server.

The store checks every transaction: one that writes an object of a versioned resource without a
guard on the encoding version fails the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.controllers import ControllerManager, ControllerManagerOptions
from restow.endpoints.barrier import WriteBarrier
from restow.registry.encoding import FixedPolicy
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.conformance.api.servers import BUILTIN, CONFIG_MAPS, NS, config_map, start_server
from tests.support.api_client import ApiClient, Reply
from tests.support.storageversion_audit import AuditedStorage, PromiseBroken

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = "application/merge-patch+json"
SETTLE_SECONDS_MAX = 20.0


def deployment(name: str, **metadata: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


@pytest.fixture
def audited() -> AuditedStorage:
    return AuditedStorage([BUILTIN])


@pytest_asyncio.fixture(params=["report", "strict"])
async def fenced(
    audited: AuditedStorage, request: pytest.FixtureRequest
) -> AsyncIterator[ApiClient]:
    """A complete server that participates in coordination, with its controllers."""
    runtime = Runtime.system()
    membership = MembershipOptions(host="h", mode=request.param)
    options = CoordinatorOptions(membership=membership)
    coordinator = Coordinator(audited, BUILTIN, runtime, options)
    server = await start_server(
        audited, policy=coordinator.policy, barrier=WriteBarrier(coordinator)
    )
    refused = await server.client.post("/api/v1/namespaces", {"metadata": {"name": "early"}})
    assert (refused.status, refused.reason) == (503, "ServiceUnavailable")
    await coordinator.start()
    controller_manager = ControllerManager(
        audited,
        server.assembly.store,
        BUILTIN,
        runtime,
        ControllerManagerOptions(server_id="s", event_ttl_seconds=0.5),
    )
    await controller_manager.start()
    yield server.client
    await controller_manager.close()
    await coordinator.close()
    await server.stop()
    audited.check()


def good(reply: Reply) -> Any:
    assert reply.status < 300, reply.json
    return reply.json


async def wait_until_deleted(api: ApiClient, *paths: str) -> None:
    """Waits until no object exists at the paths."""
    async with asyncio.timeout(SETTLE_SECONDS_MAX):
        for path in paths:
            while (await api.get(path)).status != 404:  # noqa: ASYNC110 - a client can only poll
                await asyncio.sleep(0.05)


async def test_every_write_is_fenced(fenced: ApiClient, audited: AuditedStorage) -> None:
    """Creates, updates, all patches, subresources, finalizers, deletes and collections."""
    api = fenced
    made = good(await api.post(CONFIG_MAPS, config_map("a", finalizers=["example.com/hold"])))
    good(await api.put(f"{CONFIG_MAPS}/a", {**made, "data": {"k": "v"}}))
    for kind, patch in (
        (MERGE, {"data": {"k": "2"}}),
        ("application/strategic-merge-patch+json", {"data": {"k": "3"}}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/l", "value": "4"}]),
    ):
        good(await api.patch(f"{CONFIG_MAPS}/a", patch, content_type=kind))
    good(await api.delete(f"{CONFIG_MAPS}/a"))  # marks it for deletion, since a finalizer blocks it
    good(
        await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    )
    await wait_until_deleted(api, f"{CONFIG_MAPS}/a")
    good(await api.post(DEPLOYMENTS, deployment("d")))
    status = {"status": {"replicas": 3}}
    good(await api.patch(f"{DEPLOYMENTS}/d/status", status, content_type=MERGE))
    scale = {"spec": {"replicas": 5}}
    good(await api.patch(f"{DEPLOYMENTS}/d/scale", scale, content_type=MERGE))
    for number in range(3):
        good(await api.post(CONFIG_MAPS, config_map(f"many-{number}", labels={"many": "yes"})))
    good(await api.delete(f"{CONFIG_MAPS}?labelSelector=many%3Dyes"))
    assert audited.written >= 15


async def test_writes_of_controllers_are_fenced(fenced: ApiClient, audited: AuditedStorage) -> None:
    """Garbage collection of dependents, deletion of a namespace's content, expiry of events."""
    api = fenced
    owner = good(await api.post(DEPLOYMENTS, deployment("owner")))
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    good(await api.post(CONFIG_MAPS, config_map("child", ownerReferences=[reference])))
    good(await api.delete(f"{DEPLOYMENTS}/owner"))
    good(await api.post("/api/v1/namespaces", {"metadata": {"name": "brief"}}))
    good(await api.post("/api/v1/namespaces/brief/configmaps", config_map("inside")))
    good(await api.delete("/api/v1/namespaces/brief"))
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "child"},
    }
    good(await api.post(f"{NS}/events", event))
    before = audited.written
    await wait_until_deleted(
        api, f"{CONFIG_MAPS}/child", "/api/v1/namespaces/brief", f"{NS}/events/e"
    )
    assert audited.written > before


async def test_the_audit_finds_a_server_without_a_fence(audited: AuditedStorage) -> None:
    """The same server with a policy that adds no guards is detected at its first write."""
    server = await start_server(audited, policy=FixedPolicy())
    reply = await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert reply.status == 500
    await server.stop()
    with pytest.raises(PromiseBroken, match="without a fence"):
        audited.check()
