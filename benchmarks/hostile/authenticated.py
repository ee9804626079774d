"""Attacks with requests of users who may do little: view, or in a dry run edit one namespace.

Each holds one connection, and returns when it is closed. Users share the connections equally.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from typing import Any, Final

from benchmarks.hostile.opening import Streams, connect, drain, head, whole_answer
from benchmarks.hostile.stage import GROUP, ITEMS_MAX, LARGE, NAMESPACE, THINGS, Stage
from benchmarks.hostile.unauthenticated import COLLECTION, PATH

CONTAINERS: Final = 15_000
REQUIREMENTS: Final = 30_000
YAML_LIMIT: Final = 130
"""Items of a list that is just short enough for YAML."""
SLOW_READ_BYTES: Final = 1_000
SLOW_READ_SECONDS: Final = 0.2
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
WEBSOCKET: Final = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
)


def viewer(stage: Stage, number: int) -> str:
    return stage.viewers[number % len(stage.viewers)]


def editor(stage: Stage, number: int) -> str:
    return stage.editors[number % len(stage.editors)]


async def _repeat(stage: Stage, request: bytes) -> None:
    """Send a request again and again, and read the responses."""
    reader, writer = await connect(stage.target)
    while True:
        writer.write(request)
        await whole_answer(reader)


async def _repeat_list(stage: Stage, number: int, *, query: str = "", form: str = "") -> None:
    form = form or "application/json"
    request = head("GET", LARGE + query, viewer(stage, number), f"Accept: {form}")
    await _repeat(stage, request)


async def _repeat_post(stage: Stage, token: str, path: str, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    lines = ("Content-Type: application/json", f"Content-Length: {len(content)}")
    await _repeat(stage, head("POST", path, token, *lines) + content)


async def small_gets(stage: Stage, number: int) -> None:
    """Gets of one object, as fast as responses come."""
    await _repeat(stage, head("GET", PATH, viewer(stage, number)))


async def long_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB."""
    await _repeat_list(stage, number)


async def yaml_lists(stage: Stage, number: int) -> None:
    """Lists as YAML, as long as they may be."""
    await _repeat_list(stage, number, query=f"?limit={YAML_LIMIT}", form="application/yaml")


async def pretty_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB, indented."""
    await _repeat_list(stage, number, query="?pretty=true")


async def table_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB as Tables."""
    await _repeat_list(stage, number, form=TABLE)


async def protobuf_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB in protobuf."""
    await _repeat_list(stage, number, form=PROTOBUF)


async def selected_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB with a selector that matches nothing."""
    await _repeat_list(stage, number, query="?fieldSelector=metadata.name%3Dnone")


async def protobuf_watches(stage: Stage, number: int) -> None:
    """Watches in protobuf that begin with 36 MB of objects, one after another."""
    streams = await connect(stage.target)
    query = "?watch=1&timeoutSeconds=1"
    while True:
        form = f"Accept: {PROTOBUF};stream=watch"
        streams[1].write(head("GET", LARGE + query, viewer(stage, number), form))
        await whole_answer(streams[0])


async def held_watches(stage: Stage, number: int) -> None:
    """Watches for a day that are read."""
    streams = await connect(stage.target)
    path = f"{COLLECTION}?watch=1&timeoutSeconds=86400"
    streams[1].write(head("GET", path, viewer(stage, number)))
    await drain(streams)


async def abandoned_watches(stage: Stage, number: int) -> None:
    """Watches that are opened and left."""
    streams = await connect(stage.target)
    streams[1].write(head("GET", f"{LARGE}?watch=1", viewer(stage, number)))
    await drain(streams, 1)
    streams[1].transport.abort()


async def abandoned_lists(stage: Stage, number: int) -> None:
    """Lists of 36 MB that are left after the first bytes."""
    streams = await connect(stage.target)
    streams[1].write(head("GET", LARGE, viewer(stage, number)))
    await drain(streams, 1)
    streams[1].transport.abort()


async def slow_readers(stage: Stage, number: int) -> None:
    """Lists of 36 MB that are read slowly."""
    streams = await connect(stage.target)
    transport = streams[1].transport
    assert isinstance(transport, asyncio.Transport)
    streams[1].write(head("GET", LARGE, viewer(stage, number)))
    while True:
        transport.resume_reading()
        await drain(streams, SLOW_READ_BYTES)
        transport.pause_reading()
        await asyncio.sleep(SLOW_READ_SECONDS)


async def bundles_with_upgrade(stage: Stage, number: int) -> None:
    """Bundles of ten watches that ask for a WebSocket, opened and left."""
    watches = "&".join([f"watch=/api/v1/namespaces/{NAMESPACE}/pods%3Fwatch%3D1"] * 10)
    key = f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"
    lines = (*WEBSOCKET, key, "Origin: https://a")
    streams: Streams = await connect(stage.target)
    path = f"/dashboard/watch?{watches}"
    streams[1].write(head("GET", path, viewer(stage, number), *lines))
    await drain(streams, 1)
    streams[1].transport.abort()


async def access_reviews(stage: Stage, number: int) -> None:
    """SelfSubjectAccessReviews with a selector of 30,000 requirements."""
    requirement = {"key": "k", "operator": "In", "values": ["v"]}
    selector = {"requirements": [requirement] * REQUIREMENTS}
    attributes = {"verb": "list", "resource": "pods", "labelSelector": selector}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": attributes}}
    await _repeat_post(stage, viewer(stage, number), path, body)


async def large_pods(stage: Stage, number: int) -> None:
    """Pods with 15,000 containers, as a dry run."""
    containers = [{"name": f"c{count}", "image": "i"} for count in range(CONTAINERS)]
    body = {"metadata": {"name": "large"}, "spec": {"containers": containers}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    await _repeat_post(stage, editor(stage, number), path, body)


async def cel_objects(stage: Stage, number: int) -> None:
    """Custom resources whose rules take long, as a dry run."""
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Thing",
        "metadata": {"name": "large"},
        "spec": {"l": ["a"] * (ITEMS_MAX - 10)},
    }
    await _repeat_post(stage, editor(stage, number), f"{THINGS}?dryRun=All", body)


ATTACKS: Final = (
    small_gets,
    long_lists,
    yaml_lists,
    pretty_lists,
    table_lists,
    protobuf_lists,
    selected_lists,
    protobuf_watches,
    held_watches,
    abandoned_watches,
    abandoned_lists,
    slow_readers,
    bundles_with_upgrade,
    access_reviews,
    large_pods,
    cel_objects,
)
