"""`python -m benchmarks.migration.long`: a million objects, and the memory of the migrator.

The objects are put into a SQLite store in the old version, below the API. Then a migrator in a
separate process lets a server rewrite them, page by page, and reports its memory after each page.
It must not grow with the number of objects that it has processed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.api.connection import Connection
from benchmarks.api.target import Target, of_kubeconfig
from benchmarks.coordination.processes import START_SECONDS_MAX, make_server
from benchmarks.migration.migrating import PassDone, migrator
from benchmarks.migration.passes import prepare
from benchmarks.migration.seeding import check, seed
from restow.aio import Runtime
from restow.storage.drivers import open_storage
from tests.support.server_process import ServerProcess

ROWS = 10
GROWTH_MB_MAX = 8.0
"""Allowed growth from the first tenth of the objects to the last; more is not noise."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.migration.long", description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--way", choices=["rewrite", "patch"], default="rewrite")
    parser.add_argument(
        "--directory", type=Path, help="of the store: a million objects take gigabytes"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restow-bench-", dir=arguments.directory) as name:
        _measure(Path(name), arguments)


def _measure(directory: Path, arguments: argparse.Namespace) -> None:
    objects: int = arguments.objects
    address = f"sqlite:{directory / 'store.db'}"
    begin = time.perf_counter()
    uvloop.run(_seed(address, objects))
    seconds = time.perf_counter() - begin
    print(f"{objects} objects stored in the old version in {seconds:.0f} s", flush=True)
    server = make_server(directory / "server", address, "--release", "x+2")
    server.launch()
    try:
        server.wait_ready(seconds_max=START_SECONDS_MAX)
        done, pages = uvloop.run(_migrate(server, arguments.way))
        assert server.process is not None
        target = replace(of_kubeconfig(server.kubeconfig, "server"), pid=server.process.pid)
        _print(done, pages, target, way=arguments.way)
    finally:
        server.kill()
    uvloop.run(_check(address, objects))
    if done.objects != objects:
        raise SystemExit(f"{done.objects} of {objects} were rewritten")
    print("every stored value is in the new version")


async def _seed(address: str, objects: int) -> None:
    storage = await open_storage(address, Runtime.system())
    await seed(storage, objects)
    await storage.close()


async def _check(address: str, objects: int) -> None:
    storage = await open_storage(address, Runtime.system())
    await check(storage, objects)
    await storage.close()


async def _migrate(server: ServerProcess, way: str) -> tuple[PassDone, list[dict[str, Any]]]:
    connection = await Connection.open(of_kubeconfig(server.kubeconfig, "server"))
    await prepare(connection)
    connection.close()
    async with migrator(server.kubeconfig, way, "--progress") as one:
        return await one.run()


def _print(done: PassDone, pages: list[dict[str, Any]], target: Target, *, way: str) -> None:
    print(f"{way}: {done.objects} objects in {done.seconds:.0f} s, {done.rate:.0f}/s")
    print(f"{'objects done':>14} {'migrator, MB':>14}")
    step = max(done.objects // ROWS, 1)
    rows = {page["done"] // step: page for page in reversed(pages)}
    shown = [rows[number] for number in sorted(rows)]
    for row in shown:
        print(f"{row['done']:14} {row['memory_mb']:14.1f}")
    growth = shown[-1]["memory_mb"] - shown[0]["memory_mb"]
    verdict = "constant" if growth <= GROWTH_MB_MAX else "GROWS"
    print(f"from the first row to the last: {growth:+.1f} MB: {verdict}")
    print(f"the server has {target.memory_mb() or 0:.0f} MB")


if __name__ == "__main__":
    main()
