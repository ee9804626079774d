"""Concurrency: no lost update, from many tasks and from several processes."""

from __future__ import annotations

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from restow.aio import Runtime, SeededRandomness
from restow.storage.drivers import open_storage
from restow.storage.interface import (
    EVERYTHING,
    Absent,
    Guard,
    Key,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    ValueIs,
)
from restow.testing.history import History, Recorder, check_history, log_of
from restow.testing.storage_suite.followers import finish_all, following
from restow.testing.storage_suite.harness import Harness
from restow.testing.storage_suite.steps import (
    TEST_SPAN,
    assert_complete,
    commit,
    k,
    let_others_run,
    opened_watch,
    recorder_of,
)

START_SECONDS_MAX: Final = 60.0
"""Timeout for the start of the processes of a test."""

READY: Final = k("ready/")
GO: Final = k("go")
COUNTERS: Final = [k("counter/one"), k("counter/two")]


class ConcurrencySuite:
    async def test_counters_from_many_tasks(self, harness: Harness, storage: Storage) -> None:
        """Counters incremented by compare-and-set from many tasks lose no increment."""
        workers = harness.sizes.workers * 4
        recorder = await recorder_of(storage)
        async with following(storage, [(EVERYTHING, recorder.history.start)]) as followers:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(count_up(recorder, number, harness.sizes.increments))
            finish_all(followers, recorder.history.end)
        await assert_counted(recorder.history, storage, workers * harness.sizes.increments)
        assert_complete(followers[0].seen, log_of(recorder.history), recorder.history.end)

    async def test_counters_from_several_handles(self, harness: Harness, storage: Storage) -> None:
        """Several handles, as of several servers, lose no increment, with concurrent reads."""
        recorder = await recorder_of(storage)
        history = recorder.history
        handles = [Recorder(await harness.open(), history) for _ in range(harness.sizes.workers)]
        counting = asyncio.Event()

        async def read() -> None:
            while not counting.is_set():
                for handle in handles:
                    await handle.range(TEST_SPAN)
                    await handle.range(EVERYTHING, revision=history.end)
                await let_others_run(1)

        async with asyncio.TaskGroup() as readers:
            readers.create_task(read())
            async with asyncio.TaskGroup() as group:
                for number, handle in enumerate(handles):
                    group.create_task(count_up(handle, number, harness.sizes.increments))
            counting.set()
        await assert_counted(history, storage, len(handles) * harness.sizes.increments)

    async def test_counters_from_several_processes(
        self, harness: Harness, storage: Storage
    ) -> None:
        """Several processes lose no increment; a watch in this process sees every increment."""
        recorder = await recorder_of(storage)
        history, sizes = recorder.history, harness.sizes
        async with following(storage, [(EVERYTHING, history.start)]) as followers:
            async with asyncio.TaskGroup() as group:
                workers = group.create_task(run_workers(harness, history.start))
                await release(recorder, sizes.workers)
            for theirs in workers.result():
                history.commits += theirs.commits
                history.ranges += theirs.ranges
            finish_all(followers, history.end)
        await assert_counted(history, storage, sizes.workers * sizes.increments)
        assert_complete(followers[0].seen, log_of(history), history.end)

    async def test_creation_race(self, harness: Harness, storage: Storage) -> None:
        """Of many that create one key, exactly one succeeds, and the others see the winner."""
        handles = [storage, await harness.open()]
        for number in range(10):
            key = k(f"race/{number}")
            outcomes = await asyncio.gather(
                *(
                    handles[who % 2].commit(Transaction((Absent(key),), (Put(key, b"%d" % who),)))
                    for who in range(16)
                )
            )
            winner = await storage.get(key)
            losers = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
            assert len(losers) == 15
            assert all(loser.current == winner for loser in losers)

    async def test_transfers(self, harness: Harness, storage: Storage) -> None:
        """Two keys changed together are never seen apart, by ranges or by watches."""
        recorder = await recorder_of(storage)
        await recorder.commit(Transaction(writes=(Put(k("a"), b"50"), Put(k("b"), b"50"))))
        other = Recorder(await harness.open(), recorder.history)

        async def transfer(via: Recorder, seed: int) -> None:
            randomness = SeededRandomness(seed)
            for _ in range(harness.sizes.increments):
                page = await via.range(TEST_SPAN)
                a, b = page.items
                amount = randomness.randrange(10)
                guards = (ValueIs(a.key, a.value), RevisionIs(b.key, b.revision))
                one = Put(a.key, b"%d" % (int(a.value) - amount))
                two = Put(b.key, b"%d" % (int(b.value) + amount))
                await via.commit(Transaction(guards, (one, two)))

        async with asyncio.TaskGroup() as group:
            for seed in range(harness.sizes.workers):
                group.create_task(transfer(recorder if seed % 2 else other, seed))
        assert check_history(recorder.history) == []
        for read in recorder.history.ranges:
            assert sum(int(found.value) for found in read.page.items) == 100


