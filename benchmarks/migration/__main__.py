"""`python -m benchmarks.migration`: the server's own rewrite beside a list-and-put loop.

One server, the same objects, the same client. The objects are stored in the old version by the
storage layer before every pass, and all are looked at behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.api.connection import Connection
from benchmarks.api.target import of_kubeconfig
from benchmarks.coordination.processes import START_SECONDS_MAX, make_server
from benchmarks.migration.passes import (
    Foreground,
    Latencies,
    caught_up,
    list_and_put,
    prepare,
    rewrite_all,
)
from benchmarks.migration.seeding import check, seed
from restow.runtime import Runtime
from restow.storage.interface import Storage
from restow.storage.opening import open_storage
from restow.testing.etcd_process import start_etcd
from restow.testing.server_process import ServerProcess

GOALS = {"sqlite": 8, "etcd": 5}
IDLE_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.migration", description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=5000, help="values looked at in one call")
    parser.add_argument("--store", choices=["sqlite", "etcd", "both"], default="both")
    arguments = parser.parse_args()
    stores = ["sqlite", "etcd"] if arguments.store == "both" else [arguments.store]
    for store in stores:
        with tempfile.TemporaryDirectory(prefix="restow-bench-") as name:
            _measure(Path(name), store, arguments)


def _measure(directory: Path, store: str, arguments: argparse.Namespace) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(_fresh_store(directory, store))
        uvloop.run(_with_storage(address, lambda storage: seed(storage, arguments.items)))
        server = make_server(directory / "server", address, "--release", "x+2")
        stack.callback(server.kill)
        server.launch()
        server.wait_ready(seconds_max=START_SECONDS_MAX)
        uvloop.run(
            _with_storage(address, lambda storage: _compare(storage, server, store, arguments))
        )


async def _compare(
    storage: Storage, server: ServerProcess, store: str, arguments: argparse.Namespace
) -> None:
    connection = await Connection.open(of_kubeconfig(server.kubeconfig, "server"))
    await prepare(connection)
    items: int = arguments.items

    async def timed(work: Callable[[], Awaitable[int]]) -> float:
        """Objects a second."""
        await seed(storage, items)
        await caught_up(connection)
        begin = time.perf_counter()
        done = await work()
        seconds = time.perf_counter() - begin
        await check(storage, items)
        if done != items:
            raise SystemExit(f"{done} of {items} were written")
        return items / seconds

    pairs = [
        (
            await timed(lambda: rewrite_all(connection, limit=arguments.limit)),
            await timed(lambda: list_and_put(connection)),
        )
        for _ in range(arguments.rounds)
    ]
    ours, theirs = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    ratio = median(mine / other for mine, other in pairs)
    head = f"{store}, {items} objects, objects/s"
    print(f"{head:36} {'rewrite':>9} {'list+put':>9} {'ratio':>7}  goal")
    print(f"{'':36} {ours:9.0f} {theirs:9.0f} {ratio:7.1f}  ≥ {GOALS[store]}")
    beside = await Connection.open(of_kubeconfig(server.kubeconfig, "server"))
    foreground = Foreground(beside)
    await asyncio.sleep(IDLE_SECONDS)
    idle = await foreground.stop()
    beside.close()
    busy: list[Latencies] = []

    async def with_others() -> int:
        other = await Connection.open(of_kubeconfig(server.kubeconfig, "server"))
        foreground = Foreground(other)
        done = await rewrite_all(connection, limit=arguments.limit)
        busy.append(await foreground.stop())
        other.close()
        return done

    rate = await timed(with_others)
    print(f"{'requests beside it, ms':36} {'get p50':>9} {'p99':>9} {'put p50':>9} {'p99':>9}")
    for name, found in (("idle", idle), (f"during a rewrite ({rate:.0f}/s)", busy[0])):
        print(
            f"{name:36} {found.get_p50:9.2f} {found.get_p99:9.2f} {found.put_p50:9.2f}"
            f" {found.put_p99:9.2f}"
        )
    connection.close()


async def _with_storage(address: str, work: Callable[[Storage], Awaitable[None]]) -> None:
    storage = await open_storage(address, Runtime.system())
    try:
        await work(storage)
    finally:
        await storage.close()


@contextmanager
def _fresh_store(directory: Path, store: str) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:{directory / 'store.db'}"
        return
    with start_etcd(directory / "etcd", members=1, with_fsync=True) as etcd:
        yield etcd.url


if __name__ == "__main__":
    main()
