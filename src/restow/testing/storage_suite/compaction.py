"""Compaction: which revisions stay readable, and how it affects watches."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from restow.storage.errors import Compacted, FutureRevision
from restow.storage.feed import RevisionEvents
from restow.storage.interface import (
    EVERYTHING,
    Batch,
    Delete,
    Put,
    Revision,
    Span,
    Storage,
)
from restow.testing.history import log_of, replay
from restow.testing.storage_suite.followers import finish_all, following
from restow.testing.storage_suite.harness import Harness
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    assert_complete,
    collect,
    commit,
    contents,
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
from restow.testing.watch_checks import WatchRecord, check_watch


class CompactionSuite:
    async def test_past_is_gone(self, storage: Storage) -> None:
        """Older revisions are refused with the oldest readable one; that one can be read."""
        old = await put(storage, "a", b"1")
        kept = await put(storage, "a", b"2")
        await put(storage, "a", b"3")
        await storage.compact(kept)
        for reading in (
            storage.get(k("a"), revision=old),
            storage.range(TEST_SPAN, revision=old),
            storage.count(TEST_SPAN, revision=old),
        ):
            with pytest.raises(Compacted) as caught:
                await reading
            assert caught.value.compacted == kept
        assert await storage.get(k("a"), revision=kept) == item("a", b"2", kept, old)
        assert await contents(storage, kept) == {"a": b"2"}
        assert await contents(storage) == {"a": b"3"}

    async def test_every_state_from_there_on(self, harness: Harness, storage: Storage) -> None:
        """After a compaction every later state is complete, also for keys not written since."""
        recorder = await recorder_of(storage)
        await random_history(recorder, commits=harness.sizes.commits)
        start, end = recorder.history.start, recorder.history.end
        middle = Revision((start + end) // 2)
        await storage.compact(middle)
        timeline, _ = replay(recorder.history)
        for revision in map(Revision, range(middle, end + 1)):
            page = await storage.range(EVERYTHING, revision=revision)
            assert page.items == timeline.items_at(EVERYTHING, revision)

    async def test_compact_now(self, storage: Storage) -> None:
        """Compacting at the current revision keeps the current state, and writes continue."""
        made = await put(storage, "a", b"1")
        now = await put(storage, "b", b"2")
        await storage.compact(now)
        assert await contents(storage) == {"a": b"1", "b": b"2"}
        assert await storage.revision() == now
        changed = await put(storage, "a", b"3")
        assert changed == now + 1
        assert await storage.get(k("a")) == item("a", b"3", changed, made)
        seen = await record(storage, TEST_SPAN, after=now, upto=changed)
        assert [event.previous for event in seen.events] == [item("a", b"1", made)]

    async def test_deleted_keys(self, storage: Storage) -> None:
        """A key deleted before the compaction is absent; one deleted after it can still be read."""
        await commit(storage, Put(k("before"), b"x"), Put(k("at"), b"x"), Put(k("after"), b"x"))
        await delete(storage, "before")
        at = await delete(storage, "at")
        await delete(storage, "after")
        await storage.compact(at)
        assert await contents(storage, at) == {"after": b"x"}
        assert await contents(storage) == {}
        again = await put(storage, "before", b"y")
        assert await storage.get(k("before")) == item("before", b"y", again)

    async def test_twice(self, storage: Storage) -> None:
        """A compacted revision cannot be compacted again; a later one can."""
        first = await put(storage, "a")
        second = await put(storage, "a")
        third = await put(storage, "a")
        await storage.compact(second)
        for again in (second, first):
            with pytest.raises(Compacted) as caught:
                await storage.compact(again)
            assert caught.value.compacted == second
        await storage.compact(third)
        assert await contents(storage, third) == {"a": b"value"}

    async def test_beyond_now(self, storage: Storage) -> None:
        """A future revision cannot be compacted, and trying does no harm."""
        now = await put(storage, "a")
        with pytest.raises(FutureRevision) as caught:
            await storage.compact(Revision(now + 1))
        assert (caught.value.asked, caught.value.current) == (now + 1, now)
        assert await contents(storage, Revision(now - 1)) == {}

    async def test_second_handle(self, harness: Harness, storage: Storage) -> None:
        """A compaction by one server holds for the others."""
        other = await harness.open()
        old = await put(storage, "a", b"1")
        kept = await put(storage, "a", b"2")
        await storage.compact(kept)
        with pytest.raises(Compacted) as caught:
            await other.get(k("a"), revision=old)
        assert caught.value.compacted == kept
        with pytest.raises(Compacted):
            await other.compact(kept)
        assert await contents(other, kept) == {"a": b"2"}

    async def test_after_reopening(self, harness: Harness, storage: Storage) -> None:
        """Compacted revisions stay compacted when every server has stopped in between."""
        old = await put(storage, "a", b"1")
        kept = await put(storage, "a", b"2")
        newest = await put(storage, "a", b"3")
        await storage.compact(kept)
        again = await harness.reopen()
        with pytest.raises(Compacted):
            await again.get(k("a"), revision=old)
        with pytest.raises(Compacted):
            await record(again, TEST_SPAN, after=old, upto=newest)
        seen = await record(again, TEST_SPAN, after=kept, upto=newest)
        assert [event.revision for event in seen.events] == [newest]

    @pytest.mark.parametrize("deletion", [False, True], ids=["put", "deletion"])
    async def test_watch_from_the_border(
        self,
        storage: Storage,
        deletion: bool,  # noqa: FBT001
    ) -> None:
        """A watch may begin at the compacted revision, but not before: that event is compacted."""
        old = await put(storage, "a", b"1")
        kept = await (delete(storage, "a") if deletion else put(storage, "a", b"2"))
        newest = await put(storage, "a", b"3")
        await storage.compact(kept)
        seen = await record(storage, TEST_SPAN, after=kept, upto=newest)
        assert [event.revision for event in seen.events] == [newest]
        for after in (old, Revision(old - 1)):
            with pytest.raises(Compacted) as caught:
                await record(storage, TEST_SPAN, after=after, upto=newest)
            assert caught.value.compacted == kept

    async def test_history_after_it(self, harness: Harness, storage: Storage) -> None:
        """Watches from the compacted revision and from every later one lose nothing."""
        recorder = await recorder_of(storage)
        log = await random_history(recorder, commits=harness.sizes.commits)
        end = recorder.history.end
        border = Revision(end - 20)
        await storage.compact(border)
        asked = [(EVERYTHING, Revision(after)) for after in range(border, end + 1)]
        for seen in await record_all(storage, asked, upto=end):
            assert_complete(seen, log, end)

    async def test_fast_watch(self, harness: Harness, storage: Storage) -> None:
        """Watches that keep up are not affected by a compaction behind them."""
        recorder = await recorder_of(storage)
        log = list[RevisionEvents]()
        async with following(storage, [(EVERYTHING, recorder.history.start)] * 3) as followers:
            for round_ in range(10):
                log = await random_history(recorder, commits=5, seed=round_)
                for follower in followers:
                    await follower.reached(recorder.history.end)
                await storage.compact(recorder.history.end)
            finish_all(followers, recorder.history.end)
        for follower in followers:
            assert_complete(follower.seen, log, recorder.history.end)

    async def test_quiet_watch(self, storage: Storage) -> None:
        """A watch of keys that are not written survives compactions past all it has seen."""
        start = await storage.revision()
        async with opened_watch(storage, Span.of_prefix(k("quiet/")), after=start) as watch:
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(next_batch(watch))
                await let_others_run()
                for _ in range(10):
                    newest = await put(storage, "a")
                    await record(storage, TEST_SPAN, after=Revision(newest - 1), upto=newest)
                    await storage.compact(newest)
                revision = await put(storage, "quiet/a")
            assert [event.revision for event in waiting.result().events] == [revision]

    async def test_slow_watch(self, storage: Storage) -> None:
        """A watch whose unread events were compacted raises, and keeps raising."""
        start = await put(storage, "a")
        async with opened_watch(storage, TEST_SPAN, after=start) as watch:
            for _ in range(5):
                await put(storage, "a")
            newest = await storage.revision()
            await record(storage, TEST_SPAN, after=start, upto=newest)
            await storage.compact(newest)
            for _ in range(2):
                with pytest.raises(Compacted) as caught:
                    await next_batch(watch)
                assert caught.value.compacted == newest

    async def test_slow_watch_on_second_handle(self, harness: Harness, storage: Storage) -> None:
        """After a compaction by another server a watch yields all events, or raises."""
        other = await harness.open()
        recorder = await recorder_of(storage)
        start = recorder.history.start
        async with opened_watch(other, EVERYTHING, after=start) as watch:
            log = await random_history(recorder, commits=20)
            await storage.compact(Revision(recorder.history.end - 1))
            await put(recorder, "a/1")
            end, log = recorder.history.end, log_of(recorder.history)
            batches: list[Batch] = []
            with suppress(Compacted):
                batches = await collect(watch, end)
                assert batches[-1].revision >= end
            assert check_watch(WatchRecord(EVERYTHING, start, batches), log) == []

    async def test_compaction_of_deletions_only(self, storage: Storage) -> None:
        """A store whose every key is deleted and compacted keeps its revision and stays usable."""
        await commit(storage, Put(k("a"), b""), Put(k("b"), b""))
        gone = await commit(storage, Delete(k("a")), Delete(k("b")))
        await storage.compact(gone)
        assert await storage.revision() == gone
        assert await contents(storage, gone) == {}
        assert await put(storage, "a") == gone + 1
