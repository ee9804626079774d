"""Latency of an agreement: from the last server's report to a watch on each server.

The servers are real processes. The last one to report is in this process, so that the time of its
report is known; it reports the two versions alternately.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Self

from benchmarks.api.connection import Connection
from benchmarks.api.target import of_kubeconfig
from restow.aio import Runtime
from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.registry.resource import Resource
from restow.storage.drivers import open_storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from tests.support.server_process import ServerProcess

REPORTS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
NAME = "example.com.widgets"
AGREED = b'"commonEncodingVersion":"example.com/v1"'
SEEN_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Milliseconds from the beginning of the report until the last server has shown it."""

    p50_ms: float
    p99_ms: float
    commit_ms: float
    """The median of the report itself."""


async def measure(servers: list[ServerProcess], store: str, *, rounds: int) -> Delays:
    storage = await open_storage(store, Runtime.system())
    catalogs = {name: release_catalog(shipped_release(name)) for name in ("x+1", "x+2")}
    options = CoordinatorOptions(membership=MembershipOptions(host="bench"))
    last = Coordinator(storage, catalogs["x+2"], Runtime.system(), options)
    await last.join()
    watches = [await Watcher.open(server) for server in servers]
    delays, commits = [], []
    for _ in range(rounds):
        await last.registrar.register(_widgets(catalogs["x+2"].of_kind("example.com", "Widget")))
        await asyncio.gather(*(watch.wait_until(agreed=False) for watch in watches))
        begin = time.perf_counter()
        await last.registrar.register(_widgets(catalogs["x+1"].of_kind("example.com", "Widget")))
        commits.append(time.perf_counter() - begin)
        seen = await asyncio.gather(*(watch.wait_until(agreed=True) for watch in watches))
        delays.append(max(seen) - begin)
    for watch in watches:
        await watch.close()
    await last.close()
    await storage.close()
    return Delays(_percentile(delays, 50), _percentile(delays, 99), _percentile(commits, 50))


class Watcher:
    """Follows one report on one server."""

    def __init__(self, connection: Connection, stream: asyncio.StreamReader) -> None:
        self._connection = connection
        self._stream = stream
        self._agreed: tuple[bool, float] = (True, 0.0)
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self._follow())

    @classmethod
    async def open(cls, server: ServerProcess) -> Self:
        connection = await Connection.open(of_kubeconfig(server.kubeconfig, "server"))
        _, body = await connection.send("GET", f"{REPORTS}?limit=1")
        [version] = re.findall(rb'"metadata":{"resourceVersion":"(\d+)"', body)[:1]
        path = f"{REPORTS}?watch=true&fieldSelector=metadata.name%3D{NAME}"
        stream = await connection.begin_watch(f"{path}&resourceVersion={version.decode()}")
        return cls(connection, stream)

    async def _follow(self) -> None:
        rest = b""
        while data := await self._stream.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if NAME.encode() in line:
                    self._agreed = (AGREED in line, time.perf_counter())
                    self._changed.set()

    async def wait_until(self, *, agreed: bool) -> float:
        """The time at which the watch showed agreement, or disagreement."""
        async with asyncio.timeout(SEEN_SECONDS_MAX):
            while self._agreed[0] is not agreed:
                self._changed.clear()
                await self._changed.wait()
        return self._agreed[1]

    async def close(self) -> None:
        self._task.cancel()
        self._connection.close()


def _widgets(found: Resource | None) -> Resource:
    assert found is not None
    return found


def _percentile(seconds: list[float], percent: int) -> float:
    return sorted(seconds)[min(len(seconds) * percent // 100, len(seconds) - 1)] * 1e3
