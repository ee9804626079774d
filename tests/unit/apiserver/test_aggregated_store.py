"""An aggregated server determines its store: the main servers', its own, or a foreign one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from restow.aio import Runtime
from restow.apiserver.aggregated_store import (
    CLUSTER_KEY,
    MAIN_KEY,
    check_main,
    cluster_of,
    is_shared,
)
from restow.client import NO_RETRY, ApiClient, InProcessResponse, InProcessTransport
from restow.storage.errors import OpenRefused
from restow.storage.interface import Delete, Key, Put, Transaction
from restow.storage.memory import MemoryStorage

NAMESPACE_KEY = Key("/registry/namespaces/kube-system")


@pytest.fixture
async def storage() -> AsyncIterator[MemoryStorage]:
    made = MemoryStorage()
    yield made
    await made.close()


async def put(storage: MemoryStorage, key: Key, value: bytes) -> None:
    await storage.commit(Transaction((), (Put(key, value),)))


def namespace(uid: str) -> bytes:
    return orjson.dumps({"metadata": {"name": "kube-system", "uid": uid}})


async def test_the_main_servers_store_is_known_by_a_namespace(storage: MemoryStorage) -> None:
    """It is shared if it has the same namespace as the main servers; another one is refused."""
    assert not await is_shared(storage, "u1")
    await put(storage, NAMESPACE_KEY, namespace("u1"))
    assert await is_shared(storage, "u1")
    with pytest.raises(OpenRefused, match="it belongs to another cluster"):
        await is_shared(storage, "u2")


async def test_a_store_of_main_servers_is_not_an_own_one(storage: MemoryStorage) -> None:
    """The main servers' mark suffices, even before there is a namespace."""
    await put(storage, CLUSTER_KEY, b"x")
    with pytest.raises(OpenRefused, match="belongs to other main servers"):
        await is_shared(storage, "u1")


async def test_an_own_store_stays_with_its_cluster(storage: MemoryStorage) -> None:
    """With other main servers it is refused, or its namespaces would seem to be deleted; removing
    the mark assigns it to them."""
    await check_main(storage, "u1")
    await check_main(storage, "u1")
    with pytest.raises(OpenRefused, match=f"restow store delete --store ADDRESS {MAIN_KEY}"):
        await check_main(storage, "u2")
    await storage.commit(Transaction((), (Delete(MAIN_KEY),)))
    await check_main(storage, "u2")


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (200, {"metadata": {"uid": "u1"}}, ""),
        (200, {"metadata": {}}, "does not return the uid"),
        (404, {}, "cannot identify"),
        (500, {}, "cannot identify"),
    ],
)
async def test_which_cluster_it_is(code: int, body: dict[str, Any], why: str) -> None:
    """The uid identifies the cluster; without one the start fails with a message."""

    async def answer(
        _: str, _path: str, _headers: Mapping[str, str], _sent: bytes
    ) -> InProcessResponse:
        return InProcessResponse(code, orjson.dumps(body))

    client = ApiClient(InProcessTransport(answer), runtime=Runtime.system(), retry=NO_RETRY)
    if why:
        with pytest.raises(OpenRefused, match=why):
            await cluster_of(client)
    else:
        assert await cluster_of(client) == "u1"
    await client.close()
