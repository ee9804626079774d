"""Watches: the nine properties, resuming, marks, slow readers, cancellation."""

from __future__ import annotations

import asyncio

import pytest

from restow.aio import SeededRandomness
from restow.storage.errors import StorageClosed
from restow.storage.feed import BYTES_MAX, RevisionEvents
from restow.storage.interface import EVERYTHING, Batch, Event, Put, Revision, Span, Storage
from restow.testing.history import Recorder, log_of
from restow.testing.storage_suite.followers import finish_all, following
from restow.testing.storage_suite.harness import Harness
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    WAIT_SECONDS_MAX,
    assert_complete,
    collect,
    commit,
    delete,
    item,
    k,
    let_others_run,
    next_batch,
    opened_watch,
    put,
    random_history,
    record,
    record_all,
    recorder_of,
)
from restow.testing.watch_checks import WatchRecord

SPANS = {
    "everything": EVERYTHING,
    "prefix": Span.of_prefix(k("a/")),
    "other prefix": Span.of_prefix(k("b/")),
    "one key": Span.of_key(k("a/1")),
    "no key": Span.of_prefix(k("c/")),
}


class WatchSuite:
    async def test_events(self, storage: Storage) -> None:
        """Creation, change and deletion come with value, revisions and previous value."""
        start = await storage.revision()
        made = await put(storage, "a", b"1")
        changed = await put(storage, "a", b"2")
        gone = await delete(storage, "a")
        seen = await record(storage, TEST_SPAN, after=start, upto=gone)
        one, two = item("a", b"1", made), item("a", b"2", changed, made)
        assert seen.events == [
            Event(k("a"), b"1", made, made, None),
            Event(k("a"), b"2", changed, made, one),
            Event(k("a"), None, gone, made, two),
        ]

    @pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
    async def test_nine_properties(self, harness: Harness, storage: Storage, span: Span) -> None:
        """Watches that run while the store is written have the nine properties."""
        recorder = await recorder_of(storage)
        start = recorder.history.start
        async with following(storage, [(span, start)] * 3) as followers:
            log = await random_history(recorder, commits=harness.sizes.commits)
            finish_all(followers, recorder.history.end)
        for follower in followers:
            assert_complete(follower.seen, log, recorder.history.end)

    async def test_from_every_revision(self, harness: Harness, storage: Storage) -> None:
        """A watch from any revision of a history yields exactly the rest of the history."""
        recorder = await recorder_of(storage)
        log = await random_history(recorder, commits=harness.sizes.commits)
        end = recorder.history.end
        afters = range(recorder.history.start, end + 1)
        asked = [(span, Revision(after)) for after in afters for span in SPANS.values()]
        for seen in await record_all(storage, asked, upto=end):
            assert_complete(seen, log, end)

    async def test_resume_at_every_batch(self, storage: Storage) -> None:
        """A watch that is resumed after any batch has neither gaps nor repeats."""
        recorder = await recorder_of(storage)
        seen = WatchRecord(EVERYTHING, recorder.history.start)
        log = list[RevisionEvents]()
        for round_ in range(10):
            log = await random_history(recorder, commits=5, seed=round_)
            async with opened_watch(storage, EVERYTHING, after=seen.upto) as watch:
                watch.expect(recorder.history.end)
                seen.batches.append(await next_batch(watch))
        end = recorder.history.end
        seen.batches += (await record(storage, EVERYTHING, after=seen.upto, upto=end)).batches
        assert_complete(seen, log, end)

    async def test_many_watchers(self, harness: Harness, storage: Storage) -> None:
        """Many watches of different spans and revisions do not affect one another."""
        recorder = await recorder_of(storage)
        randomness = SeededRandomness("many watchers")
        asked = [
            (
                randomness.choice(list(SPANS.values())),
                Revision(recorder.history.start + randomness.randrange(40)),
            )
            for _ in range(harness.sizes.watchers)
        ]
        await random_history(recorder, commits=20)
        async with following(storage, asked) as followers:
            log = await random_history(recorder, commits=harness.sizes.commits)
            finish_all(followers, recorder.history.end)
        for follower in followers:
            assert_complete(follower.seen, log, recorder.history.end)

    async def test_expect(self, storage: Storage) -> None:
        """An expected revision produces a mark, though no event concerns it."""
        start = await storage.revision()
        async with opened_watch(storage, Span.of_prefix(k("quiet/")), after=start) as watch:
            for _ in range(3):
                newest = await put(storage, "a")
                batches = await collect(watch, newest)
                assert [batch.events for batch in batches] == [()] * len(batches)
                assert batches[-1].revision >= newest

    async def test_expect_of_the_past(self, storage: Storage) -> None:
        """Expecting a revision that was reached already produces a mark at once."""
        now = await put(storage, "a")
        async with opened_watch(storage, TEST_SPAN, after=now) as watch:
            assert await collect(watch, now) == [Batch(now, ())]
            assert await collect(watch, Revision(now - 1)) == [Batch(now, ())]

    async def test_expect_while_waiting(self, storage: Storage) -> None:
        """Expecting a revision wakes a waiting reader, in either order of the two calls."""
        start = await storage.revision()
        async with opened_watch(storage, Span.of_prefix(k("quiet/")), after=start) as watch:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(next_batch(watch))
                await let_others_run()
                ahead = Revision(start + 1)
                watch.expect(ahead)
                await let_others_run()
                assert not waiting.done()
                assert await put(storage, "a") == ahead
            assert waiting.result() == Batch(ahead, ())

    async def test_from_the_future(self, storage: Storage) -> None:
        """A watch from a future revision yields only the changes after it."""
        recorder = await recorder_of(storage)
        after = Revision(recorder.history.start + 5)
        async with following(storage, [(EVERYTHING, after)]) as [follower]:
            log = await random_history(recorder, commits=20)
            follower.finish_at(recorder.history.end)
        assert_complete(follower.seen, log, recorder.history.end)
        assert follower.seen.events[0].revision == after + 1

    async def test_slow_reader(self, storage: Storage) -> None:
        """A reader too slow for the driver's memory still gets everything, once and in order."""
        recorder = await recorder_of(storage)
        start = recorder.history.start
        async with opened_watch(storage, TEST_SPAN, after=start) as watch:
            await put(recorder, "a", b"first")
            seen = WatchRecord(TEST_SPAN, start, [await next_batch(watch)])
            end = await overflow(recorder)
            seen.batches += await collect(watch, end)
            assert_complete(seen, log_of(recorder.history), end)
            end = await put(recorder, "a", b"last")
            seen.batches += await collect(watch, end)
            assert_complete(seen, log_of(recorder.history), end)

    @pytest.mark.parametrize("far", [False, True], ids=["in memory", "beyond memory"])
    async def test_cancelled_reading(self, storage: Storage, far: bool) -> None:  # noqa: FBT001
        """Cancelling a read at any moment loses nothing."""
        recorder = await recorder_of(storage)
        start = recorder.history.start
        if far:
            await overflow(recorder)
        asked = [(EVERYTHING, start)] * 3
        async with following(storage, asked, impatient=True) as followers:
            log = await random_history(recorder, commits=30)
            finish_all(followers, recorder.history.end)
        for follower in followers:
            assert_complete(follower.seen, log, recorder.history.end)

    async def test_closed_watch(self, storage: Storage) -> None:
        """Closing a watch ends its waiting reader and all later reads; the store stays open."""
        watch = storage.watch(TEST_SPAN, after=await storage.revision())
        waiting = asyncio.ensure_future(anext(watch))  # noqa: TID251  (its error is what is asked)
        await let_others_run()
        await watch.close()
        for reading in (waiting, anext(watch)):
            with pytest.raises(StorageClosed):
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    await reading
        await watch.close()
        await put(storage, "a")

    async def test_watch_of_nothing(self, storage: Storage) -> None:
        """A watch of an empty span yields marks on request, and no events."""
        start = await storage.revision()
        newest = await put(storage, "b")
        seen = await record(storage, Span(k("c"), k("a")), after=start, upto=newest)
        assert seen.events == []

    async def test_wide_revisions(self, storage: Storage) -> None:
        """Revisions with very many events are never split, however many fit into a batch."""
        recorder = await recorder_of(storage)
        for number in range(30):
            await commit(recorder, *(Put(k(f"{name:03}"), b"%d" % number) for name in range(100)))
        start, end = recorder.history.start, recorder.history.end
        seen = await record(storage, EVERYTHING, after=start, upto=end)
        assert_complete(seen, log_of(recorder.history), end)


async def overflow(recorder: Recorder) -> Revision:
    """Write more than a feed keeps in memory; return the last revision."""
    assert BYTES_MAX < 20 * 1_000_000
    for number in range(20):
        await put(recorder, "big", b"%02d" % number * 500_000)
    return recorder.history.end
