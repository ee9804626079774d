"""`python -m benchmarks.connections`: cost of many watches and many handshakes for a server.

A Go client without HTTP/2 has a connection for each of its watches, and keeps 25 idle ones for
other requests. So, over TLS, with the watches of one user:

    memory and CPU of an idle watch, and of opening it
    CPU of a get and of an update while the watches are open, compared to a server without any, in
    alternating rounds: the ratio is the median of the rounds' ratios
    CPU of a get on a new connection, compared to that on a kept one

CPU is that of the server. Some of the watches request bookmarks, like informers.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from benchmarks.api.connection import Connection, fill
from benchmarks.api.requests import COLLECTION, DATA
from benchmarks.api.target import Target, on_other_cores, started

ITEMS: Final = 100
OPENING_AT_ONCE: Final = 16
REQUESTS: Final = 500
HANDSHAKES: Final = 100
WATCHED: Final = (
    "/api/v1/secrets",
    "/api/v1/namespaces",
    "/apis/apps/v1/deployments",
    "/apis/coordination.k8s.io/v1/leases",
)
"""Watched resources; the requests read and write objects of others."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.connections", description=__doc__)
    parser.add_argument("--watches", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the idle measurement")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        (directory / "watched").mkdir()
        (directory / "other").mkdir()
        watched = stack.enter_context(started("watched", directory / "watched", ""))
        other = stack.enter_context(started("other", directory / "other", ""))
        on_other_cores()
        uvloop.run(_measure(watched, other, arguments))


async def _measure(watched: Target, other: Target, arguments: argparse.Namespace) -> None:
    for target in (watched, other):
        await fill(target, items=ITEMS, path=COLLECTION, data=DATA)
        await _requests_cost(target)
    opened = await _report_watches(watched, arguments.watches, arguments.seconds)
    pairs = [
        (await _requests_cost(watched), await _requests_cost(other))
        for _ in range(arguments.rounds)
    ]
    for number, what in enumerate(("get", "update")):
        ratio = median(ours[number] / theirs[number] for ours, theirs in pairs)
        alone = median(theirs[number] for _, theirs in pairs)
        print(f"{what}: {alone:.0f} us without watches, {ratio:.2f} times that beside them")
    for connection in opened:
        connection.close()
    costs = [
        ((await _requests_cost(other))[0], await _new_cost(other)) for _ in range(arguments.rounds)
    ]
    kept, new = (median(each[number] for each in costs) for number in (0, 1))
    print(f"get on a kept connection: {kept:.0f} us; on a new one: {new:.0f} us")


async def _report_watches(target: Target, count: int, seconds: float) -> list[Connection]:
    """Open idle watches, and print their cost."""
    idle = await _idle_cost(target, seconds)
    memory, cpu = target.memory_mb() or 0.0, target.cpu_seconds()
    opened = await _open(target, count)
    cpu = target.cpu_seconds() - cpu
    memory = (target.memory_mb() or 0.0) - memory
    more = await _idle_cost(target, seconds) - idle
    print(f"{count} idle watches: {memory * 1024 / count:.0f} KiB each")
    print(f"  {cpu / count * 1e6:.0f} us to open one")
    print(f"  {more / count * 1e6:.1f} us a second to keep one, {more:.1%} of a core for all")
    return opened


async def _open(target: Target, count: int) -> list[Connection]:
    opening = asyncio.Semaphore(OPENING_AT_ONCE)

    async def one(number: int) -> Connection:
        path = f"{WATCHED[number % len(WATCHED)]}?watch=1&timeoutSeconds=3600"
        async with opening:
            connection = await Connection.open(target)
            await connection.begin_watch(path + "&allowWatchBookmarks=true" * (number % 2))
            return connection

    return await asyncio.gather(*(one(number) for number in range(count)))


async def _idle_cost(target: Target, seconds: float) -> float:
    """CPU per second without requests."""
    before = target.cpu_seconds()
    await asyncio.sleep(seconds)
    return (target.cpu_seconds() - before) / seconds


async def _requests_cost(target: Target) -> tuple[float, float]:
    """CPU of a get and of an update, in us."""
    connection = await Connection.open(target)
    path = f"{COLLECTION}/item-000001"
    body = {"metadata": {"name": "item-000001"}, "data": DATA}
    await connection.send("GET", path)
    begin = target.cpu_seconds()
    for _ in range(REQUESTS):
        await connection.send("GET", path)
    middle = target.cpu_seconds()
    for number in range(REQUESTS):
        changed = {**body, "data": {**DATA, "number": str(number)}}
        code, answer = await connection.send("PUT", path, changed)
        if code != 200:
            raise SystemExit(f"an update returned {code}: {answer[:200]!r}")
    end = target.cpu_seconds()
    connection.close()
    return (middle - begin) / REQUESTS * 1e6, (end - middle) / REQUESTS * 1e6


async def _new_cost(target: Target) -> float:
    """CPU of a get, including opening and closing its connection."""
    before = target.cpu_seconds()
    for _ in range(HANDSHAKES):
        connection = await Connection.open(target)
        await connection.send("GET", f"{COLLECTION}/item-000001")
        connection.close()
    return (target.cpu_seconds() - before) / HANDSHAKES * 1e6


if __name__ == "__main__":
    main()
