"""Stored values in Kubernetes' protobuf envelope, the default of kube-apiserver for built-in kinds.

They are read like values in JSON. Values written through this server are stored as JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from restow.apimachinery.protobuf import MAGIC
from restow.request.protobuf_messages import message_of
from restow.storage.interface import Key
from restow.storage.memory import MemoryStorage
from restow.storageversion.rewrite_plan import rewritten_form
from tests.conformance.api.servers import (
    BUILTIN,
    CONFIG_MAPS,
    RunningServer,
    config_map,
    start_server,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = "/registry/configmaps/default/"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    storage = MemoryStorage()
    running = await start_server(storage)
    yield running
    await running.stop()
    await storage.close()


def in_protobuf(obj: dict[str, Any]) -> bytes:
    message = message_of(orjson.dumps(obj))
    assert message is not None
    assert message.startswith(MAGIC)
    return message


def stored_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": "2020-01-01T00:00:00Z",
        "labels": {"form": name},
    }
    return config_map(name, data, **metadata)


async def test_get_and_list(server: RunningServer) -> None:
    """An object in protobuf is served as if it were JSON: alone, in lists and by selectors."""
    expected = stored_map("read", color="blue")
    revision = await server.put_raw(f"{ROOT}read", in_protobuf(expected))
    found = (await server.client.get(f"{CONFIG_MAPS}/read")).json
    assert found["metadata"].pop("resourceVersion") == str(revision)
    assert found == expected
    selected = (await server.client.get(f"{CONFIG_MAPS}?labelSelector=form%3Dread")).json
    assert [each["data"] for each in selected["items"]] == [{"color": "blue"}]
    pages = (await server.client.get(f"{CONFIG_MAPS}?limit=500")).json
    assert "read" in [each["metadata"]["name"] for each in pages["items"]]


async def test_a_nested_object(server: RunningServer) -> None:
    """Nested fields in lists and maps, numbers, booleans and quantities are decoded."""
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "hostNetwork": True,
                "containers": [
                    {
                        "name": "c",
                        "image": "nginx",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "500m"}},
                    }
                ],
            },
        },
    }
    metadata = {"name": "deep", "namespace": "default", "uid": "u", "generation": 7}
    obj = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata, "spec": spec}
    await server.put_raw("/registry/deployments/default/deep", in_protobuf(obj))
    found = (await server.client.get(f"{DEPLOYMENTS}/deep")).json
    assert found["metadata"]["generation"] == 7
    assert found["spec"]["replicas"] == 3
    pod = found["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    [container] = pod["containers"]
    assert container["ports"] == [{"containerPort": 80}]
    assert container["resources"] == {"limits": {"cpu": "500m"}}


async def test_watch(server: RunningServer) -> None:
    """A protobuf value that another writer creates, changes and deletes reaches a watch of this
    server."""
    first = await server.put_raw(f"{ROOT}watched", in_protobuf(stored_map("watched", a="1")))
    field = "fieldSelector=metadata.name%3Dwatched"
    watch = await server.client.watch(f"{CONFIG_MAPS}?resourceVersion={first - 1}&{field}")
    await server.put_raw(f"{ROOT}watched", in_protobuf(stored_map("watched", a="2")))
    seen = await watch.take(2)
    assert (await server.client.delete(f"{CONFIG_MAPS}/watched")).status == 200
    seen += await watch.take(1)
    await watch.close()
    assert [(each["type"], each["object"]["data"]) for each in seen] == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "2"}),
        ("DELETED", {"a": "2"}),
    ]


async def test_a_write_stores_json(server: RunningServer) -> None:
    """A patch keeps all other fields, and the object is stored as JSON from then on."""
    await server.put_raw(f"{ROOT}written", in_protobuf(stored_map("written", a="1", b="2")))
    reply = await server.client.patch(f"{CONFIG_MAPS}/written", {"data": {"b": "3"}})
    assert (reply.status, reply.json["data"]) == (200, {"a": "1", "b": "3"})
    item = await server.storage.get(Key(f"{ROOT}written"))
    assert item is not None
    assert orjson.loads(item.value)["metadata"]["uid"] == "uid-written"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (MAGIC, "its protobuf envelope cannot be read"),
        (in_protobuf(config_map("x"))[:-9], "its protobuf"),
        (in_protobuf(config_map("x")).replace(b"v1", b"v9"), "not decodable here"),
        (in_protobuf({"kind": "Secret", "apiVersion": "v1", "metadata": {}}), "kind 'Secret'"),
    ],
)
async def test_a_damaged_value_is_named(server: RunningServer, value: bytes, why: str) -> None:
    """A value that cannot be decoded causes a 500 with the reason, as for JSON."""
    await server.put_raw(f"{ROOT}damaged", value)
    reply = await server.client.get(f"{CONFIG_MAPS}/damaged")
    assert reply.status == 500
    assert why in reply.message
    await server.put_raw(f"{ROOT}damaged", stored_map("damaged"))


async def test_a_rewrite_stores_json_in_the_target_version() -> None:
    """A protobuf value in an old version is migrated like one in JSON."""
    resource = BUILTIN.named("apps", "deployments")
    assert resource is not None
    metadata = {"name": "old", "namespace": "default", "uid": "u"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {}}
    obj = {"kind": "Deployment", "apiVersion": "apps/v1beta2", "metadata": metadata, "spec": spec}
    value = rewritten_form(resource, in_protobuf(obj), "apps/v1beta2", "apps/v1")
    found = orjson.loads(value)
    assert (found["apiVersion"], found["spec"]["replicas"]) == ("apps/v1", 2)
