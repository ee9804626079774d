"""Garbage collection: never of running servers, despite late, lost or failed reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from restow.aio import Runtime, SimulatedClock
from restow.kinds.releases import load_release
from restow.registry.catalog import Catalog, release_catalog
from restow.storage.interface import Delete, Item, Key, Put, Revision, Span, Transaction
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.identity import (
    SERVERS_PREFIX,
    ServerId,
    ServerRecord,
    encode_record,
    server_key,
)
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.object_codec import (
    decode_report,
    encode_lease,
    encode_report,
    lease_key,
    report_key,
)
from restow.storageversion.records import Encoder, encode_encoder, encoder_key
from restow.storageversion.rules import VERSIONS_EQUAL, StorageVersionEntries, StorageVersionEntry
from tests.scenarios.lossy import Fate, LossyStorage
from tests.unit.storageversion.world import GROUP, write_release

WIDGETS = f"{GROUP}.widgets"
V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
LEASE_SECONDS = 15.0
OTHER = ServerId("apiserver-zzzzzzzzzzzzzzzzzzzzzzzzzz")
FOREIGN = ServerId("apiserver-c7uylvfxlbqccnk6myfkwetzze")
IDENTITY = {"apiserver.kubernetes.io/identity": "kube-apiserver"}


class Rig:
    """One server that collects, on a store with entries of other servers."""

    def __init__(self, directory: Path, storage: LossyStorage | None = None) -> None:
        self.storage = storage or LossyStorage()
        self.clock = SimulatedClock()
        runtime = Runtime.simulated(1, clock=self.clock)
        whole = release_catalog(load_release(write_release(directory / "x.yaml", "x+1")))
        kept = [r for r in whole if r.kind.pinned or r.kind.group_resource.group == GROUP]
        options = CoordinatorOptions(membership=MembershipOptions(host="h"))
        self.server = Coordinator(self.storage, Catalog(kept), runtime, options)

    async def start(self) -> None:
        await self.clock.run_until_done(self.server.start(), seconds_max=30)

    async def write(self, *writes: Put | Delete) -> None:
        for write in writes:
            await self.storage.commit(Transaction((), (write,)))
        await self.clock.settle()

    async def report(self) -> StorageVersionEntries:
        item = await self.storage.get(report_key(WIDGETS))
        assert item is not None
        return decode_report(item).report

    async def writers(self) -> set[str]:
        return {entry.server_id for entry in (await self.report()).entries}

    async def add_entry(self, server_id: ServerId, version: str = V1) -> None:
        """Adds an entry, as another server writes it."""
        item = await self.storage.get(report_key(WIDGETS))
        assert item is not None
        stored = decode_report(item)
        entry = StorageVersionEntry(
            server_id=server_id, encoding_version=version, decodable_versions=(version,)
        )
        report = StorageVersionEntries(
            entries=(*stored.report.entries, entry),
            common_version=stored.report.common_version,
            conditions=stored.report.conditions,
        )
        await self.write(Put(item.key, encode_report(report, stored.metadata)))

    async def live(self, server_id: ServerId, beat: int = 1) -> None:
        """Writes the membership record of a participating server."""
        record = ServerRecord(
            incarnation="i", component="c", host="o", mode="report",
            lease_seconds=LEASE_SECONDS, settled=True, beat=beat,
        )  # fmt: skip
        await self.write(Put(server_key(server_id), encode_record(record)))

    async def has(self, key: Key) -> bool:
        return await self.storage.get(key) is not None


@asynccontextmanager
async def open_rig(directory: Path) -> AsyncIterator[Rig]:
    rig = Rig(directory)
    try:
        yield rig
    finally:
        await rig.server.abandon()
        await rig.storage.close()


async def test_a_new_collector_waits_the_whole_lease(tmp_path: Path) -> None:
    """It has not observed the time before, however old a record is."""
    async with open_rig(tmp_path) as rig:
        await rig.live(OTHER)
        await rig.clock.advance(1000)
        await rig.start()
        await rig.clock.advance(LEASE_SECONDS - 1)
        assert await rig.has(server_key(OTHER))
        await rig.clock.advance(6)
        assert not await rig.has(server_key(OTHER))


async def test_a_renewal_in_between_keeps_the_server(tmp_path: Path) -> None:
    """The record is removed only if it is unchanged since it was observed; the watch may lag."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        await rig.live(OTHER, beat=1)
        rig.storage.break_watches()
        for beat in range(2, 30):
            await rig.live(OTHER, beat=beat)
            await rig.clock.advance(3)
        assert await rig.has(server_key(OTHER))
        rig.storage.restore_watches()
        await rig.clock.advance(10)
        assert await rig.has(server_key(OTHER))
        assert rig.server.collector.servers_removed == 0


