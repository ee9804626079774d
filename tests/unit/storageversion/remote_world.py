"""Servers with a store of their own, the main servers' store, and the way between them.

Every write into the own store is judged at the moment of its commit: the main servers must say,
just then, that its server writes so, and must not have agreed on anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from restow.aio import Runtime
from restow.storage.interface import Done, Outcome, Put, Span, Storage, Transaction, ValueIs
from restow.storageversion.errors import NotReported, ReportRefused
from restow.storageversion.identity import ServerId
from restow.storageversion.object_codec import REPORTS_PREFIX, decode_report, report_key
from restow.storageversion.raw_scan import version_of
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    EpochRecord,
    decode_epoch,
    epoch_key,
    parse_encoder_key,
)
from restow.storageversion.remote_registration import Remote, ensure_store_id
from restow.storageversion.remote_reports import RemoteReports
from restow.storageversion.rules import StorageVersionEntries, StorageVersionEntry
from tests.support.storageversion_audit import AuditedStorage, PromiseBroken
from tests.unit.storageversion.world import GROUP, Server, World

NAME = f"{GROUP}.widgets"
ROOT = f"/registry/{GROUP}/widgets/"
V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"


class JudgedStorage(AuditedStorage):
    """The own store: no write commits that the main servers do not tell of."""

    main: Storage | None = None
    judged = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        outcome = await super().commit(transaction)
        if isinstance(outcome, Done) and self.main is not None:
            for write in transaction.writes:
                if isinstance(write, Put) and write.key.startswith(ROOT):
                    await self._judge(self.main, transaction, version_of(write.value))
        return outcome

    async def _judge(self, main: Storage, transaction: Transaction, version: str) -> None:
        (server_id,) = {
            parse_encoder_key(guard.key)[0]
            for guard in transaction.guards
            if isinstance(guard, ValueIs) and guard.key.startswith(ENCODERS_PREFIX)
        }
        item, epoch = await main.get(report_key(NAME)), await main.get(epoch_key(NAME))
        entries = () if item is None else decode_report(item).report.entries
        said = {entry.server_id: entry.encoding_version for entry in entries}
        agreed = None if epoch is None else decode_epoch(epoch.value).agreement
        if said.get(server_id) != version or (agreed is not None and agreed.version != version):
            self.broken.append(f"{server_id} writes {version}, said is {said}, agreed {agreed}")
            raise PromiseBroken(self.broken[-1])
        self.judged += 1


class Way:
    """How a server reaches the main servers. Satisfies `MainApi`; it can be broken."""

    def __init__(self, reports: RemoteReports, storage: Storage) -> None:
        self._reports = reports
        self._storage = storage
        self.is_down = False
        self.loses_answers = False
        self.reported = asyncio.Event()
        """Something was taken, whether or not its answer comes back."""
        self.is_slow = asyncio.Event()
        """Cleared: answers do not come back."""
        self.is_slow.set()
        self.late: list[tuple[str, str, StorageVersionEntry]] = []
        """Reports that have been sent and are still on their way, if `keeps` says so."""
        self.keeps = False

    async def report(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        self._check_up()
        if self.keeps:
            self.late.append((name, kind, entry))
            raise NotReported("no answer")
        await self._deliver(name, kind, entry)
        self.reported.set()
        await self.is_slow.wait()
        self._check_answer()

    async def deliver_late(self) -> list[Exception]:
        """Let what was kept back arrive; what it met with."""
        met: list[Exception] = []
        for name, kind, entry in self.late:
            try:
                await self._deliver(name, kind, entry)
            except NotReported as error:
                met.append(error)
        self.late.clear()
        return met

    async def _deliver(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        try:
            await self._reports.report(name, kind, entry)
        except ReportRefused as error:
            raise NotReported(str(error)) from error

    async def withdraw(self, name: str, *, server_id: ServerId, store: str, sequence: int) -> None:
        self._check_up()
        await self._reports.withdraw(name, server_id=server_id, store=store, sequence=sequence)
        self._check_answer()

    async def entries(self) -> Mapping[str, tuple[StorageVersionEntry, ...]]:
        self._check_up()
        found = await self._storage.range(Span.of_prefix(REPORTS_PREFIX))
        return {
            item.key.removeprefix(REPORTS_PREFIX): decode_report(item).report.entries
            for item in found.items
        }

    async def entries_of(self, name: str) -> tuple[StorageVersionEntry, ...]:
        return (await self.entries()).get(name, ())

    def _check_up(self) -> None:
        if self.is_down:
            raise NotReported("the main servers are down")

    def _check_answer(self) -> None:
        if self.loses_answers:
            raise NotReported("the answer was lost")


class RemoteWorld:
    """Two stores: `main` with a main server, `own` for servers that report there."""

    def __init__(self, directory: Path, *, seed: int = 1) -> None:
        (directory / "main").mkdir()
        (directory / "own").mkdir()
        self.own = World(directory / "own", seed=seed)
        self.main = World(directory / "main", kinds=("Gadget",), seed=seed + 1_000_000)
        self.clock = self.main.clock = self.own.clock
        self.storage = self.own.storage = JudgedStorage(self.own.catalogs.values())
        self.storage.main = self.main.storage
        self.store_id = ""

    async def start(self) -> Server:
        """Start a main server."""
        runtime = Runtime.simulated("store", clock=self.clock)
        self.store_id = await ensure_store_id(self.storage, runtime)
        self.server = await self.main.started("x+2")
        self.reports = self.reports_of(self.server)
        return self.server

    def reports_of(self, server: Server) -> RemoteReports:
        return RemoteReports(server.line, server.coordinator.mirror, server.runtime)

    def way(self) -> Way:
        return Way(self.reports, self.main.storage)

    def aggregated(self, release: str, way: Way | None = None) -> tuple[Server, Way]:
        """A server with its own store, not started."""
        way = way or self.way()
        remote = Remote(
            main=way, store=self.store_id, is_reported=lambda resource: resource.group == GROUP
        )
        return self.own.server(release, remote=remote), way

    async def started(self, release: str) -> tuple[Server, Way]:
        server, way = self.aggregated(release)
        await self.own.run(server.start())
        return server, way

    async def run(self, work: Any, *, seconds_max: float = 60.0) -> Any:
        return await self.own.run(work, seconds_max=seconds_max)

    async def report(self) -> StorageVersionEntries:
        """What the main servers say."""
        item = await self.main.storage.get(report_key(NAME))
        return StorageVersionEntries() if item is None else decode_report(item).report

    async def said(self) -> dict[str, str]:
        return {e.server_id: e.encoding_version for e in (await self.report()).entries}

    async def epoch(self) -> EpochRecord:
        item = await self.main.storage.get(epoch_key(NAME))
        assert item is not None
        return decode_epoch(item.value)

    async def encoder(self, server: Server) -> dict[str, Any] | None:
        """The encoder key of a server in its store."""
        prefix = f"{ENCODERS_PREFIX}{server.id}/{NAME}"
        found = (await self.storage.range(Span.of_prefix(prefix))).items
        return orjson.loads(found[0].value) if found else None


@asynccontextmanager
async def open_remote_world(directory: Path, *, seed: int = 1) -> AsyncIterator[RemoteWorld]:
    """Two stores and a main server; whatever promise was broken is raised at the end."""
    world = RemoteWorld(directory, seed=seed)
    try:
        await world.start()
        yield world
        world.storage.check()
        world.main.storage.check()
    finally:
        for server in (*world.own.servers, *world.main.servers):
            await server.kill()
        await world.storage.close()
        await world.main.storage.close()
