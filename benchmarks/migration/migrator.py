"""`python -m benchmarks.migration.migrator`: one pass over all objects, in a separate process.

A migrator beside a server, as in production: it has its own memory and its own interpreter. It
prints its result as one line of JSON, and with `--progress` its memory after each page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from benchmarks.migration.passes import MIGRATION, MIGRATIONS, PAGE_ITEMS
from benchmarks.migration.seeding import GROUP, NEW, PLURAL
from restow.aio import Runtime
from restow.apimachinery.names import GroupVersion
from restow.client import ApiClient, ApiResource, ListOptions, read_kubeconfig
from restow.migration.migration_values import MigrationRef
from restow.migration.migrator.passes import PageDone, Pages
from restow.migration.migrator.patch_rewrite import PatchOptions, PatchRewrite, connections_for
from restow.migration.migrator.server_rewrite import ServerRewrite

WAYS = ("put", "patch", "rewrite")
OnPage = Callable[[int], None]


async def put_all(client: ApiClient, resource: ApiResource, on_page: OnPage) -> int:
    """List a page, put each object back, one after another, as existing migrators do."""
    written = 0
    options = ListOptions(limit=PAGE_ITEMS)
    async for page in client.pages(resource.resource, options=options, continue_when_expired=True):
        for item in page.items:
            await client.update(resource.resource, item)
            written += 1
        on_page(written)
    return written


async def page_by_page(pages: Pages, on_page: OnPage) -> int:
    """A pass; return the number of objects that are in the current version."""
    token, done = "", 0
    while True:
        page = await pages.page(token)
        if page.failed:
            raise SystemExit(f"failed: {page.failures[:3]}")
        done += _right(page)
        on_page(done)
        token = page.token
        if not token:
            return done


def _right(page: PageDone) -> int:
    return page.rewritten + page.unchanged + page.settled


async def _run(arguments: argparse.Namespace) -> None:
    runtime, options = Runtime.system(), PatchOptions(in_flight_max=arguments.in_flight_max)
    config = read_kubeconfig([arguments.kubeconfig])
    connections = connections_for(options)
    most = 0

    def in_flight(count: int) -> None:
        nonlocal most
        most = max(most, count)

    def on_page(done: int) -> None:
        if arguments.progress:
            print(json.dumps({"done": done, "memory_mb": memory_mb()}), flush=True)

    async with ApiClient.connect(config, runtime=runtime, connections=connections) as client:
        resource = await _find(client)
        ways: dict[str, Callable[[], Awaitable[int]]] = {
            "put": lambda: put_all(client, resource, on_page),
            "patch": lambda: page_by_page(
                PatchRewrite(
                    client, resource, runtime=runtime, options=options, in_flight=in_flight
                ),
                on_page,
            ),
            "rewrite": lambda: page_by_page(_rewriting(client, resource), on_page),
        }
        if arguments.wait:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        begin = time.perf_counter()
        objects = await ways[arguments.way]()
        seconds = time.perf_counter() - begin
    found = {"objects": objects, "seconds": seconds, "in_flight": most, "memory_mb": memory_mb()}
    print(json.dumps(found), flush=True)


def _rewriting(client: ApiClient, resource: ApiResource) -> ServerRewrite:
    version = "/".join(MIGRATIONS.split("/")[2:4])
    ref = MigrationRef(api_version=version, name=MIGRATION, uid="")
    return ServerRewrite(client, ref, resource, target_api_version=NEW, epoch=None)


async def _find(client: ApiClient) -> ApiResource:
    for each in await client.resources(GroupVersion.parse(NEW)):
        if each.name == PLURAL:
            return each
    raise SystemExit(f"the server has no {PLURAL}.{GROUP}")


def memory_mb() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.migration.migrator", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--in-flight-max", type=int, default=64)
    parser.add_argument("--progress", action="store_true", help="a line for each page")
    parser.add_argument("--wait", action="store_true", help="begin when a line arrives on stdin")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
