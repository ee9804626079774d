"""`python -m benchmarks.migration`: both methods of the migrator, compared to list and put.

One server, the same objects. Before every pass the objects are stored in the old version by the
storage layer, and all are checked after it. The server's own rewrite and its loop are driven by a
minimal client; patches and their loop by the migrator's own, in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.api.connection import Connection
from benchmarks.api.target import of_kubeconfig
from benchmarks.coordination.processes import START_SECONDS_MAX, make_server
from benchmarks.migration.migrating import migrator
from benchmarks.migration.passes import (
    Foreground,
    Latencies,
    caught_up,
    list_and_put,
    prepare,
    rewrite_all,
)
from benchmarks.migration.seeding import check, seed
from restow.aio import Runtime
from restow.storage.drivers import open_storage
from restow.storage.interface import Storage
from tests.support.etcd_process import start_etcd
from tests.support.server_process import ServerProcess

REWRITE_GOALS = {"sqlite": 8, "etcd": 5}
PATCH_GOAL = 3
IDLE_SECONDS = 3.0

Work = Callable[[], Awaitable[tuple[int, float]]]
"""Objects, and the seconds that they took."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.migration", description=__doc__)
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=5000, help="values checked in one call")
    parser.add_argument("--in-flight-max", type=int, default=64, help="patches at once, at most")
    parser.add_argument("--store", choices=["sqlite", "etcd", "both"], default="both")
    parser.add_argument("--way", choices=["rewrite", "patch", "both"], default="both")
    arguments = parser.parse_args()
    stores = ["sqlite", "etcd"] if arguments.store == "both" else [arguments.store]
    for store in stores:
        with tempfile.TemporaryDirectory(prefix="restow-bench-") as name:
            _measure(Path(name), store, arguments)


def _measure(directory: Path, store: str, arguments: argparse.Namespace) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(_fresh_store(directory, store))
        uvloop.run(_with_storage(address, lambda storage: seed(storage, arguments.objects)))
        server = make_server(directory / "server", address, "--release", "x+2")
        stack.callback(server.kill)
        server.launch()
        server.wait_ready(seconds_max=START_SECONDS_MAX)
        bench = Bench(server, address, store, arguments)
        uvloop.run(bench.run())


@dataclass(slots=True)
class Bench:
    """One server on one store."""

    server: ServerProcess
    address: str
    store: str
    arguments: argparse.Namespace

    async def run(self) -> None:
        connection = await self.connect()
        await prepare(connection)
        connection.close()
        rows = [("idle", await self.idle())]
        if self.arguments.way != "patch":
            rows.append(await self.compare_rewrite())
        if self.arguments.way != "rewrite":
            rows.append(await self.compare_patches())
        print(f"{'requests beside it, ms':36} {'get p50':>9} {'p99':>9} {'put p50':>9} {'p99':>9}")
        for name, found in rows:
            print(
                f"{name:36} {found.get_p50:9.2f} {found.get_p99:9.2f} {found.put_p50:9.2f}"
                f" {found.put_p99:9.2f}"
            )

    async def compare_rewrite(self) -> tuple[str, Latencies]:
        connection, limit = await self.connect(), self.arguments.limit

        async def rewrite() -> tuple[int, float]:
            return await _seconds_of(rewrite_all(connection, limit=limit))

        async def put() -> tuple[int, float]:
            return await _seconds_of(list_and_put(connection))

        await self.compare("rewrite", rewrite, put, goal=REWRITE_GOALS[self.store])
        found = await self.beside("a rewrite", rewrite)
        connection.close()
        return found

    async def compare_patches(self) -> tuple[str, Latencies]:
        kubeconfig = self.server.kubeconfig
        most = str(self.arguments.in_flight_max)
        in_flight = 0

        async def patch() -> tuple[int, float]:
            nonlocal in_flight
            async with migrator(kubeconfig, "patch", "--in-flight-max", most) as one:
                done, _ = await one.run()
            in_flight = done.in_flight
            return done.objects, done.seconds

        async def put() -> tuple[int, float]:
            async with migrator(kubeconfig, "put") as one:
                done, _ = await one.run()
            return done.objects, done.seconds

        await self.compare("patches", patch, put, goal=PATCH_GOAL)
        found = await self.beside("patches", patch)
        print(f"{'':36} up to {in_flight} patches in flight")
        return found

    async def compare(
        self,
        name: str,
        ours: Work,
        theirs: Work,
        *,
        goal: int,
    ) -> None:
        """Run both alternately, with the same work; print rates and their ratio."""
        pairs = [
            (await self.timed(ours), await self.timed(theirs)) for _ in range(self.arguments.rounds)
        ]
        mine, others = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
        ratio = median(one / other for one, other in pairs)
        head = f"{self.store}, {self.arguments.objects} objects, objects/s"
        print(f"{head:36} {name:>9} {'list+put':>9} {'ratio':>7}  goal")
        print(f"{'':36} {mine:9.0f} {others:9.0f} {ratio:7.1f}  ≥ {goal}")

    async def timed(self, work: Work) -> float:
        """Objects per second; they are in the old version before, and in the new one after it."""
        objects: int = self.arguments.objects
        # Not held open meanwhile: it would follow every change, on the same cores.
        await _with_storage(self.address, lambda storage: seed(storage, objects))
        connection = await self.connect()
        await caught_up(connection)
        connection.close()
        done, seconds = await work()
        await _with_storage(self.address, lambda storage: check(storage, objects))
        if done != objects:
            raise SystemExit(f"{done} of {objects} were written")
        return objects / seconds

    async def idle(self) -> Latencies:
        connection = await self.connect()
        foreground = Foreground(connection)
        await asyncio.sleep(IDLE_SECONDS)
        found = await foreground.stop()
        connection.close()
        return found

    async def beside(self, name: str, work: Work) -> tuple[str, Latencies]:
        """Measure the latency of other requests while `work` runs."""
        busy: list[Latencies] = []

        async def with_others() -> tuple[int, float]:
            connection = await self.connect()
            foreground = Foreground(connection)
            done = await work()
            busy.append(await foreground.stop())
            connection.close()
            return done

        rate = await self.timed(with_others)
        return f"during {name} ({rate:.0f}/s)", busy[0]

    async def connect(self) -> Connection:
        return await Connection.open(of_kubeconfig(self.server.kubeconfig, "server"))


async def _seconds_of(work: Awaitable[int]) -> tuple[int, float]:
    begin = time.perf_counter()
    return await work, time.perf_counter() - begin


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
