"""Conditions that end a rewrite, or prevent its start."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from restow.apimachinery.status import TooManyRequests
from restow.apimachinery.status_error import StatusError
from restow.storage.interface import Put, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion import rewrite, rewrite_page
from restow.storageversion.records import EpochRecord, encode_epoch, epoch_key
from restow.storageversion.rewrite_plan import Aborted
from tests.unit.storageversion.rewrite_checks import check_fence, check_selection
from tests.unit.storageversion.rewrite_world import (
    NAME,
    ROOT,
    V1,
    V2,
    Rewriting,
    fill,
    key_of,
    rewriting,
)
from tests.unit.storageversion.world import open_world


async def test_without_agreement_nothing_is_rewritten(tmp_path: Path) -> None:
    """Another target, another epoch, no agreement: nothing is written."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 3)
        epoch = (await it.world.epoch()).epoch
        with pytest.raises(Aborted, match=r"in example.com/v2, not in example.com/v1"):
            await it.page(target_version=V1)
        with pytest.raises(Aborted, match=f"its epoch is {epoch}, not {epoch - 1}"):
            await it.page(epoch=epoch - 1)
        assert (await it.page(limit=1, epoch=epoch)).rewritten == 1
        await it.world.started("x+1")  # writes v1
        with pytest.raises(Aborted, match="do not agree"):
            await it.page()
        it.server.coordinator.table.close(it.resource, error="why not")
        with pytest.raises(StatusError, match="why not") as refused:
            await it.page()
        assert refused.value.code == 503
        assert await it.versions() == {V1: 2, V2: 1}


async def test_the_epoch_is_read_before_the_objects(tmp_path: Path) -> None:
    """Otherwise a write without agreement could be hidden by a later agreement."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 3)
        await it.page()
        epoch_at = it.line.trace.index(f"get {epoch_key(NAME)}")
        reads = [at for at, step in enumerate(it.line.trace) if step.startswith(f"range {ROOT}")]
        assert epoch_at < min(reads)


async def test_an_agreement_that_changes_ends_the_page_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although this server still writes the target, the rewrite would verify nothing."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_FIRST", 4)
        monkeypatch.setattr(rewrite_page, "READ_ITEMS_MAX", 4)
        moved = EpochRecord(epoch=2, kind="Widget")

        async def disagree(_: Transaction) -> None:
            put = Put(epoch_key(NAME), encode_epoch(moved))
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))

        for count, rewritten in ((20, range(1, 9)), (3, range(1, 4))):
            first = encode_epoch(EpochRecord(epoch=1, kind="Widget", version=V2))
            put = Put(epoch_key(NAME), first)
            await MemoryStorage.commit(it.world.storage, Transaction(writes=(put,)))
            await fill(it.world, 20)
            it.line.before = disagree
            start = "" if count == 20 else key_of("w017")
            with pytest.raises(Aborted, match="has changed meanwhile"):
                await it.page(start_key=start)
            assert (await it.versions())[V2] in rewritten


async def test_too_many_concurrent_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page above the limit is rejected without an effect on others; two concurrent pages cause no
    errors."""
    async with rewriting(tmp_path) as it:
        monkeypatch.setattr(rewrite, "PAGES_AT_ONCE_MAX", 2)
        await fill(it.world, 20)
        it.line.chance = random.Random(1)
        begun = [
            asyncio.ensure_future(it.rewriter.rewrite_page(it.resource, target_version=V2))
            for _ in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests):
            await it.rewriter.rewrite_page(it.resource, target_version=V2)
        pages = await asyncio.gather(*begun)
        assert sum(page.rewritten for page in pages) == 20
        assert await it.versions() == {V2: 20}
        assert (await it.page()).skipped == 20


async def test_a_failed_fence_aborts(tmp_path: Path) -> None:
    """Nothing is encoded again or committed after this server has lost the right to write."""
    async with rewriting(tmp_path) as it:
        await check_fence(it)


async def test_a_selection_aborts(tmp_path: Path) -> None:
    """The same with a vote."""
    async with open_world(tmp_path) as world:
        it = Rewriting(world, await world.started("x+2", mode="strict"))
        await check_selection(it)
        world.storage.broken.clear()  # violations caused by the test itself


async def test_a_change_between_two_objects_aborts(tmp_path: Path) -> None:
    """A server that observes another version sends no more rewrites."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 5)
        encoding = it.server.coordinator.table.encoding(it.resource)

        async def switch(_: Transaction) -> None:
            it.server.coordinator.table.open(it.resource, encoding._replace(api_version=V1))

        it.line.before = switch
        with pytest.raises(Aborted, match=r"in example.com/v1 now, not in example.com/v2"):
            await it.page()
        # One was in flight, under its own fence.
        assert await it.versions() in ({V1: 5}, {V1: 4, V2: 1})


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_is_checked(tmp_path: Path, when: str) -> None:
    """Whether or not it was carried out, the object ends in the target version."""
    async with rewriting(tmp_path) as it:
        await fill(it.world, 1)
        it.line.lose = when
        page = await it.page()
        assert (page.rewritten, page.settled) == ((1, 0) if when == "before" else (0, 1))
        assert await it.versions() == {V2: 1}