async def count_up(recorder: Recorder, number: int, increments: int) -> None:
    """Increment two counters alternately, `increments` times in total, with guarded writes."""
    for step in range(increments):
        key = COUNTERS[(number + step) % 2]
        while True:
            current = await recorder.storage.get(key)
            await let_others_run(1)
            value = b"%d" % (int(current.value) + 1 if current else 1)
            guard: Guard = Absent(key)
            if current and step % 3:
                guard = RevisionIs(key, current.revision)
            elif current:
                guard = ValueIs(key, current.value)
            outcome = await recorder.commit(Transaction((guard,), (Put(key, value),)))
            if not isinstance(outcome, Refused):
                break


async def assert_counted(history: History, storage: Storage, total: int) -> None:
    """Assert that the history is valid and the counters add up."""
    assert check_history(history) == []
    found = [await storage.get(key) for key in COUNTERS]
    assert sum(int(item.value) for item in found if item) == total


async def run_workers(harness: Harness, start: Revision) -> list[History]:
    """Run workers in separate processes; as tasks if the store cannot be shared."""
    sizes = harness.sizes
    numbers = range(sizes.workers)
    if harness.address is None:
        storage = await harness.open()
        return await asyncio.gather(
            *(work(storage, start, number, sizes.increments) for number in numbers)
        )
    # Spawned, not forked: neither gRPC nor SQLite survives a fork.
    spawning = multiprocessing.get_context("spawn")
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(sizes.workers, mp_context=spawning) as pool:
        return await asyncio.gather(
            *(
                loop.run_in_executor(
                    pool, work_in_process, harness.address, start, number, sizes.increments
                )
                for number in numbers
            )
        )


async def release(recorder: Recorder, workers: int) -> None:
    """Wait until `workers` workers are ready, then start them."""
    ready = Span.of_prefix(READY)
    async with opened_watch(recorder.storage, ready, after=recorder.history.start) as watch:
        async with asyncio.timeout(START_SECONDS_MAX):
            arrived = 0
            while arrived < workers:
                arrived += len((await anext(watch)).events)
    await commit(recorder, Put(GO, b""))


def work_in_process(address: str, start: Revision, number: int, increments: int) -> History:
    """Open the store by its address and work. The main function of a child process."""

    async def main() -> History:
        storage = await open_storage(address, Runtime.system())
        try:
            return await work(storage, start, number, increments)
        finally:
            await storage.close()

    return asyncio.run(main())


async def work(storage: Storage, start: Revision, number: int, increments: int) -> History:
    """Report readiness, wait for the start signal so that all begin together, and count up."""
    recorder = Recorder(storage, History(start))
    async with opened_watch(storage, Span.of_key(GO), after=start) as watch:
        await commit(recorder, Put(Key(f"{READY}{number}"), b""))
        async with asyncio.timeout(START_SECONDS_MAX):
            await anext(watch)
    await count_up(recorder, number, increments)
    await recorder.range(TEST_SPAN)
    return recorder.history
