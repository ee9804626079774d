"""Ranges in pages, and the batched request for the revision."""

import asyncio
from collections.abc import Awaitable

import pytest

from restow.aio import Runtime
from restow.storage.errors import Unavailable
from restow.storage.etcd import EtcdStorage
from restow.storage.etcd.reader import PAGE_KEYS_FIRST, SharedRequest
from restow.storage.interface import Done, Key, Put, Revision, Span, Transaction
from tests.support.etcd_process import EtcdCluster
from tests.unit.storage.etcd.conftest import Opener

KEYS = 3 * PAGE_KEYS_FIRST + 7
SPAN = Span.of_prefix("/many/")


async def _fill(storage: EtcdStorage) -> Revision:
    keys = [Key(f"/many/{number:05}") for number in range(KEYS)]
    outcomes = await asyncio.gather(
        *(storage.commit(Transaction(writes=(Put(key, b"v" * 100),))) for key in keys)
    )
    return max(outcome.revision for outcome in outcomes if isinstance(outcome, Done))


async def test_a_large_range_is_one_snapshot(etcd: EtcdCluster, opened: Opener) -> None:
    """All items are of one revision, whatever the page size, during writes and compactions."""
    async with opened(*etcd.endpoints) as storage:
        await _fill(storage)

        async def disturb() -> None:
            for number in range(200):
                await storage.commit(Transaction(writes=(Put(Key("/many/00000"), b"%d" % number),)))

        disturbing = asyncio.create_task(disturb())
        while not disturbing.done():
            page = await storage.range(SPAN, with_total=True)
            assert (len(page.items), page.total, page.more) == (KEYS, KEYS, False)
            assert max(item.revision for item in page.items) <= page.revision
            assert page.items == sorted(page.items)
        await disturbing
        limited = await storage.range(SPAN, limit=PAGE_KEYS_FIRST + 3, with_total=True)
        assert (len(limited.items), limited.total) == (PAGE_KEYS_FIRST + 3, KEYS)
        assert limited.more


class _Requests:
    """Counts the requests; replies on demand."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Revision]] = []

    def ask(self) -> Awaitable[Revision]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


async def test_callers_join_only_a_request_that_was_not_sent(runtime: Runtime) -> None:
    """Callers during a request in flight share the reply to the next one, however many."""
    question = _Requests()
    async with runtime.tasks("test") as tasks:
        shared = SharedRequest(question.ask, tasks)
        early = [asyncio.create_task(shared.answer()) for _ in range(3)]
        await asyncio.sleep(0.01)
        late = [asyncio.create_task(shared.answer()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert len(question.asked) == 1
        question.asked[0].set_result(Revision(5))
        assert await asyncio.gather(*early) == [5, 5, 5]
        await asyncio.sleep(0.01)
        assert len(question.asked) == 2
        assert not any(task.done() for task in late)
        question.asked[1].set_result(Revision(6))
        assert await asyncio.gather(*late) == [6, 6, 6]


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_failed_request_fails_its_callers_only(
    runtime: Runtime,
    cancelled: bool,
) -> None:
    """An error fails only its callers, the next request is sent, and no caller keeps waiting."""
    question = _Requests()
    async with runtime.tasks("test") as tasks:
        shared = SharedRequest(question.ask, tasks)
        caller = asyncio.create_task(shared.answer())
        await asyncio.sleep(0.01)
        if cancelled:
            caller.cancel()
        question.asked[0].set_exception(Unavailable("no"))
        with pytest.raises(asyncio.CancelledError if cancelled else Unavailable):
            await caller
        again = asyncio.create_task(shared.answer())
        await asyncio.sleep(0.01)
        question.asked[1].set_result(Revision(7))
        assert await again == 7
