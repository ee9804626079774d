"""Abandoned requests: whatever was asked, and however the client left, nothing is kept for it."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from restow.aggregator.backends import ClientCertificate
from restow.httpserver import Limits, TlsFiles, TlsMaterial
from restow.httpserver.connection_classes import ConnectionClasses
from restow.storage.memory import MemoryStorage
from tests.conformance.aggregation.proxy.proxies import HOST_NAME, Rig, join
from tests.conformance.api.rights import at, give, rule
from tests.conformance.api.servers import CONFIG_MAPS, config_map, start_server
from tests.conformance.limits.abandoning import abandon
from tests.conformance.limits.servers import Hold, until
from tests.support.aggregated_backend import AggregatedBackend, Asked, BackendConnection, echo
from tests.support.api_client import ApiClient
from tests.support.certificates import CertificateFiles, make_certificate

REQUESTS = 150
AT_ONCE = 25
BUSY = 1e-9
"""A work budget that queues nearly everything."""
LIMITS = Limits(
    head_seconds=0.3,
    body_seconds=0.3,
    idle_seconds=0.4,
    stall_seconds=0.4,
    linger_seconds=0.1,
    answer_seconds=0.5,
    handshake_seconds=1,
)


async def script(asked: Asked, line: BackendConnection) -> None:
    """A backend that answers, hangs, streams, or breaks off."""
    if "cut" in asked.target:
        line.abort()
    elif "hang" in asked.target:
        await line.closed()
    elif asked.all("upgrade"):
        await line.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n")
        await line.write(b"Upgrade: %b\r\n\r\nhello" % asked.all("upgrade")[0].encode())
        await line.closed()
    elif "watch" in asked.target:
        await line.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await line.chunk(b'{"type":"BOOKMARK","object":{}}\n')
        await line.closed()
    else:
        await echo(asked, line)


@dataclass(slots=True)
class World:
    """A server, its backend, and the hold on some of its writes."""

    rig: Rig
    hold: Hold
    tls: ssl.SSLContext | None

    @property
    def port(self) -> int:
        return self.rig.server.port

    def counts(self) -> dict[str, object]:
        """Everything that is taken for a request or a connection, and must be returned."""
        server = self.rig.server
        shared = server.listener._shared
        counters, classes, work = shared.counters, shared.classes, shared.work
        flights = server.assembly.app.in_flight
        pools = (flights.reads, flights.writes, flights.streams, flights.unauthenticated)
        return {
            "connections": (counters.connections_open, len(shared.connections)),
            "addresses": dict(shared.addresses),
            "classes": _class_counts(classes),
            "handshakes": counters.handshakes_open,
            "pending responses": counters.answers_pending,
            "streams": counters.streams_open,
            "tunnels": counters.tunnels_open,
            "bytes": shared.budgets.bytes_held,
            "tasks": (shared.tasks.running, len(shared.suspended_writes)),
            "queued work": [len(each) for each in (work.unauthenticated, work.authenticated)],
            "slots": [(pool.taken, dict(pool.held)) for pool in pools],
            "watchers": _fan_outs(self.rig),
            "proxied": self.rig.proxy.streams_open,
            "held writes": self.hold.waiting,
        }


def _class_counts(classes: ConnectionClasses) -> tuple[object, ...]:
    counts = (classes.unauthenticated, classes.authenticated, classes.privileged)
    return (*counts, dict(classes.by_user), dict(classes._unauthenticated))


def _fan_outs(rig: Rig) -> dict[str, int]:
    return {root: len(each) for root, each in rig.server.assembly.server.fan_outs.items()}


@asynccontextmanager
async def world(
    directory: Path, certificates: CertificateFiles | None, limits: Limits
) -> AsyncIterator[World]:
    front = make_certificate(directory / "front", name="front-proxy-client")
    backend = await AggregatedBackend.start(
        directory / "backend", host_names=[HOST_NAME], client_ca_file=front.ca_file
    )
    backend.script = script
    tls, material = None, None
    if certificates is not None:
        tls = ssl.create_default_context(cafile=certificates.ca_file)
        files = TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file)
        material = TlsMaterial(files)
    hold, storage = Hold(), MemoryStorage()
    server = await start_server(storage, admission=[hold], listener_limits=limits, tls=material)
    server.client = ApiClient(server.port, token="masters-token", tls=tls)
    certificate = ClientCertificate(front.cert_file.read_text(), front.key_file.read_text())
    rig = join(server, backend, certificate=certificate)
    try:
        await give(server, "everything", rule("*", "*", "*"), at("*", "*"))
        await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        for name in ("a", "b"):
            created = await server.client.post(CONFIG_MAPS, config_map(name, {"k": "x" * 500_000}))
            assert created.status == 201
        await server.client.close()
        yield World(rig, hold, tls)
    finally:
        hold.go.set()
        await rig.stop()
        await storage.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("is_tls", [False, True])
async def test_abandoned_requests_leave_nothing(
    tmp_path: Path, certificates: CertificateFiles, *, seed: int, is_busy: bool, is_tls: bool
) -> None:
    """Requests of every kind are sent wholly or in part, and abandoned in every way, while work is
    queued or not: afterwards every count is what it was before, and no task or file is left."""
    limits = LIMITS
    if is_busy:
        limits = Limits(
            **{name: getattr(LIMITS, name) for name in LIMITS.__slots__}
            | {"unauthenticated_work_seconds": BUSY, "authenticated_work_seconds": BUSY}
        )
    async with world(tmp_path, certificates if is_tls else None, limits) as found:
        await until(lambda: found.rig.server.listener.counters.connections_open == 0)
        before, tasks = found.counts(), len(asyncio.all_tasks())
        files = open_files()
        draw = random.Random(seed)
        done: list[str] = []

        async def go_on(own: random.Random) -> None:
            for _ in range(REQUESTS // AT_ONCE):
                done.append(await abandon(found.port, own, found.tls))

        each_own = [random.Random(draw.random()) for _ in range(AT_ONCE)]
        await asyncio.gather(*(go_on(own) for own in each_own))
        found.hold.go.set()
        try:
            await until(lambda: found.counts() == before)
        except TimeoutError:
            now = found.counts()
            left = {name: (before[name], now[name]) for name in now if now[name] != before[name]}
            pytest.fail(f"seed {seed}, before and now: {left}; {sorted(set(done))}")
        found.rig.backends.settle({found.rig.api.name: ()})  # connections that it keeps
        await until(lambda: found.rig.backend.connections_open == 0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: open_files() <= files)
