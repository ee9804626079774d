"""Objects stored by an older release that lacked some of the current defaults.

They are read with these defaults: storing them with the next write is no change.
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
# By kind: its group version, the key and the path of all, and the stored object.
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
    """Stores an object; returns its path."""
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
async def test_labels_can_be_patched(server: RunningServer, kind: str) -> None:
    """A patch of labels changes no immutable field and not the generation."""
    path = await stored(server, kind, "noted")
    reply = await server.client.patch(path, {"metadata": {"labels": {"x": "y"}}})
    assert reply.status == 200, reply.body
    assert reply.json["metadata"]["labels"] == {"x": "y"}
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


@pytest.mark.parametrize("kind", STORED)
async def test_an_unchanged_object_can_be_written(server: RunningServer, kind: str) -> None:
    """An object written back as it was read counts as unchanged."""
    path = await stored(server, kind, "read")
    seen = (await server.client.get(path)).json
    reply = await server.client.put(path, seen)
    assert reply.status == 200, reply.body
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


@pytest.mark.parametrize("kind", STORED)
async def test_a_status_can_be_written(server: RunningServer, kind: str) -> None:
    """A status update leaves the rest as it is stored, with its missing defaults."""
    path = await stored(server, kind, "told")
    reply = await server.client.patch(f"{path}/status", {"status": {"conditions": []}})
    assert reply.status == 200, reply.body
    assert reply.json["metadata"].get("generation") == (1 if kind in COUNTED else None)


async def test_immutable_fields_stay_immutable(server: RunningServer) -> None:
    """Only defaults are accepted, and each real change is refused."""
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
