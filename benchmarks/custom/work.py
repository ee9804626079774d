"""Work that a separate process does on a server while other requests are measured."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.custom.definitions import collection, definition
from tests.support.api_client import ApiClient

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CREATORS: Final = 8


@dataclass(frozen=True, slots=True)
class Target:
    """A server, in a form that can be passed to another process."""

    port: int
    token: str
    ca_pem: str

    def client(self) -> ApiClient:
        tls = ssl.create_default_context(cadata=self.ca_pem)
        return ApiClient(self.port, token=self.token, tls=tls)


def create_all(target: Target, count: int) -> float:
    """Create CRDs as fast as possible, and wait until all are established."""
    begin = time.perf_counter()
    asyncio.run(_create_all(target, count))
    return time.perf_counter() - begin


def change_some(target: Target, count: int) -> float:
    """Switch the storage version of `count` CRDs; return the longest delay of discovery, in ms."""
    return asyncio.run(_change_some(target, count))


async def _create_all(target: Target, count: int) -> None:
    numbers = iter(range(count))

    async def create() -> None:
        client = target.client()
        for number in numbers:
            reply = await client.post(DEFINITIONS, definition(number))
            assert reply.status == 201, reply.body[:500]
        await client.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create(), name="create")
    client = target.client()
    for number in range(count):
        name = definition(number)["metadata"]["name"]
        while not _is_established((await client.get(f"{DEFINITIONS}/{name}")).json):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await client.close()


def _is_established(found: dict[str, Any]) -> bool:
    conditions = found["status"].get("conditions") or []
    return any(e["type"] == "Established" and e["status"] == "True" for e in conditions)


async def _change_some(target: Target, count: int) -> float:
    client, delays = target.client(), []
    for number in range(0, count, max(1, count // 20)):
        body = definition(number, storage="v1beta1")
        name = body["metadata"]["name"]
        found = (await client.get(f"{DEFINITIONS}/{name}")).json
        found["spec"]["versions"] = body["spec"]["versions"]
        path = collection(number).partition("/namespaces")[0]
        before = (await client.get(path)).body
        begin = time.perf_counter()
        assert (await client.put(f"{DEFINITIONS}/{name}", found)).status == 200
        while (await client.get(path)).body == before:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        delays.append((time.perf_counter() - begin) * 1000)
    await client.close()
    return max(delays)
