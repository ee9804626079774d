"""`python -m benchmarks.scan`: values scanned per second, and p99 of requests beside a scan.

Rounds with and without a scan alternate, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.api.connection import Connection, fill
from benchmarks.api.target import Target, started
from tests.support.etcd_process import start_etcd

SCANS = "/apis/storage.restow.dev/v1alpha1/storagescans"
CONFIG_MAPS = "/api/v1/namespaces/bench/configmaps"
PADDING_BYTES = 700
"""With metadata and managed fields, a stored value has about 1 KiB."""
CLIENTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.scan", description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=["sqlite", "etcd", "both"], default="both")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        for store in ("sqlite", "etcd"):
            if arguments.store not in (store, "both"):
                continue
            address = f"sqlite:{directory / 'store.db'}"
            if store == "etcd":
                address = stack.enter_context(
                    start_etcd(directory / "etcd-server", with_fsync=False)
                ).url
            place = directory / store
            place.mkdir(mode=0o700)
            with started(store, place, address) as target:
                asyncio.run(_measure(target, arguments.items, arguments.rounds))


async def _measure(target: Target, items: int, rounds: int) -> None:
    await fill(target, items=items, path=CONFIG_MAPS, data={"text": "x" * PADDING_BYTES})
    scan = await Connection.open(target)
    rates: list[float] = []
    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []

    async def whole_scan() -> None:
        began = time.perf_counter()
        values = await _scan(scan)
        rates.append(values / (time.perf_counter() - began))

    for _ in range(rounds):
        await whole_scan()
    fastest = max(rates)
    for _ in range(rounds):
        alone.append(await _latencies(target, lambda: asyncio.sleep(1.0)))
        beside.append(await _latencies(target, whole_scan))
    scan.close()
    print(f"{target.name}: {items:,} objects of about 1 KiB")
    print(f"  scan alone, best of {rounds}: {fastest:,.0f} values/s")
    for name, column in (("get", 0), ("update", 1)):
        usual = median(each[column] for each in alone)
        found = median(each[column] for each in beside)
        ratio = found / usual
        print(f"  p99 of {name}: {usual:.1f} ms alone, {found:.1f} ms beside a scan: {ratio:.2f}x")


async def _scan(connection: Connection) -> int:
    token, values = "", 0
    while True:
        spec = {"continue": token} if token else {}
        code, body = await connection.send("POST", SCANS, {"spec": spec})
        if code != 201:
            raise SystemExit(f"scan: {code} {body[:200]!r}")
        status = json.loads(body)["status"]
        values += int(status["scanned"])
        token = status.get("continue", "")
        if not token:
            return values


async def _latencies(target: Target, work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """p99 of gets and updates, in milliseconds, while some work is done."""
    done = asyncio.Event()
    gets: list[float] = []
    updates: list[float] = []

    async def client(number: int) -> None:
        connection = await Connection.open(target)
        path, count = f"{CONFIG_MAPS}/item-{number:06d}", 0
        while not done.is_set():
            began = time.perf_counter()
            await connection.send("GET", path)
            gets.append(time.perf_counter() - began)
            count += 1
            obj = {"metadata": {"name": f"item-{number:06d}"}, "data": {"count": str(count)}}
            began = time.perf_counter()
            await connection.send("PUT", path, obj)
            updates.append(time.perf_counter() - began)
        connection.close()

    clients = [asyncio.create_task(client(n), name=f"client {n}") for n in range(CLIENTS)]
    await work()
    done.set()
    await asyncio.gather(*clients)
    return _p99(gets), _p99(updates)


def _p99(seconds: list[float]) -> float:
    ordered = sorted(seconds)
    return ordered[int(len(ordered) * 0.99)] * 1000


if __name__ == "__main__":
    main()
