"""Prints the longest step of the event loop for each request at the limits of the server.

    python -m benchmarks.steps [--rounds N] [--many N] [NAME ...]

A step is what the loop runs between two looks at its sockets. Its time is CPU time of the loop's
thread; its calls are counted in a second pass, because the profiler takes time. The last line gives
the time of 1,000 calls, which calibrates the limit in `tests/unit/endpoints/test_bounded_steps.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client

from restow.registry.catalog import builtin_catalog
from restow.registry.custom.crds import definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import TOKEN, start_server
from tests.support.long_requests import (
    LongRequest,
    established,
    large_definition,
    long_changes,
    long_reads,
    long_writes,
    many,
    ruled_definition,
    stored,
)
from tests.support.loop_steps import measured_steps

SECONDS_MAX = 120


def ask(port: int, request: LongRequest) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = None if request.body is None else request.content
    connection.request(request.method, request.target, body, {**headers, **request.headers})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    if reply.status != request.code:
        raise SystemExit(f"{request.name}: {reply.status} instead of {request.code}")


async def main(arguments: argparse.Namespace) -> None:
    storage = MemoryStorage()
    catalog = builtin_catalog()
    server = await start_server(storage, catalog)
    for each in (ruled_definition(), large_definition(16_000)):
        catalog.host(custom_resource(definition_of(established(each), 1)))
    for request in (*stored(), *many(arguments.many)):
        await server.client.request(request.method, request.target, request.content)
    rates = []
    print(f"{'request':45} {'ms':>7} {'calls':>8} {'KiB of JSON':>12}")
    for request in (*long_writes(), *long_changes(), *long_reads()):
        if arguments.names and not any(name in request.name for name in arguments.names):
            continue
        times = []
        for _ in range(arguments.rounds):
            gc.collect()
            with measured_steps(counts_calls=False) as longest:
                await asyncio.to_thread(ask, server.port, request)
            times.append(longest.seconds)
        with measured_steps(counts_calls=True) as longest:
            await asyncio.to_thread(ask, server.port, request)
        milliseconds = sorted(times)[len(times) // 2] * 1000
        if longest.calls >= 1_000:
            rates.append(milliseconds / longest.calls * 1000)
        print(
            f"{request.name:45} {milliseconds:7.1f} {longest.calls:8}"
            f" {longest.json_bytes // 1024:12}",
            flush=True,
        )
    if rates:
        print(f"1,000 calls: {sorted(rates)[len(rates) // 2]:.2f} ms (median of long steps)")
    await server.stop()
    await storage.close()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    made.add_argument("--rounds", type=int, default=3, help="rounds, of which the median counts")
    made.add_argument("--many", type=int, default=3_000, help="objects of 10 KB for the lists")
    made.add_argument("names", nargs="*", help="parts of the names of requests")
    return made


if __name__ == "__main__":
    asyncio.run(main(parser().parse_args()))
