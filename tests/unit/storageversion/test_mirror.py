"""The mirror: its past states are correct despite broken watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from restow.aio import Runtime, SimulatedClock
from restow.storage.interface import Delete, Done, Item, Key, Put, Revision, Transaction
from restow.storageversion.mirror import Mirror
from tests.scenarios.lossy import LossyStorage

A, B, OTHER = Key("/a/1"), Key("/b/1"), Key("/c/1")


class Rig:
    """A mirror of two prefixes, and the calls of its listener."""

    def __init__(self) -> None:
        self.storage = LossyStorage()
        self.clock = SimulatedClock()
        runtime = Runtime.simulated(1, clock=self.clock)
        self.tasks = runtime.tasks("test")
        self.mirror = Mirror(self.storage, runtime, ["/a/", "/b/"])
        self.calls: list[tuple[str, bytes | None]] = []
        self.mirror.changed.subscribe(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        assert self.mirror.get(key) == item  # the listener is called after the change is visible
        self.calls.append((key, None if item is None else item.value))

    async def put(self, key: Key, value: bytes) -> Revision:
        outcome = await self.storage.commit(Transaction((), (Put(key, value),)))
        assert isinstance(outcome, Done)
        return outcome.revision

    async def delete(self, key: Key) -> None:
        await self.storage.commit(Transaction((), (Delete(key),)))

    def value(self, key: Key) -> bytes | None:
        item = self.mirror.get(key)
        return None if item is None else item.value


@asynccontextmanager
async def open_rig() -> AsyncIterator[Rig]:
    rig = Rig()
    try:
        yield rig
    finally:
        await rig.tasks.close()
        await rig.storage.close()


async def test_listeners_are_called_once_per_change() -> None:
    """For existing keys at the start, for changes, and for nothing else."""
    async with open_rig() as rig:
        await rig.put(A, b"1")
        await rig.mirror.start(rig.tasks)
        assert rig.calls == [(A, b"1")]
        await rig.put(B, b"1")
        await rig.put(OTHER, b"1")
        await rig.put(A, b"2")
        await rig.delete(B)
        await rig.clock.settle()
        # Ordered under each prefix; the prefixes are independent.
        assert [calls for calls in rig.calls if calls[0] == A] == [(A, b"1"), (A, b"2")]
        assert [calls for calls in rig.calls if calls[0] != A] == [(B, b"1"), (B, None)]
        assert [item.key for item in rig.mirror.under("/a/")] == [A]
        assert rig.mirror.under("/b/") == []


async def test_a_broken_watch_resumes_at_its_position() -> None:
    """No change is delivered twice or lost."""
    async with open_rig() as rig:
        await rig.mirror.start(rig.tasks)
        await rig.put(A, b"1")
        await rig.clock.settle()
        rig.storage.break_watches()
        await rig.put(A, b"2")
        await rig.put(A, b"3")
        await rig.clock.advance(20)
        assert rig.value(A) == b"1"
        rig.storage.restore_watches()
        await rig.clock.advance(10)
        assert rig.calls == [(A, b"1"), (A, b"2"), (A, b"3")]


async def test_a_compaction_while_the_watch_is_down_is_repaired_by_a_read() -> None:
    """Changed keys are delivered once with their current value, removed keys as deletions, and
    unchanged keys not at all."""
    async with open_rig() as rig:
        kept, gone = Key("/a/kept"), Key("/a/gone")
        for key in (kept, gone, A):
            await rig.put(key, b"1")
        await rig.mirror.start(rig.tasks)
        await rig.clock.settle()
        rig.storage.break_watches()
        await rig.clock.settle()
        rig.calls.clear()
        await rig.put(A, b"2")
        await rig.delete(gone)
        revision = await rig.put(A, b"3")
        await rig.storage.compact(revision)
        rig.storage.restore_watches()
        await rig.clock.advance(10)
        assert sorted(rig.calls, key=str) == [(A, b"3"), (gone, None)]
        assert (rig.value(kept), rig.value(A), rig.value(gone)) == (b"1", b"3", None)
        assert rig.mirror.position >= revision
        await rig.put(A, b"4")
        await rig.clock.settle()
        assert rig.value(A) == b"4"


async def test_reach_returns_when_everything_up_to_a_revision_was_seen() -> None:
    """Also if the change is outside the prefixes, or in only one of them."""
    async with open_rig() as rig:
        await rig.mirror.start(rig.tasks)
        for key in (OTHER, A, B):
            revision = await rig.put(key, b"1")
            assert await rig.clock.run_until_done(rig.mirror.reach(revision, seconds=1))
            assert rig.mirror.position >= revision
        assert (rig.value(A), rig.value(B)) == (b"1", b"1")


async def test_reach_times_out_without_an_effect() -> None:
    """While the watches are down it returns False after the timeout; later it succeeds."""
    async with open_rig() as rig:
        await rig.mirror.start(rig.tasks)
        rig.storage.break_watches()
        revision = await rig.put(A, b"1")
        before = rig.clock.monotonic()
        assert not await rig.clock.run_until_done(rig.mirror.reach(revision, seconds=2))
        assert rig.clock.monotonic() - before == 2
        waiting = asyncio.ensure_future(rig.mirror.reach(revision, seconds=30))
        await rig.clock.advance(1)
        rig.storage.restore_watches()
        await rig.clock.advance(10)
        assert await waiting
        assert rig.value(A) == b"1"
