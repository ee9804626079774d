"""The feed compared with a naive model: a list of all changes, and the compacted revision."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.storage.errors import Compacted, StorageClosed
from restow.storage.feed import (
    BATCH_EVENTS_MAX,
    TRIMMED_PART,
    Chunk,
    Feed,
    FeedWatch,
    RevisionEvents,
)
from restow.storage.interface import EVERYTHING, Delete, Key, Put, Revision, Span, Write
from restow.testing.history import Timeline
from restow.testing.watch_checks import WatchRecord, check_watch

START = Revision(10)
KEYS = [Key(f"/{prefix}/{number}") for prefix in "ab" for number in range(3)]
SPANS = [EVERYTHING, Span.of_prefix("/a/"), Span.of_prefix("/b/"), Span.of_key(KEYS[0])]


class Twin:
    """A feed, the whole log behind it, and the events that each watch has seen."""

    def __init__(self, *, entries_max: int, bytes_max: int, chunk_entries: int = 2) -> None:
        self.timeline = Timeline(START, [])
        self.compacted = Revision(0)
        self.chunk_entries = chunk_entries
        self.backlogs_open = 0
        self.expectations: list[Revision] = []
        self.feed = Feed(
            position=START,
            open_backlog=self._open_backlog,
            on_expect=self.expectations.append,
            entries_max=entries_max,
            bytes_max=bytes_max,
        )
        self.seen: dict[FeedWatch, WatchRecord] = {}

    @property
    def log(self) -> list[RevisionEvents]:
        return self.timeline.log

    def append(self, transactions: Iterable[tuple[Write, ...]], *, gap: int = 1) -> None:
        before = len(self.log)
        for writes in transactions:
            self.timeline.apply(Revision(self.timeline.revision + gap), writes)
        self.feed.append(self.log[before:])

    def put(self, *keys: Key, value: bytes = b"x") -> Revision:
        self.append([tuple(Put(key, value) for key in keys)])
        return self.timeline.revision

    def watch(self, span: Span, after: Revision) -> FeedWatch:
        watch = self.feed.watch(span, after=after)
        self.seen[watch] = WatchRecord(span, after)
        return watch

    def forget_upto(self, revision: Revision) -> None:
        self.compacted = max(self.compacted, revision)
        self.feed.forget_upto(revision)

    async def read(self, watch: FeedWatch, *, rounds: int) -> bool:
        """Try to read a batch within so many iterations of the loop; whether there was one."""
        reading = asyncio.create_task(anext(watch))
        for _ in range(rounds):
            await asyncio.sleep(0)
        reading.cancel()
        with suppress(asyncio.CancelledError):
            self.seen[watch].batches.append(await reading)
            return True
        return False

    async def drain(self, watch: FeedWatch) -> None:
        """Read up to the feed's position; this takes few iterations, unless it hangs."""
        goal = self.feed.position
        watch.expect(goal)
        while self.seen[watch].upto < goal:
            assert await self.read(watch, rounds=500), f"hangs before {goal}"

    async def check(self, watch: FeedWatch) -> None:
        """Assert that a watch yields everything, or that missing events were compacted."""
        seen = self.seen[watch]
        try:
            await self.drain(watch)
        except Compacted:
            assert seen.upto < self.compacted
        assert check_watch(seen, self.log) == []

    def _open_backlog(self, span: Span, after: Revision) -> "TwinBacklog":
        self.backlogs_open += 1
        return TwinBacklog(self, span, after)


class TwinBacklog:
    """Reads the whole log, some entries at a time, with delays everywhere."""

    def __init__(self, twin: Twin, span: Span, after: Revision) -> None:
        self._twin = twin
        self._span = span
        self._after = after

    async def read(self) -> Chunk:
        await asyncio.sleep(0)
        if self._after < self._twin.compacted:
            raise Compacted(self._twin.compacted)
        rest = [entry for entry in self._twin.log if entry.revision > self._after]
        part = rest[: self._twin.chunk_entries]
        upto = part[-1].revision if len(part) < len(rest) else self._twin.timeline.revision
        await asyncio.sleep(0)
        self._after = upto
        return Chunk(part, upto)

    async def close(self) -> None:
        self._twin.backlogs_open -= 1
        await asyncio.sleep(0)


