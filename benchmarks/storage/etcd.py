"""etcd: guarded puts through the driver, compared to a bare `grpc.aio` loop of the same request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc.aio

from benchmarks.rounds import Comparison, measure_both, rate
from benchmarks.storage import watches, workload
from restow.aio import Runtime
from restow.storage.etcd import EtcdOptions, EtcdStorage, open_etcd
from restow.storage.etcd.messages import COMPARE_MOD, TXN, TxnRequest
from restow.storage.interface import Absent, Guard, Key, Revision, RevisionIs
from tests.support.etcd_process import start_etcd

WRITERS = 64


async def measure_puts(directory: Path, *, rounds: int, each: int) -> Comparison:
    """Puts per second, 64 in flight, both on one server."""
    names = count()
    async with _server(directory / "etcd-puts") as (storage, endpoint):
        channel = grpc.aio.insecure_channel(endpoint)
        call = channel.unary_unary(
            TXN.path,
            request_serializer=TXN.request.SerializeToString,
            response_deserializer=TXN.response.FromString,
        )

        async def ours() -> float:
            name = str(next(names))
            work = workload.guarded_puts(storage, writers=WRITERS, each=each, name=name)
            return await rate(work, operations=WRITERS * each)

        async def theirs() -> float:
            name = str(next(names))
            keys = [Key(f"{workload.PREFIX}{name}-{number}") for number in range(WRITERS)]
            work = asyncio.gather(*(_bare_puts(call, key, each) for key in keys))
            return await rate(work, operations=WRITERS * each)

        found = await measure_both(ours, theirs, rounds=rounds)
        await channel.close()
        return found


async def measure_watch(directory: Path, *, events: int) -> watches.WatchRates:
    async with _server(directory / "etcd-watch") as (storage, _):
        return await watches.measure_watch(storage, events=events, name="w")


@asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[tuple[EtcdStorage, str]]:
    with start_etcd(directory, members=1, with_fsync=True) as etcd:
        storage = await open_etcd(EtcdOptions(endpoints=etcd.endpoints), Runtime.system())
        try:
            yield storage, etcd.endpoints[0]
        finally:
            await storage.close()


async def _bare_puts(call: Any, key: Key, each: int) -> None:
    guard: Guard = Absent(key)
    for _ in range(each):
        response = await call(_bare_request(key, guard))
        assert response.succeeded
        guard = RevisionIs(key, Revision(response.header.revision))


def _bare_request(key: Key, guard: Guard) -> Any:
    """The driver's request, without what it adds to handle lost replies."""
    name = key.encode()
    request = TxnRequest()
    revision = guard.revision if isinstance(guard, RevisionIs) else 0
    request.compare.add(target=COMPARE_MOD, key=name, mod_revision=revision)
    put = request.success.add().request_put
    put.key, put.value = name, workload.VALUE
    request.failure.add().request_range.key = name
    return request
