"""Handles: several on one store, closing, and reopening."""

from __future__ import annotations

import asyncio

import pytest

from restow.storage.errors import Compacted, StorageClosed
from restow.storage.interface import (
    EVERYTHING,
    Absent,
    Batch,
    Put,
    Revision,
    Storage,
    Transaction,
)
from restow.testing.history import replay
from restow.testing.storage_suite.followers import finish_all, following
from restow.testing.storage_suite.harness import Harness
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    WAIT_SECONDS_MAX,
    assert_complete,
    commit,
    contents,
    item,
    k,
    let_others_run,
    put,
    random_history,
    record,
    record_all,
    recorder_of,
    refuse,
)


class HandleSuite:
    async def test_acknowledged_writes_survive(self, harness: Harness, storage: Storage) -> None:
        """Every acknowledged write, with its whole history, exists after reopening."""
        recorder = await recorder_of(storage)
        log = await random_history(recorder, commits=harness.sizes.commits)
        start, end = recorder.history.start, recorder.history.end
        again = await harness.reopen()
        assert await again.revision() == end
        timeline, _ = replay(recorder.history)
        for revision in map(Revision, range(start, end + 1)):
            page = await again.range(EVERYTHING, revision=revision)
            assert page.items == timeline.items_at(EVERYTHING, revision)
        assert_complete(await record(again, EVERYTHING, after=start, upto=end), log, end)
        assert await put(again, "after") == end + 1

    async def test_second_handle_sees_commits(self, harness: Harness, storage: Storage) -> None:
        """A commit acknowledged by one server is visible in the next request to another one."""
        other = await harness.open()
        for number in range(50):
            writer, reader = (storage, other) if number % 2 else (other, storage)
            revision = await put(writer, "a", b"%d" % number)
            assert await reader.revision() == revision
            found = await reader.get(k("a"))
            assert found is not None
            assert (found.value, found.revision) == (b"%d" % number, revision)
            assert (await reader.range(TEST_SPAN)).revision == revision
            assert await contents(reader, revision) == {"a": b"%d" % number}

    async def test_revision_is_never_old(self, harness: Harness, storage: Storage) -> None:
        """The revision is at least that of every acknowledged commit, on every handle."""
        handles = [storage, await harness.open(), await harness.open()]
        for number in range(30):
            revision = await put(handles[number % 3], "a")
            for handle in handles:
                at_once = handle.revision_now()
                assert at_once is None or at_once == revision
            assert [await handle.revision() for handle in handles] == [revision] * 3

    async def test_guards_across_handles(self, harness: Harness, storage: Storage) -> None:
        """A guard sees the latest commit of another server."""
        other = await harness.open()
        revision = await commit(storage, Put(k("a"), b"1"), guards=(Absent(k("a")),))
        refused = await refuse(other, Put(k("a"), b"2"), guards=(Absent(k("a")),))
        assert refused.current == item("a", b"1", revision)

    async def test_watch_across_handles(self, harness: Harness, storage: Storage) -> None:
        """Watches on one handle see the commits of another, with the nine properties."""
        other = await harness.open()
        recorder = await recorder_of(storage)
        asked = [(EVERYTHING, recorder.history.start), (TEST_SPAN, recorder.history.start)]
        async with following(other, asked) as followers:
            log = await random_history(recorder, commits=harness.sizes.commits)
            finish_all(followers, recorder.history.end)
        for follower in followers:
            assert_complete(follower.seen, log, recorder.history.end)

    async def test_expect_across_handles(self, harness: Harness, storage: Storage) -> None:
        """A watch that expects another server's revision soon has all events up to it."""
        other = await harness.open()
        start = await storage.revision()
        for number in range(20):
            revision = await put(storage, "a", b"%d" % number)
            seen = await record(other, TEST_SPAN, after=start, upto=revision)
            assert len(seen.events) == number + 1

    async def test_list_then_watch(self, harness: Harness, storage: Storage) -> None:
        """A list and the watch from its revision give the current state, without a gap."""
        other = await harness.open()
        recorder = await recorder_of(storage)
        asked: list[tuple[dict[str, bytes], Revision]] = []

        async def list_now_and_then() -> None:
            while recorder.history.end < recorder.history.start + harness.sizes.commits // 2:
                page = await other.range(EVERYTHING)
                asked.append(({i.key: i.value for i in page.items}, page.revision))
                await let_others_run(1)

        async with asyncio.TaskGroup() as group:
            group.create_task(list_now_and_then())
            log = await random_history(recorder, commits=harness.sizes.commits)
        end = recorder.history.end
        present = {i.key: i.value for i in (await storage.range(EVERYTHING)).items}
        spans = [(EVERYTHING, revision) for _, revision in asked]
        records = await record_all(other, spans, upto=end)
        for (state, _), seen in zip(asked, records, strict=True):
            assert_complete(seen, log, end)
            for event in seen.events:
                if event.value is None:
                    del state[event.key]
                else:
                    state[event.key] = event.value
            assert state == present
        assert len({revision for _, revision in asked}) > 3, "too few lists to show anything"

    async def test_closed(self, storage: Storage) -> None:
        """A closed handle rejects every call, and closing it again is a no-op."""
        await put(storage, "a")
        now = await storage.revision()
        await storage.close()
        for asking in (
            storage.get(k("a")),
            storage.range(TEST_SPAN),
            storage.count(TEST_SPAN),
            storage.revision(),
            storage.commit(Transaction(writes=(Put(k("a"), b""),))),
            storage.compact(now),
        ):
            with pytest.raises(StorageClosed):
                await asking
        with pytest.raises(StorageClosed):
            storage.revision_now()
        with pytest.raises(StorageClosed):
            await anext(storage.watch(TEST_SPAN, after=now))
        await storage.close()

    async def test_closing_ends_watches(self, storage: Storage) -> None:
        """Closing a handle ends its watches: waiting ones at once, the others on the next read."""
        start = await storage.revision()
        waiting = storage.watch(TEST_SPAN, after=start)
        reading = asyncio.ensure_future(anext(waiting))  # noqa: TID251  (its error is the answer)
        idle = storage.watch(TEST_SPAN, after=start)
        await let_others_run()
        await storage.close()
        for ended in (reading, anext(waiting), anext(idle)):
            with pytest.raises(StorageClosed):
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    await ended

    async def test_closing_answers_everyone(self, harness: Harness) -> None:
        """Every call around the time of a close gets a result or `StorageClosed`."""
        for turns in range(6):
            handle = await harness.open()
            try:
                early = handle.watch(TEST_SPAN, after=await handle.revision())
            except StorageClosed:
                assert turns > 0, "only a store that is one handle stays closed"
                break
            asked = [
                asyncio.ensure_future(asking)  # noqa: TID251  (its error is the answer)
                for asking in (
                    anext(early),
                    _watch(handle, Revision(1)),
                    _watch(handle, Revision(2**40)),
                    handle.range(EVERYTHING),
                    handle.count(EVERYTHING),
                    handle.get(k("a")),
                    handle.revision(),
                    handle.revision(),
                    handle.commit(Transaction(writes=(Put(k(f"other/{turns}"), b""),))),
                )
            ]
            await let_others_run(turns)
            await handle.close()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                answers = await asyncio.gather(*asked, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    assert isinstance(answer, StorageClosed | Compacted), repr(answer)

    async def test_closing_one_of_two(self, harness: Harness, storage: Storage) -> None:
        """Closing one handle does not affect the others and their watches."""
        other = await harness.open()
        recorder = await recorder_of(other)
        async with following(other, [(EVERYTHING, recorder.history.start)]) as followers:
            await let_others_run()
            if other is not storage:
                await storage.close()
            log = await random_history(recorder, commits=10)
            finish_all(followers, recorder.history.end)
        assert_complete(followers[0].seen, log, recorder.history.end)

    async def test_closing_finishes_what_was_begun(
        self, harness: Harness, storage: Storage
    ) -> None:
        """Commits in flight during the close are either done and kept, or rejected completely."""
        async with asyncio.TaskGroup() as group:
            commits = [group.create_task(_put_if_open(storage, f"{n}")) for n in range(20)]
            await let_others_run(2)
            await storage.close()
        if harness.address is None:
            return
        again = await harness.reopen()
        done = {name for name in [commit.result() for commit in commits] if name is not None}
        assert set(await contents(again)) == done


async def _watch(storage: Storage, after: Revision) -> Batch:
    return await anext(storage.watch(EVERYTHING, after=after))


async def _put_if_open(storage: Storage, name: str) -> str | None:
    try:
        await put(storage, name)
    except StorageClosed:
        return None
    return name
