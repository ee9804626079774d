"""Two ways to rewrite all objects, by the same client: the server's own, and list and put."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from benchmarks.api.connection import Connection
from benchmarks.migration.seeding import GROUP, NAMESPACE, PLURAL

MIGRATIONS = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations"
MIGRATION = "bench"
WIDGETS = f"/apis/{GROUP}/v2/namespaces/{NAMESPACE}/{PLURAL}"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PAGE_ITEMS = 500


async def prepare(connection: Connection) -> None:
    """Create the migration, and an object for the concurrent requests."""
    resource = {"group": GROUP, "version": "v2", "resource": PLURAL}
    migration = {"metadata": {"name": MIGRATION}, "spec": {"resource": resource}}
    config_map = {"metadata": {"name": "beside"}, "data": {"count": "0"}}
    for path, obj in ((MIGRATIONS, migration), (CONFIG_MAPS, config_map)):
        code, body = await connection.send("POST", path, obj)
        if code != 201:
            raise SystemExit(f"{path}: {code} {body[:300]!r}")


async def caught_up(connection: Connection) -> None:
    """Wait until the server's cache has all changes of the store: a get reads nothing older."""
    code, body = await connection.send("GET", f"{WIDGETS}/item-000000")
    if code != 200:
        raise SystemExit(f"get: {code} {body[:300]!r}")


async def rewrite_all(connection: Connection, *, limit: int) -> int:
    """Rewrite all by the subresource `rewrite`, page by page; return the number of objects."""
    token, rewritten = "", 0
    while True:
        code, body = await connection.send(
            "POST", f"{MIGRATIONS}/{MIGRATION}/rewrite", {"limit": limit, "continue": token}
        )
        if code != 200:
            raise SystemExit(f"rewrite: {code} {body[:300]!r}")
        found = json.loads(body)
        if found["failed"]:
            raise SystemExit(f"rewrite: {found['failed'][:3]}")
        rewritten += int(found["rewritten"]) + int(found["settled"])
        token = found["continue"]
        if not token:
            return rewritten


async def list_and_put(connection: Connection) -> int:
    """List and put one object after another, like a generic migrator; return their number."""
    token, written = "", 0
    while True:
        code, body = await connection.send("GET", f"{WIDGETS}?limit={PAGE_ITEMS}&continue={token}")
        if code != 200:
            raise SystemExit(f"list: {code} {body[:300]!r}")
        found = json.loads(body)
        for obj in found["items"]:
            code, body = await connection.send("PUT", f"{WIDGETS}/{obj['metadata']['name']}", obj)
            if code not in (200, 409):
                raise SystemExit(f"put: {code} {body[:300]!r}")
            written += 1
        token = found["metadata"].get("continue") or ""
        if not token:
            return written


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of sequential requests, in milliseconds."""

    get_p50: float
    get_p99: float
    put_p50: float
    put_p99: float


class Foreground:
    """Requests of another client: a get and an update alternately, until stopped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._gets: list[float] = []
        self._puts: list[float] = []
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> Latencies:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()
        return Latencies(
            _percentile(self._gets, 50),
            _percentile(self._gets, 99),
            _percentile(self._puts, 50),
            _percentile(self._puts, 99),
        )

    async def _run(self) -> None:
        path, number = f"{CONFIG_MAPS}/beside", 0
        while True:
            number += 1
            obj = {"metadata": {"name": "beside"}, "data": {"count": str(number)}}
            await self._timed(self._gets, "GET", path, None)
            await self._timed(self._puts, "PUT", path, obj)

    async def _timed(self, found: list[float], method: str, path: str, obj: object) -> None:
        begin = time.perf_counter()
        code, body = await self._connection.send(method, path, obj)
        found.append(time.perf_counter() - begin)
        if code != 200:
            raise SystemExit(f"{method}: {code} {body[:300]!r}")


def _percentile(seconds: list[float], percent: int) -> float:
    if not seconds:
        return 0.0
    return sorted(seconds)[min(len(seconds) * percent // 100, len(seconds) - 1)] * 1e3