writes = st.one_of(
    st.builds(Put, st.sampled_from(KEYS), st.sampled_from([b"", b"x" * 300])),
    st.builds(Delete, st.sampled_from(KEYS)),
)
transactions = st.lists(writes, min_size=1, max_size=3, unique_by=lambda write: write.key)
steps = st.one_of(
    st.tuples(st.just("append"), st.lists(transactions.map(tuple), min_size=1, max_size=4)),
    st.tuples(st.just("repeat"), st.integers(0, 5)),
    st.tuples(st.just("watch"), st.tuples(st.sampled_from(SPANS), st.integers(-12, 3))),
    st.tuples(st.just("read"), st.tuples(st.integers(0, 9), st.integers(0, 12))),
    st.tuples(st.just("expect"), st.tuples(st.integers(0, 9), st.integers(-3, 3))),
    st.tuples(st.just("forget"), st.integers(0, 12)),
)


@given(
    program=st.lists(steps, min_size=5, max_size=40),
    entries_max=st.integers(1, 6),
    bytes_max=st.sampled_from([1, 1500, 1_000_000]),
    gap=st.integers(1, 2),
)
def test_against_twin(
    program: list[tuple[str, object]], entries_max: int, bytes_max: int, gap: int
) -> None:
    """After any appends, compactions, reads and cancellations a watch has the nine properties."""

    async def run() -> None:
        twin = Twin(entries_max=entries_max, bytes_max=bytes_max)
        for name, argument in program:
            await take_step(twin, name, argument, gap=gap)
        for watch in twin.seen:
            await twin.check(watch)
        for watch in twin.seen:
            await watch.close()
        assert twin.backlogs_open == 0
        assert twin.feed.watch_count == 0

    asyncio.run(run())


async def take_step(twin: Twin, name: str, argument: object, *, gap: int) -> None:
    position, watches = twin.feed.position, list(twin.seen)
    match name, argument:
        case "append", list(appended):
            twin.append(appended, gap=gap)
        case "repeat", int(number):
            twin.feed.append(twin.log[-number:])
        case "watch", (Span() as span, int(distance)):
            twin.watch(span, Revision(max(position + distance, 0)))
        case "read", (int(which), int(rounds)) if watches:
            with suppress(Compacted):
                await twin.read(watches[which % len(watches)], rounds=rounds)
        case "expect", (int(which), int(distance)) if watches:
            watches[which % len(watches)].expect(Revision(position + distance))
        case "forget", int(distance):
            twin.forget_upto(Revision(max(position - distance, 0)))


async def test_backlog_is_left_when_caught_up() -> None:
    """A watch reads the backlog until memory has the rest, and then closes it."""
    twin = Twin(entries_max=2, bytes_max=1_000_000)
    for _ in range(8):
        twin.put(KEYS[0])
    watch = twin.watch(EVERYTHING, START)
    await twin.check(watch)
    assert twin.backlogs_open == 0
    twin.put(KEYS[0])
    await twin.check(watch)
    assert [event.revision for event in twin.seen[watch].events] == list(range(11, 20))


@pytest.mark.parametrize("rounds", range(12))
async def test_cancelled_backlog(rounds: int) -> None:
    """Cancelling a read of the backlog, or its close, loses nothing."""
    twin = Twin(entries_max=2, bytes_max=1_000_000, chunk_entries=100)
    for _ in range(8):
        twin.put(KEYS[0])
    watch = twin.watch(EVERYTHING, START)
    await twin.read(watch, rounds=rounds)
    await twin.check(watch)


async def test_slow_reader_falls_out_of_memory() -> None:
    """A reader that pauses is served from memory, then from the backlog, then from memory."""
    twin = Twin(entries_max=4, bytes_max=1_000_000)
    watch = twin.watch(SPANS[1], START)
    for pause in (1, 2, 3, 20, 1, 30, 2):
        for number in range(pause):
            twin.put(KEYS[number % 6])
        await twin.check(watch)


async def test_memory_is_bounded() -> None:
    """The feed keeps at most its maximum of entries, and about that of bytes."""
    twin = Twin(entries_max=10, bytes_max=5000)
    for number in count():
        twin.put(KEYS[0], value=b"x" * (900 if number >= 50 else 0))
        assert len(twin.feed._entries) <= 10
        assert twin.feed._bytes <= 5000
        if number == 100:
            break


