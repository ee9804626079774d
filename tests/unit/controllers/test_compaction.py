"""Automatic compaction keeps one interval of history."""

import pytest

from restow.controllers.compaction import Compactor
from restow.storage.errors import Compacted, Unavailable
from restow.storage.interface import Key, Put, Revision, Transaction
from restow.storage.memory import MemoryStorage

KEY = Key("/restow/x")


async def put(storage: MemoryStorage) -> Revision:
    await storage.commit(Transaction((), (Put(KEY, b"x"),)))
    return await storage.revision()


async def test_each_step_compacts_up_to_the_one_before() -> None:
    """Revisions since the last step stay readable, older ones do not."""
    storage = MemoryStorage()
    compactor = Compactor(storage)
    first = await put(storage)
    second = await put(storage)
    assert await compactor.step() is None
    third = await put(storage)
    assert await compactor.step() == second
    assert await storage.get(KEY, revision=second) is not None
    with pytest.raises(Compacted):
        await storage.get(KEY, revision=first)
    assert await compactor.step() == third
    assert await compactor.step() is None, "no new revisions to compact"


async def test_another_compactor_may_be_faster() -> None:
    """History that another server has compacted already is not an error."""
    storage = MemoryStorage()
    compactor = Compactor(storage)
    await put(storage)
    await compactor.step()
    await storage.compact(await put(storage))
    assert await compactor.step() is None
    newest = await put(storage)
    await compactor.step()
    await put(storage)
    assert await compactor.step() == newest


async def test_a_failed_step_keeps_more_history_not_less() -> None:
    """After a failed compaction, the next step compacts only up to the recorded revision."""

    class Failing(MemoryStorage):
        fails = True

        async def compact(self, revision: Revision) -> None:
            if self.fails:
                raise Unavailable("not now")
            await super().compact(revision)

    storage = Failing()
    compactor = Compactor(storage)
    seen = await put(storage)
    await compactor.step()
    await put(storage)
    with pytest.raises(Unavailable):
        await compactor.step()
    storage.fails = False
    await put(storage)
    assert await compactor.step() == seen
