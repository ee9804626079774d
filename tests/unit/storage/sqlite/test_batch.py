"""A batch writes its rows at its end, which its transactions must not be able to observe."""

import asyncio
from pathlib import Path

from restow.aio import Runtime
from restow.storage.interface import (
    REVISION_FIRST,
    Absent,
    Delete,
    Done,
    Key,
    Present,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Transaction,
    ValueIs,
)
from restow.storage.sqlite import open_sqlite

A, B = Key("/restow/a"), Key("/restow/b")


async def test_one_batch_sees_its_own_writes(fast_path: Path) -> None:
    """Guards and tables reflect the earlier transactions of the same batch."""
    storage = await open_sqlite(fast_path / "store", Runtime.system())
    await storage.commit(Transaction((), (Put(A, b"0"),)))
    submitted = [
        storage._writer.submit(transaction)
        for transaction in (
            Transaction((ValueIs(A, b"0"),), (Put(A, b"1"),)),  # 3
            Transaction((ValueIs(A, b"0"),), (Put(A, b"never"),)),
            Transaction((RevisionIs(A, Revision(3)), Absent(B)), (Put(B, b"2"),)),  # 4
            Transaction((Present(B),), (Delete(B), Delete(A))),  # 5
            Transaction((Absent(A),), (Put(A, b"3"),)),  # 6
            Transaction((Absent(B),), (Delete(B),)),
        )
    ]
    outcomes = await asyncio.gather(*submitted)
    revisions = [each.revision for each in outcomes if isinstance(each, Done)]
    assert revisions == [3, 4, 5, 6, 6]
    (refused,) = [each for each in outcomes if isinstance(each, Refused)]
    assert refused.current is not None
    assert refused.current.value == b"1"
    found = await storage.range(Span.of_prefix("/restow/"))
    assert found.items == [(A, b"3", 6, 6)], "its row must have the new creation revision"
    await storage.close()
    again = await open_sqlite(fast_path / "store", Runtime.system())
    assert (await again.range(Span.of_prefix("/restow/"))).items == found.items
    assert (await again.range(Span.of_prefix("/restow/"), revision=Revision(4))).items == [
        (A, b"1", 3, 2),
        (B, b"2", 4, 4),
    ]
    await again.close()


async def test_the_log_of_a_batch_is_complete(fast_path: Path) -> None:
    """Every change is in the log with the value it replaced, even one of the same batch."""
    storage = await open_sqlite(fast_path / "store", Runtime.system())
    writes = (Put(A, b"1"), Put(A, b"2"), Delete(A), Put(A, b"3"))
    await asyncio.gather(*(storage._writer.submit(Transaction((), (write,))) for write in writes))
    await storage.close()
    again = await open_sqlite(fast_path / "store", Runtime.system())
    watch = again.watch(Span.of_key(A), after=REVISION_FIRST)
    events = (await anext(watch)).events
    told = [(each.value, each.created, each.previous and each.previous.value) for each in events]
    assert told == [(b"1", 2, None), (b"2", 2, b"1"), (None, 2, b"2"), (b"3", 5, None)]
    await watch.close()
    await again.close()
