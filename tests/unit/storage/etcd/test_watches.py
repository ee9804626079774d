"""Watches: broken and silent streams, compaction, the backlog, large revisions."""

import asyncio

import pytest

from restow.aio import Runtime
from restow.storage.errors import Compacted, StorageClosed
from restow.storage.etcd import EtcdStorage
from restow.storage.etcd.stream import EventStream
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    EVERYTHING,
    Done,
    Event,
    Key,
    Put,
    Revision,
    Span,
    Transaction,
    Watch,
)
from tests.support.etcd_process import EtcdCluster
from tests.support.tcp_proxy import TcpProxy
from tests.unit.storage.etcd.conftest import Opener


async def _put(storage: EtcdStorage, key: str, value: bytes = b"1") -> Revision:
    outcome = await storage.commit(Transaction(writes=(Put(Key(key), value),)))
    assert isinstance(outcome, Done)
    return outcome.revision


async def _next(watch: Watch) -> list[Event]:
    async with asyncio.timeout(20):
        return list((await anext(watch)).events)


async def test_compaction_while_disconnected_ends_the_watch(
    etcd: EtcdCluster, runtime: Runtime, opened: Opener
) -> None:
    """A watch that missed compacted changes raises, and a new one works."""
    async with (
        TcpProxy(etcd.members[0].client_port, runtime) as proxy,
        opened(proxy.address) as behind,
        opened(*etcd.endpoints) as direct,
    ):
        watch = behind.watch(Span.of_prefix("/compacted/"), after=await behind.revision())
        first = await _put(direct, "/compacted/a")
        assert [event.revision for event in await _next(watch)] == [first]
        proxy.refuses = True
        proxy.cut()
        last = Revision(0)
        for _ in range(5):
            last = await _put(direct, "/compacted/a")
        await direct.compact(last)
        proxy.heal()
        with pytest.raises(Compacted) as caught:
            await _next(watch)
        assert caught.value.compacted == last
        again = behind.watch(Span.of_prefix("/compacted/"), after=last)
        newest = await _put(direct, "/compacted/a")
        assert [event.revision for event in await _next(again)] == [newest]


async def test_a_broken_stream_goes_on_where_it_was(
    etcd: EtcdCluster, runtime: Runtime, opened: Opener
) -> None:
    """Changes during a broken connection arrive after it, once and in order."""
    async with (
        TcpProxy(etcd.members[0].client_port, runtime) as proxy,
        opened(proxy.address) as behind,
        opened(*etcd.endpoints) as direct,
    ):
        watch = behind.watch(Span.of_prefix("/broken/"), after=await behind.revision())
        expected: list[Revision] = []
        seen: list[Revision] = []
        for round_number in range(5):
            expected.append(await _put(direct, "/broken/a"))
            proxy.refuses = round_number % 2 == 0
            proxy.cut()
            expected.append(await _put(direct, "/broken/b"))
            proxy.heal()
            while len(seen) < len(expected):
                seen += [event.revision for event in await _next(watch)]
        assert seen == expected


async def test_a_silent_connection_is_noticed_by_pings(
    etcd: EtcdCluster, runtime: Runtime, opened: Opener
) -> None:
    """A silently broken connection is closed by failed pings, even without requests."""
    async with (
        TcpProxy(etcd.members[0].client_port, runtime) as proxy,
        opened(
            proxy.address,
            keepalive_seconds=1.0,
            keepalive_timeout_seconds=0.5,
            request_timeout_seconds=1.0,
        ) as behind,
        opened(*etcd.endpoints) as direct,
    ):
        watch = behind.watch(Span.of_prefix("/silent/"), after=await behind.revision())
        await _put(direct, "/silent/a")
        await _next(watch)
        proxy.drops_replies = proxy.drops_requests = True
        revision = await _put(direct, "/silent/b")
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(_next(watch))
        await asyncio.sleep(2.5)
        proxy.heal()
        assert [event.revision for event in await waiting] == [revision]


async def test_a_silent_stream_is_replaced_when_a_revision_is_expected(
    etcd: EtcdCluster, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that delivers nothing although the store has advanced is reopened."""
    streams: list[EventStream] = []
    read = EventStream.read

    async def read_or_hang(self: EventStream) -> list[RevisionEvents]:
        if self not in streams:
            streams.append(self)
        if self is streams[0]:
            await self.receive()  # discards the message
            await self.receive()
        return await read(self)

    monkeypatch.setattr(EventStream, "read", read_or_hang)
    async with opened(*etcd.endpoints, stall_timeout_seconds=0.2) as storage:
        watch = storage.watch(EVERYTHING, after=await storage.revision())
        await asyncio.sleep(0.1)
        revision = await _put(storage, "/stalled/a")
        watch.expect(revision)
        assert [event.revision for event in await _next(watch)] == [revision]
        assert len(streams) == 2


async def test_the_backlog_is_complete_while_writes_go_on(
    etcd: EtcdCluster, opened: Opener
) -> None:
    """A watch from an old revision yields every change once, then continues with new ones."""
    async with opened(*etcd.endpoints) as writer, opened(*etcd.endpoints) as reader:
        start = await writer.revision()
        for _ in range(20):
            await asyncio.gather(*(_put(writer, f"/backlog/{n}") for n in range(100)))
        assert await reader.revision() == start + 2000
        watch = reader.watch(Span.of_prefix("/backlog/"), after=start)
        writes = asyncio.gather(*(_put(writer, f"/backlog/{n}") for n in range(500)))
        seen: list[Revision] = []
        while len(seen) < 2500:
            seen += [event.revision for event in await _next(watch)]
        await writes
        assert seen == list(range(start + 1, start + 2501))


async def test_a_revision_larger_than_one_message_stays_whole(
    etcd: EtcdCluster, opened: Opener
) -> None:
    """etcd sends a large revision in fragments; the watch yields it as one."""
    async with opened(*etcd.endpoints) as storage:
        keys = [Key(f"/restow/large/{number}") for number in range(14)]
        watch = storage.watch(Span.of_prefix("/restow/large/"), after=await storage.revision())
        for letter in (b"a", b"b"):
            writes = tuple(Put(key, letter * 100_000) for key in keys)
            assert isinstance(await storage.commit(Transaction(writes=writes)), Done)
            events = await _next(watch)
            assert [event.key for event in events] == keys
            assert {event.value for event in events} == {letter * 100_000}


async def test_closing_the_store_ends_all_its_watches(etcd: EtcdCluster, opened: Opener) -> None:
    """Neither a waiting watch nor one in the backlog outlives the store, and no task is left."""
    async with opened(*etcd.endpoints) as storage:
        oldest = await storage.revision()
        await _put(storage, "/closing/a")
        newest = await _put(storage, "/closing/a")
        waiting = asyncio.create_task(anext(storage.watch(EVERYTHING, after=newest)))
        behind = storage.watch(Span.of_prefix("/nothing/"), after=oldest)
        reading = asyncio.create_task(anext(behind))
        await asyncio.sleep(0.1)
        await storage.close()
        for task in (waiting, reading):
            with pytest.raises(StorageClosed):
                await task
        with pytest.raises(StorageClosed):
            await storage.revision()
        with pytest.raises(StorageClosed):
            storage.watch(EVERYTHING, after=newest)
