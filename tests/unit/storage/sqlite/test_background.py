"""Low-priority transactions: others go first, and they are executed all the same."""

import asyncio
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Absent,
    Done,
    Key,
    Outcome,
    Put,
    Refused,
    Revision,
    Transaction,
)
from restow.storage.sqlite import open_sqlite, writer
from restow.storage.sqlite.batch import apply
from restow.storage.sqlite.writer import BACKGROUND_MAX, BATCH_TRANSACTIONS_MAX

LARGE_BYTES = 1_000_000


def put(name: str, *, in_background: bool, nbytes: int = 1) -> Transaction:
    write = Put(Key(f"/restow/{name}"), b"v" * nbytes)
    return Transaction((), (write,), in_background=in_background)


def revision(outcome: Outcome) -> Revision:
    assert isinstance(outcome, Done)
    return outcome.revision


async def test_others_go_first(fast_path: Path) -> None:
    """Later normal transactions are committed earlier; each queue keeps its own order."""
    storage = await open_sqlite(fast_path / "db", Runtime.system())
    count = 3 * BATCH_TRANSACTIONS_MAX
    behind = [storage._writer.submit(put(f"b{n}", in_background=True)) for n in range(count)]
    first = [storage._writer.submit(put(f"a{n}", in_background=False)) for n in range(count)]
    slow = [revision(each) for each in await asyncio.gather(*behind)]
    fast = [revision(each) for each in await asyncio.gather(*first)]
    assert fast == sorted(fast)
    assert slow == sorted(slow)
    # Each batch of others includes some of them, so that they are never starved.
    batches = count // BATCH_TRANSACTIONS_MAX
    between = [each for each in slow if each < fast[-1]]
    assert len(between) == (batches - 1) * BACKGROUND_MAX
    assert len({*slow, *fast}) == 2 * count
    await storage.close()


async def test_a_batch_has_few_of_them(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even without other transactions, so that a later one does not wait for long."""
    storage = await open_sqlite(fast_path / "db", Runtime.system())
    sizes: list[int] = []

    def counted(connection: object, transactions: list[Transaction], **rest: float) -> object:
        sizes.append(len(transactions))
        return apply(connection, transactions, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "apply", counted)
    many = [storage._writer.submit(put(f"b{n}", in_background=True)) for n in range(100)]
    await asyncio.gather(*many)
    assert max(sizes) == BACKGROUND_MAX
    assert sum(sizes) == 100
    await storage.close()


async def test_a_full_batch_keeps_the_queues(fast_path: Path) -> None:
    """Transactions that were taken but not begun, because of the limit, return to their queue."""
    storage = await open_sqlite(fast_path / "db", Runtime.system())
    large = [
        storage._writer.submit(put(f"l{n}", in_background=n % 2 == 0, nbytes=LARGE_BYTES))
        for n in range(12)
    ]
    done = [revision(each) for each in await asyncio.gather(*large)]
    assert len(set(done)) == 12
    assert done[1::2] == sorted(done[1::2])
    assert done[::2] == sorted(done[::2])
    assert done[1] < done[0]
    await storage.close()


async def test_they_are_transactions_like_any_other(fast_path: Path) -> None:
    """Guards count, a cancelled one leaves nothing behind, and the queue has a limit."""
    storage = await open_sqlite(fast_path / "db", Runtime.system())
    taken = put("a", in_background=True)
    await storage.commit(taken)
    guard = Absent(Key("/restow/a"))
    outcome = await storage.commit(Transaction((guard,), taken.writes, in_background=True))
    assert isinstance(outcome, Refused)
    given_up = storage._writer.submit(put("c", in_background=True))
    given_up.cancel()
    await storage.commit(put("d", in_background=True))
    assert await storage.get(Key("/restow/c")) is None
    waiting = [
        storage._writer.submit(put("e", in_background=True)) for _ in range(writer.WAITING_MAX)
    ]
    with pytest.raises(Unavailable):
        _ = storage._writer.submit(put("e", in_background=True))
    await storage.commit(put("f", in_background=False))
    for each in waiting:
        each.cancel()
    await storage.close()
