"""A server that has written an object uses cached data for the next write; the result is the
same as on a server that has never seen the object."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
import pytest_asyncio

from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import RunningServer, start_server
from tests.support.api_client import MERGE_PATCH

pytestmark = pytest.mark.asyncio(loop_scope="module")

Object = dict[str, Any]
PATH = "/apis/apps/v1/namespaces/default/deployments"
LABELS = {"a": "b"}
STRATEGIC = "application/strategic-merge-patch+json"


def deployment(name: str) -> Object:
    container = {"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B"}]}
    second = {"name": "d", "image": "j", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container, second]}}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "labels": LABELS},
        "spec": spec,
    }


def containers(obj: Object) -> list[Object]:
    found: list[Object] = obj["spec"]["template"]["spec"]["containers"]
    return found


EDITS: dict[str, tuple[Callable[[Object], Any], int]] = {
    "nothing": (lambda _obj: None, 0),
    "image": (lambda obj: containers(obj)[0].update(image="i:2"), 1),
    "replicas": (lambda obj: obj["spec"].update(replicas=5), 1),
    "no replicas": (lambda obj: obj["spec"].pop("replicas"), 1),
    "a default taken away": (lambda obj: obj["spec"].pop("revisionHistoryLimit"), 0),
    "label": (lambda obj: obj["metadata"].update(labels={"a": "c"}), 0),
    "entries taken away": (lambda obj: obj["metadata"].update(managedFields=[]), 0),
    "no entries": (lambda obj: obj["metadata"].pop("managedFields"), 0),
    "moved": (lambda obj: containers(obj).reverse(), 1),
    "one less": (lambda obj: containers(obj).pop(), 1),
    "variable": (lambda obj: containers(obj)[0]["env"][1].update(value="2"), 1),
    "empty part": (lambda obj: containers(obj)[0].update(resources={}), 0),
    "null": (lambda obj: containers(obj)[0].update(resources=None), 0),
    "the same amount": (lambda obj: _request(obj, "1000m"), 0),
    "another amount": (lambda obj: _request(obj, "2"), 1),
    "status": (lambda obj: obj.update(status={"replicas": 1}), 0),
}


def _request(obj: Object, cpu: str) -> None:
    containers(obj)[1]["resources"] = {"requests": {"cpu": cpu}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[tuple[RunningServer, RunningServer]]:
    """One server that writes objects, and one that has never seen them."""
    storage = MemoryStorage()
    pair = await start_server(storage), await start_server(storage)
    made = await pair[0].client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert made.status == 201, made.body
    yield pair
    for server in pair:
        await server.stop()
    await storage.close()


async def written_twice(server: RunningServer, name: str) -> Object:
    """An object whose managed fields this server has cached with the first update."""
    created = await server.client.post(PATH, deployment(name))
    assert created.status == 201, created.body
    found: Object = created.json
    found["metadata"]["annotations"] = {"written": "again"}
    reply = await server.client.put(f"{PATH}/{name}", found)
    assert reply.status == 200, reply.body
    answer: Object = reply.json
    return answer


def comparable(obj: Object) -> Object:
    """Returns an object without the fields that differ between the two."""
    found = copy.deepcopy(obj)
    for name in ("uid", "resourceVersion", "creationTimestamp", "name"):
        found["metadata"].pop(name, None)
    for entry in found["metadata"].get("managedFields") or ():
        entry.pop("time")
    return found


@pytest.mark.parametrize("what", EDITS)
async def test_update_as_read(servers: tuple[RunningServer, RunningServer], what: str) -> None:
    """Content, generation and managed fields are the same on both, and the generation is
    correct."""
    (edit, counts), found = EDITS[what], []
    for number, server in enumerate(servers):
        name = f"{what.replace(' ', '-')}-{number}"
        obj = await written_twice(servers[0], name)
        before = obj["metadata"]["generation"]
        edit(obj)
        reply = await server.client.put(f"{PATH}/{name}", obj)
        assert reply.status == 200, reply.body
        assert reply.json["metadata"]["generation"] == before + counts
        found.append(comparable(reply.json))
    assert found[0] == found[1]


@pytest.mark.parametrize("form", [MERGE_PATCH, STRATEGIC])
async def test_patches(servers: tuple[RunningServer, RunningServer], form: str) -> None:
    """The same holds for patches, also for one that removes the managed fields."""
    found: list[list[Object]] = [[], []]
    for number, server in enumerate(servers):
        name = f"patched-{form.partition('/')[2][:5]}-{number}"
        await written_twice(servers[0], name)
        patches: list[Object] = [
            {"spec": {"replicas": 7}},
            {"spec": {"replicas": 7}},
            {"metadata": {"labels": {"x": "y"}}},
            {"metadata": {"managedFields": [{}]}},
            {"spec": {"replicas": 8}},
        ]
        for patch in patches:
            reply = await server.client.patch(f"{PATH}/{name}", orjson.dumps(patch), form)
            assert reply.status == 200, reply.body
            found[number].append(comparable(reply.json))
    assert found[0] == found[1]


async def test_removed_server_defaults_are_no_change(
    servers: tuple[RunningServer, RunningServer],
) -> None:
    """Tolerations that the server added cannot be removed: an update without them is a no-op, on
    both servers."""
    tolerations = [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]
    spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": tolerations}
    path = "/api/v1/namespaces/default/pods"
    account = {"metadata": {"name": "default"}}
    await servers[0].client.post("/api/v1/namespaces/default/serviceaccounts", account)
    for number, server in enumerate(servers):
        name = f"tolerant-{number}"
        made = await servers[0].client.post(path, {"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.body
        known = made.json
        known["metadata"]["labels"] = LABELS
        known = (await servers[0].client.put(f"{path}/{name}", known)).json
        assert len(known["spec"]["tolerations"]) > 1
        again = copy.deepcopy(known)
        again["spec"]["tolerations"] = tolerations
        reply = await server.client.put(f"{path}/{name}", again)
        assert (reply.status, reply.json) == (200, known)


async def test_a_status_update_of_older_content(
    servers: tuple[RunningServer, RunningServer],
) -> None:
    """A status update does not rewrite the spec: if the spec was stored by an older release, its
    missing defaults are no change."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}
    for writes in (0, 1):
        name = f"older-{writes}"
        obj = deployment(name)
        obj["spec"]["template"]["spec"]["containers"] = [container]
        fields: Object = {"f:spec": {"f:replicas": {}}}
        entry = {"manager": "m", "operation": "Update", "apiVersion": "apps/v1"}
        obj["metadata"] |= {
            "namespace": "default",
            "uid": name,
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "generation": 1,
            "managedFields": [
                entry
                | {"time": "2020-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields}
            ],
        }
        server = servers[0]
        await server.put_raw(f"/registry/deployments/default/{name}", obj)
        found = (await server.client.get(f"{PATH}/{name}")).json
        for _ in range(writes):
            said = found | {"status": {"replicas": 1}}
            reply = await server.client.put(f"{PATH}/{name}/status", said)
            assert reply.status == 200, reply.body
            found = reply.json
        found["metadata"]["labels"] = {"only": "a-label"}
        reply = await server.client.put(f"{PATH}/{name}", found)
        assert (reply.status, reply.json["metadata"]["generation"]) == (200, 1)
