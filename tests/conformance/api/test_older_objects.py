"""Objects that an older release has stored, before it knew the defaults of today.

They count as if they had them: to get them with the next write is no change that anybody made.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import RunningServer, start_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTAINERS = [{"name": "c", "image": "nginx"}]
LABELS = {"a": "b"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": CONTAINERS}}
SELECTED = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
JOB_TEMPLATE = {**TEMPLATE, "spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
# By kind: its group version, the key and the path of all, and what was stored.
STORED: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "Pod": ("v1", "pods", "pods", {"containers": CONTAINERS}),
    "Service": ("v1", "services/specs", "services", {"ports": [{"port": 80}]}),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims", "persistentvolumeclaims", CLAIM),
    "Deployment": ("apps/v1", "deployments", "deployments", SELECTED),
    "DaemonSet": ("apps/v1", "daemonsets", "daemonsets", SELECTED),
    "StatefulSet": ("apps/v1", "statefulsets", "statefulsets", SELECTED),
    "Job": ("batch/v1", "jobs", "jobs", {**SELECTED, "template": JOB_TEMPLATE}),
}
COUNTED = {"Pod", "Deployment", "DaemonSet", "StatefulSet", "Job"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    storage = MemoryStorage()
    running = await start_server(storage)
    yield running
    await running.stop()
    await storage.close()


async def stored(server: RunningServer, kind: str, name: str) -> str:
    """Put one into the store; its path."""
    version, prefix, plural, spec = STORED[kind]
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-of-{kind.lower()}-{name}",
        "creationTimestamp": "2020-01-01T00:00:00Z",
    }
    if kind in COUNTED:
        metadata["generation"] = 1
    obj = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    await server.put_raw(f"/registry/{prefix}/default/{name}", obj)
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    path = f"{root}/namespaces/default/{plural}/{name}"
    assert (await server.client.get(path)).json["spec"] == spec
    return path


@pytest.mark.parametrize("kind", STORED)
async def test_a_note_can_be_made(server: RunningServer, kind: str) -> None:
    """A patch of labels is no change of what may not change, and no other generation."""
    path = await stored(server, kind, "noted")
    reply = await server.client.patch(path, {"metadata": {"labels": {"x": "y"}}})
    assert reply.status == 200, reply.body
    assert reply.json["metadata"]["labels"] == {"x": "y"}
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


@pytest.mark.parametrize("kind", STORED)
async def test_what_was_read_can_be_written(server: RunningServer, kind: str) -> None:
    """Whoever writes it back as it was read is not told to have changed something."""
    path = await stored(server, kind, "read")
    seen = (await server.client.get(path)).json
    reply = await server.client.put(path, seen)
    assert reply.status == 200, reply.body
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


@pytest.mark.parametrize("kind", STORED)
async def test_a_status_can_be_written(server: RunningServer, kind: str) -> None:
    """By the path of the status the rest stays, with all that is missing in it."""
    path = await stored(server, kind, "told")
    reply = await server.client.patch(f"{path}/status", {"status": {"conditions": []}})
    assert reply.status == 200, reply.body
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


async def test_what_may_not_change_still_may_not(server: RunningServer) -> None:
    """Only defaults are let through, and each real change counts."""
    pod = await stored(server, "Pod", "changed")
    reply = await server.client.patch(pod, {"spec": {"dnsPolicy": "Default"}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "pod updates may not change fields" in reply.message
    job = await stored(server, "Job", "changed")
    reply = await server.client.patch(job, {"spec": {"completionMode": "Indexed"}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    deployment = await stored(server, "Deployment", "changed")
    reply = await server.client.patch(deployment, {"spec": {"paused": True}})
    assert reply.json["metadata"]["generation"] == 2
