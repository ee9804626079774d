"""Watch fan-out: many watchers in separate processes, and writers that keep them busy."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import uvloop

from benchmarks.api.connection import Connection
from benchmarks.api.requests import COLLECTION, DATA
from benchmarks.api.target import Target, on_other_cores

PROCESSES = 2
WRITERS = 8
OPENING_AT_ONCE = 32


def measure(target: Target, *, watchers: int, seconds: float) -> tuple[float, float]:
    """Events per second that all watchers together received, and server CPU per event, in us.

    Writers update as fast as the server allows, so the watchers are always behind.
    """
    spawn = multiprocessing.get_context("spawn")
    barrier, stop = spawn.Barrier(PROCESSES + 1), spawn.Event()
    counts: Any = spawn.Queue()
    each = watchers // PROCESSES
    processes = [
        spawn.Process(target=_watch_many, args=(target, each, barrier, stop, counts))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    barrier.wait(120)
    before, begin = target.cpu_seconds(), time.perf_counter()
    uvloop.run(_write(target, seconds))
    lasted, cpu = time.perf_counter() - begin, target.cpu_seconds() - before
    stop.set()
    events = sum(counts.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(30)
    return events / lasted, cpu / max(events, 1) * 1e6


def _watch_many(target: Target, count: int, barrier: Barrier, stop: Event, counts: Any) -> None:
    on_other_cores()
    uvloop.run(_watch(target, count, barrier, stop, counts))


async def _watch(target: Target, count: int, barrier: Barrier, stop: Event, counts: Any) -> None:
    path = f"{COLLECTION}?watch=true&timeoutSeconds=600"
    seen = 0
    opening = asyncio.Semaphore(OPENING_AT_ONCE)

    connections: list[Connection] = []  # a stream without its writer would be closed

    async def begin() -> asyncio.StreamReader:
        async with opening:
            connection = await Connection.open(target)
            connections.append(connection)
            version = (await connection.send("GET", f"{COLLECTION}?limit=1"))[1]
            number = version.partition(b'"resourceVersion":"')[2].partition(b'"')[0].decode()
            return await connection.begin_watch(f"{path}&resourceVersion={number}")

    async def follow(stream: asyncio.StreamReader) -> None:
        nonlocal seen
        while data := await stream.read(1 << 18):
            seen += data.count(b'{"type":')

    streams = await asyncio.gather(*(begin() for _ in range(count)))
    tasks = [asyncio.ensure_future(follow(stream)) for stream in streams]
    await asyncio.to_thread(barrier.wait, 120)
    seen = 0
    await asyncio.to_thread(stop.wait, 600)
    counts.put(seen)
    for task in tasks:
        task.cancel()
    for connection in connections:
        connection.close()


async def _write(target: Target, seconds: float) -> None:
    deadline = time.perf_counter() + seconds

    async def update(number: int) -> None:
        connection = await Connection.open(target)
        count = 0
        while time.perf_counter() < deadline:
            count += 1
            name = f"item-{number:06d}"
            obj = {
                "metadata": {"name": name, "annotations": {"n": str(count)}},
                "data": DATA,
            }
            code, body = await connection.send("PUT", f"{COLLECTION}/{name}", obj)
            if code != 200:
                raise SystemExit(f"{target.name}: update: {code} {body[:200]!r}")
        connection.close()

    await asyncio.gather(*(update(number) for number in range(WRITERS)))
