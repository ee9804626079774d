"""Servers with their own store, the main servers' store, and the connection between them.

Every write to the own store is checked when it commits: at that time the main servers must have an
entry of the server with the written version, and must not have agreed on another one.
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


class CheckedStorage(AuditedStorage):
    """The own store: each write must match the entry at the main servers."""

    main: Storage | None = None
    checked = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        outcome = await super().commit(transaction)
        if isinstance(outcome, Done) and self.main is not None:
            for write in transaction.writes:
                if isinstance(write, Put) and write.key.startswith(ROOT):
                    await self._check(self.main, transaction, version_of(write.value))
        return outcome

    async def _check(self, main: Storage, transaction: Transaction, version: str) -> None:
        (server_id,) = {
            parse_encoder_key(guard.key)[0]
            for guard in transaction.guards
            if isinstance(guard, ValueIs) and guard.key.startswith(ENCODERS_PREFIX)
        }
        item, epoch = await main.get(report_key(NAME)), await main.get(epoch_key(NAME))
        entries = () if item is None else decode_report(item).report.entries
        reported = {entry.server_id: entry.encoding_version for entry in entries}
        agreed = None if epoch is None else decode_epoch(epoch.value).agreement
        if reported.get(server_id) != version or (agreed is not None and agreed.version != version):
            self.broken.append(
                f"{server_id} writes {version}, reported is {reported}, agreed {agreed}"
            )
            raise PromiseBroken(self.broken[-1])
        self.checked += 1


class MainConnection:
    """A server's connection to the main servers, with injectable faults. Satisfies `MainApi`."""

    def __init__(self, reports: RemoteReports, storage: Storage) -> None:
        self._reports = reports
        self._storage = storage
        self.is_down = False
        self.loses_replies = False
        self.reported = asyncio.Event()
        """A report was accepted, whether or not its reply arrives."""
        self.replies_flow = asyncio.Event()
        """If cleared, replies are delayed."""
        self.replies_flow.set()
        self.late: list[tuple[str, str, StorageVersionEntry]] = []
        """Reports sent but not delivered while `delays_reports` is set."""
        self.delays_reports = False

    async def report(self, name: str, kind: str, entry: StorageVersionEntry) -> None:
        self._check_up()
        if self.delays_reports:
            self.late.append((name, kind, entry))
            raise NotReported("no answer")
        await self._deliver(name, kind, entry)
        self.reported.set()
        await self.replies_flow.wait()
        self._check_answer()

    async def deliver_delayed(self) -> list[Exception]:
        """Delivers the delayed reports and returns their errors."""
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
        if self.loses_replies:
            raise NotReported("the answer was lost")


class RemoteWorld:
    """Two stores: `main` with a main server, `own` for servers that report to it."""

    def __init__(self, directory: Path, *, seed: int = 1) -> None:
        (directory / "main").mkdir()
        (directory / "own").mkdir()
        self.own = World(directory / "own", seed=seed)
        self.main = World(directory / "main", kinds=("Gadget",), seed=seed + 1_000_000)
        self.clock = self.main.clock = self.own.clock
        self.storage = self.own.storage = CheckedStorage(self.own.catalogs.values())
        self.storage.main = self.main.storage
        self.store_id = ""

    async def start(self) -> Server:
        """Starts a main server."""
        runtime = Runtime.simulated("store", clock=self.clock)
        self.store_id = await ensure_store_id(self.storage, runtime)
        self.server = await self.main.started("x+2")
        self.reports = self.reports_of(self.server)
        return self.server

    def reports_of(self, server: Server) -> RemoteReports:
        return RemoteReports(server.line, server.coordinator.mirror, server.runtime)

    def connection(self) -> MainConnection:
        return MainConnection(self.reports, self.main.storage)

    def aggregated(
        self, release: str, connection: MainConnection | None = None
    ) -> tuple[Server, MainConnection]:
        """Returns a server with its own store, not started."""
        connection = connection or self.connection()
        remote = Remote(
            main=connection,
            store=self.store_id,
            is_reported=lambda resource: resource.group == GROUP,
        )
        return self.own.server(release, remote=remote), connection

    async def started(self, release: str) -> tuple[Server, MainConnection]:
        server, connection = self.aggregated(release)
        await self.own.run(server.start())
        return server, connection

    async def run(self, work: Any, *, seconds_max: float = 60.0) -> Any:
        return await self.own.run(work, seconds_max=seconds_max)

    async def report(self) -> StorageVersionEntries:
        """Returns the entries at the main servers."""
        item = await self.main.storage.get(report_key(NAME))
        return StorageVersionEntries() if item is None else decode_report(item).report

    async def encoding_versions(self) -> dict[str, str]:
        return {e.server_id: e.encoding_version for e in (await self.report()).entries}

    async def epoch(self) -> EpochRecord:
        item = await self.main.storage.get(epoch_key(NAME))
        assert item is not None
        return decode_epoch(item.value)

    async def encoder(self, server: Server) -> dict[str, Any] | None:
        """Returns the encoder key of a server in its store."""
        prefix = f"{ENCODERS_PREFIX}{server.id}/{NAME}"
        found = (await self.storage.range(Span.of_prefix(prefix))).items
        return orjson.loads(found[0].value) if found else None


@asynccontextmanager
async def open_remote_world(directory: Path, *, seed: int = 1) -> AsyncIterator[RemoteWorld]:
    """Yields two stores with a main server; any broken invariant is raised at the end."""
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