async def test_an_error_is_never_taken_for_an_expired_lease(tmp_path: Path) -> None:
    """Failed reads and broken watches remove no server, and do not stop the collector."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        await rig.live(OTHER)
        await rig.write(
            Put(encoder_key(OTHER, WIDGETS), b'{"version":"%b","key":""}' % V1.encode())
        )
        await rig.add_entry(OTHER)
        rig.storage.reads_fail = True
        rig.storage.break_watches()
        for beat in range(2, 10):
            await rig.live(OTHER, beat=beat)
            await rig.clock.advance(5)
        rig.storage.reads_fail = False
        rig.storage.restore_watches()
        await rig.live(OTHER, beat=10)
        await rig.clock.advance(5)
        assert await rig.has(server_key(OTHER))
        assert OTHER in await rig.writers()


async def test_errors_of_the_store_do_not_end_the_collector(tmp_path: Path) -> None:
    """It continues when the store recovers: expired servers and their entries are removed."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        await rig.live(OTHER)
        await rig.write(
            Put(encoder_key(OTHER, WIDGETS), b'{"version":"%b","key":""}' % V2.encode())
        )
        await rig.add_entry(OTHER, V2)
        await rig.clock.advance(LEASE_SECONDS - 3)
        failing: list[Fate] = ["error"]
        losing: list[Fate] = ["lost"]
        rig.storage.fates = iter(failing * 8 + losing * 8)
        await rig.clock.advance(90)
        assert not await rig.has(server_key(OTHER))
        assert not await rig.has(encoder_key(OTHER, WIDGETS))
        assert await rig.writers() == {rig.server.membership.id}
        assert (await rig.report()).common_version == V1


async def test_encoder_keys_without_an_entry_are_removed(tmp_path: Path) -> None:
    """Those of removed servers only; running servers keep theirs."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        running = ServerId("apiserver-yyyyyyyyyyyyyyyyyyyyyyyyyy")
        await rig.live(running)
        value = encode_encoder(Encoder(V1))
        for server_id in (OTHER, running):
            await rig.write(Put(encoder_key(server_id, "core.nothing"), value))
        await rig.server.collector.collect()
        assert not await rig.has(encoder_key(OTHER, "core.nothing"))
        assert await rig.has(encoder_key(running, "core.nothing"))


async def test_a_foreign_server_counts_until_its_lease_is_deleted(tmp_path: Path) -> None:
    """A real kube-apiserver has a lease and writes entries, without a membership record: there is
    no
    agreement while it runs, its entry is kept, and both end with its lease."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        assert (await rig.report()).common_version == V1
        metadata = {"name": FOREIGN, "namespace": "kube-system", "labels": IDENTITY}
        lease = encode_lease(
            FOREIGN, metadata=metadata, holder="n", seconds=3600, now=rig.clock.wall()
        )
        await rig.write(Put(lease_key(FOREIGN), lease))
        await rig.add_entry(FOREIGN)
        await rig.clock.advance(60)
        report = await rig.report()
        assert FOREIGN in {entry.server_id for entry in report.entries}
        assert report.common_version is None
        equality = {condition.type: condition for condition in report.conditions}[VERSIONS_EQUAL]
        assert (equality.status, equality.reason) == ("False", "UnfencedServer")
        assert FOREIGN in equality.message
        await rig.write(Delete(lease_key(FOREIGN)))
        await rig.clock.advance(60)
        assert await rig.writers() == {rig.server.membership.id}
        assert (await rig.report()).common_version == V1


async def test_a_record_of_another_release_expires_later(tmp_path: Path) -> None:
    """A record that cannot be decoded is finally removed, but not after our own lease duration."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        await rig.write(Put(server_key(OTHER), b'{"from":"the future"}'))
        await rig.clock.advance(50)
        assert await rig.has(server_key(OTHER))
        await rig.clock.advance(20)
        assert not await rig.has(server_key(OTHER))


async def test_a_server_never_collects_itself(tmp_path: Path) -> None:
    """Also if it does not observe its own renewals for a long time."""
    async with open_rig(tmp_path) as rig:
        await rig.start()
        own = rig.server.membership.id
        rig.storage.break_watches()
        await rig.clock.advance(120)
        rig.storage.restore_watches()
        await rig.clock.advance(10)
        assert rig.server.membership.id == own
        keys = (await rig.storage.range(Span.of_prefix(SERVERS_PREFIX))).items
        assert [item.key for item in keys] == [server_key(own)]


def test_the_rig_writes_decodable_entries() -> None:
    """The entries that the helpers of this file write are decodable."""
    entry = StorageVersionEntry(server_id=OTHER, encoding_version=V1, decodable_versions=(V1,))
    value = encode_report(StorageVersionEntries(entries=(entry,)), {"name": WIDGETS})
    item = Item(report_key(WIDGETS), value, Revision(2), Revision(2))
    assert decode_report(item).report.entries == (entry,)
