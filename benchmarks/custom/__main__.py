"""`python -m benchmarks.custom`: the cost of a thousand CRDs, and their effect on others."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.custom import work
from benchmarks.custom.definitions import collection, definition, instance
from benchmarks.custom.work import Target
from tests.support.api_client import ApiClient
from tests.support.etcd_process import start_etcd
from tests.support.server_process import ServerProcess

CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PROBE_SECONDS: Final = 0.005
START_SECONDS_MAX: Final = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.custom", description=__doc__)
    parser.add_argument("--definitions", type=int, default=1000)
    parser.add_argument("--objects", type=int, default=2000, help="of one of them")
    parser.add_argument("--store", choices=["sqlite", "etcd"], default="sqlite")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="restow-bench-") as name,
        _store(Path(name), arguments.store) as address,
    ):
        server = ServerProcess(Path(name) / "server", store=address)
        size = len(orjson.dumps(definition(0)))
        print(f"{arguments.definitions} definitions of {size / 1024:.0f} KiB, {arguments.store}")
        try:
            _start(server, "start without definitions")
            asyncio.run(_measure(server, arguments.definitions, arguments.objects))
            server.stop()
            _start(server, "start with all of them")
            asyncio.run(_measure_warm(server, arguments.definitions))
        finally:
            server.kill()


@contextmanager
def _store(directory: Path, store: str) -> Iterator[str]:
    if store == "sqlite":
        yield f"sqlite:{directory / 'store.db'}"
        return
    with start_etcd(directory / "etcd", members=1, with_fsync=True) as etcd:
        yield etcd.url


def _start(server: ServerProcess, what: str) -> None:
    begin = time.perf_counter()
    server.launch()
    server.wait_ready(seconds_max=START_SECONDS_MAX)
    _say(what, f"{time.perf_counter() - begin:.2f} s, {_megabytes(server.pid):.0f} MB")


async def _elsewhere(what: Callable[[Target, int], float], server: ServerProcess, n: int) -> float:
    """Work in a separate process, so that it does not delay the measurement."""
    loop, target = asyncio.get_running_loop(), _target(server)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return await loop.run_in_executor(pool, what, target, n)


def _target(server: ServerProcess) -> Target:
    return Target(server.port, server.token, server.ca_pem)


def _client(server: ServerProcess) -> ApiClient:
    return _target(server).client()


async def _measure(server: ServerProcess, definitions: int, objects: int) -> None:
    quiet = await _probed(server, lambda: asyncio.sleep(3, 0.0))
    _say("others, quiet", quiet)
    begin = time.perf_counter()
    busy = await _probed(server, lambda: _elsewhere(work.create_all, server, definitions))
    _say("all created and established", f"{time.perf_counter() - begin:.1f} s")
    _say("others meanwhile", busy)
    _say("memory", f"{_megabytes(server.pid):.0f} MB")
    seen_ms = 0.0

    async def change() -> None:
        nonlocal seen_ms
        seen_ms = await _elsewhere(work.change_some, server, definitions)

    changed = await _probed(server, change)
    _say("a switch is seen in discovery", f"after {seen_ms:.0f} ms at most")
    _say("others, one changed at a time", changed)
    await _compare_writes(server, objects)


async def _measure_warm(server: ServerProcess, definitions: int) -> None:
    client = _client(server)
    try:
        for what, path, accept in (
            ("aggregated discovery", "/apis", AGGREGATED),
            ("OpenAPI v3 index", "/openapi/v3", None),
            ("OpenAPI v2", "/openapi/v2", None),
        ):
            first, size = await _timed(client, path, accept)
            again, _ = await _timed(client, path, accept)
            _say(what, f"{first:.0f} ms, again {again:.1f} ms, {size / 1024:.0f} KiB")
        first, _ = await _timed(client, collection(definitions // 2), None)
        _say("first list of a custom resource", f"{first:.1f} ms")
        _say("memory", f"{_megabytes(server.pid):.0f} MB")
    finally:
        await client.close()


async def _timed(client: ApiClient, path: str, accept: str | None) -> tuple[float, int]:
    begin = time.perf_counter()
    reply = await client.get(path, accept=accept)
    assert reply.status == 200, reply.body[:300]
    return (time.perf_counter() - begin) * 1000, len(reply.body)


async def _compare_writes(server: ServerProcess, count: int) -> None:
    client = _client(server)
    config_map = {"metadata": {}, "data": {"text": "x" * 1500}}
    rounds = []
    for turn in range(4):
        plain = await _creates(client, CONFIG_MAPS, config_map, f"plain-{turn}", count // 4)
        custom = await _creates(
            client, collection(1), instance(1, ""), f"custom-{turn}", count // 4
        )
        rounds.append((custom, plain))
    await client.close()
    ratio = sorted(custom / plain for custom, plain in rounds)[len(rounds) // 2]
    _say("creates a second, one client", f"{max(rounds)[0]:.0f}, ratio to ConfigMaps {ratio:.2f}")


async def _creates(
    client: ApiClient, path: str, body: dict[str, Any], prefix: str, count: int
) -> float:
    begin = time.perf_counter()
    for number in range(count):
        named = {**body, "metadata": {"name": f"{prefix}-{number}"}}
        reply = await client.post(path, named)
        assert reply.status == 201, reply.body[:500]
    return count / (time.perf_counter() - begin)


async def _probed(server: ServerProcess, work: Callable[[], Awaitable[object]]) -> str:
    """Gets and puts of another resource while work is done: latency of the slow ones."""
    client, seconds = _client(server), list[float]()
    reply = await client.post(CONFIG_MAPS, {"metadata": {"generateName": "probe-"}})
    path = f"{CONFIG_MAPS}/{reply.json['metadata']['name']}"
    done = asyncio.Event()

    async def probe() -> None:
        number = 0
        while not done.is_set():
            number += 1
            begin = time.perf_counter()
            if number % 5:
                await client.get(path)
            else:
                await client.patch(path, {"data": {"number": str(number)}})
            seconds.append(time.perf_counter() - begin)
            await asyncio.sleep(PROBE_SECONDS)

    async with asyncio.TaskGroup() as group:
        group.create_task(probe(), name="probe")
        await work()
        done.set()
    await client.close()
    seconds.sort()
    shown = [seconds[int(len(seconds) * share)] * 1000 for share in (0.5, 0.99)]
    return f"p50 {shown[0]:.1f} ms, p99 {shown[1]:.1f} ms, max {seconds[-1] * 1000:.0f} ms"


def _megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _say(what: str, text: str) -> None:
    print(f"{what:36} {text}", flush=True)


if __name__ == "__main__":
    main()