async def test_a_full_feed_drops_little_at_a_time() -> None:
    """It stays nearly full, and frees little memory at a time."""
    twin = Twin(entries_max=640, bytes_max=1_000_000_000)
    sizes = []
    for _ in range(2000):
        twin.put(KEYS[0])
        sizes.append(len(twin.feed._entries))
    assert min(sizes[640:]) >= 640 - 640 // TRIMMED_PART
    drops = [before - after for before, after in pairwise(sizes) if after < before]
    assert drops
    assert max(drops) <= 640 // TRIMMED_PART


async def test_batches_are_bounded() -> None:
    """A long remainder of the log comes from memory in several batches, split between revisions."""
    twin = Twin(entries_max=5000, bytes_max=100_000_000)
    watch = twin.watch(EVERYTHING, START)
    for _ in range(BATCH_EVENTS_MAX):
        twin.put(*KEYS)
    await twin.check(watch)
    sizes = [len(batch.events) for batch in twin.seen[watch].batches]
    assert len(sizes) > 5
    assert max(sizes) < BATCH_EVENTS_MAX + len(KEYS)


async def test_one_entry_larger_than_memory() -> None:
    """An entry above the limit still reaches the waiting watches."""
    twin = Twin(entries_max=10, bytes_max=100)
    watch = twin.watch(EVERYTHING, START)
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    revision = twin.put(KEYS[0], value=b"x" * 1000)
    assert (await reading).revision == revision


async def test_compaction_does_not_end_waiting_watches() -> None:
    """A waiting watch that did not match the compacted events continues."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    watch = twin.watch(SPANS[2], START)
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    for _ in range(5):
        twin.forget_upto(twin.put(KEYS[0]))
    revision = twin.put(KEYS[3])
    assert [event.revision for event in (await reading).events] == [revision]


async def test_unmatched_events_count_as_read() -> None:
    """A watch woken too late for memory resumes after events that it did not match."""
    twin = Twin(entries_max=2, bytes_max=1_000_000)
    watch = twin.watch(SPANS[2], START)
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    twin.forget_upto(twin.put(KEYS[0]))
    wanted = twin.put(KEYS[3])
    for _ in range(5):
        twin.put(KEYS[0])
    assert [event.revision for event in (await reading).events] == [wanted]


async def test_compaction_ends_watches_that_missed_events() -> None:
    """A watch that had not read the compacted events raises, repeatedly."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    watch = twin.watch(EVERYTHING, START)
    revision = twin.put(KEYS[0])
    twin.forget_upto(revision)
    for _ in range(2):
        with pytest.raises(Compacted) as caught:
            await anext(watch)
        assert caught.value.compacted == revision


async def test_every_expectation_is_met() -> None:
    """Expecting a far revision does not delay the mark for a near one."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    watch = twin.watch(SPANS[2], START)
    watch.expect(Revision(START + 1))
    watch.expect(Revision(START + 1000))
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    revision = twin.put(KEYS[0])
    for _ in range(10):
        await asyncio.sleep(0)
    assert reading.done()
    assert reading.result().revision == revision


async def test_the_driver_is_notified_of_expected_revisions() -> None:
    """The driver is notified of expectations beyond its last append, and only of those."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    watch = twin.watch(EVERYTHING, START)
    watch.expect(START)
    watch.expect(Revision(START + 1))
    assert twin.expectations == [START + 1]


async def test_reset() -> None:
    """When changes were missed, every watch ends with the reason, and new ones start after it."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    watch = twin.watch(EVERYTHING, START)
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    twin.put(KEYS[0])
    behind = Revision(START + 50)
    twin.feed.reset(behind, Compacted(behind))
    with pytest.raises(Compacted):
        await reading
    assert twin.feed.position == behind
    assert twin.feed.watch_count == 0


async def test_close() -> None:
    """Closing ends every watch, waiting or not."""
    twin = Twin(entries_max=10, bytes_max=1_000_000)
    waiting, idle = twin.watch(EVERYTHING, START), twin.watch(EVERYTHING, START)
    reading = asyncio.create_task(anext(waiting))
    await asyncio.sleep(0)
    twin.feed.close()
    for ended in (reading, anext(idle), anext(waiting)):
        with pytest.raises(StorageClosed):
            await ended
    assert twin.feed.watch_count == 0
