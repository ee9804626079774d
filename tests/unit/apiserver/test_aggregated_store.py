"""Whose a store is, as an aggregated server finds out: the main servers', its own, or of others."""

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
    """It is shared if it has the very namespace of the main servers; another is refused."""
    assert not await is_shared(storage, "u1")
    await put(storage, NAMESPACE_KEY, namespace("u1"))
    assert await is_shared(storage, "u1")
    with pytest.raises(OpenRefused, match="it belongs to another cluster"):
        await is_shared(storage, "u2")


async def test_a_store_of_main_servers_is_nobodys_own(storage: MemoryStorage) -> None:
    """Their mark is enough, even before there is a namespace."""
    await put(storage, CLUSTER_KEY, b"x")
    with pytest.raises(OpenRefused, match="belongs to main servers"):
        await is_shared(storage, "u1")


async def test_an_own_store_stays_with_its_cluster(storage: MemoryStorage) -> None:
    """Behind other main servers it is refused, or its namespaces would seem to be gone; whoever
    takes the mark away gives it to them."""
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
        (200, {"metadata": {}}, "does not say which cluster"),
        (404, {}, "cannot be asked"),
        (500, {}, "cannot be asked"),
    ],
)
async def test_which_cluster_it_is(code: int, body: dict[str, Any], why: str) -> None:
    """The uid tells; without one the start is refused with a sentence."""

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
