"""The checkers of histories: each detects its violation."""

import pytest

from restow.storage.interface import (
    EVERYTHING,
    Absent,
    Delete,
    Done,
    Guard,
    Item,
    Key,
    Outcome,
    Present,
    Put,
    RangePage,
    Refused,
    Revision,
    RevisionIs,
    Span,
    Storage,
    Transaction,
    Unknown,
    ValueIs,
    Write,
)
from restow.storage.memory import MemoryStorage
from restow.testing.history import (
    CommitRecord,
    History,
    RangeRecord,
    Recorder,
    check_history,
    check_legal,
    check_reads,
    check_real_time,
    log_of,
)

A, B = Key("/a"), Key("/b")
START = Revision(10)
HELD = Item(A, b"0", Revision(5), Revision(5))


def commit(
    outcome: Outcome, *writes: Write, guards: tuple[Guard, ...] = (), at: tuple[float, float]
) -> CommitRecord:
    return CommitRecord(*at, Transaction(guards, writes), outcome)


def done(
    revision: int, *writes: Write, guards: tuple[Guard, ...] = (), at: tuple[float, float] = (0, 99)
) -> CommitRecord:
    return commit(Done(Revision(revision)), *writes, guards=guards, at=at)


def refused(guard: Guard, current: Item | None, revision: int, *guards: Guard) -> CommitRecord:
    outcome = Refused(guard, current, Revision(revision))
    return commit(outcome, Put(A, b""), guards=guards or (guard,), at=(0, 99))


def read(
    revision: int, *items: Item, at: tuple[float, float] = (0, 99), pinned: bool = False
) -> RangeRecord:
    page = RangePage(list(items), Revision(revision), False, None)
    return RangeRecord(*at, EVERYTHING, page, pinned)


def history(*records: CommitRecord | RangeRecord) -> History:
    """A history that starts at revision 10 with `/a` = 0, created at 5."""
    return History(
        START,
        [HELD],
        [record for record in records if isinstance(record, CommitRecord)],
        [record for record in records if isinstance(record, RangeRecord)],
    )


def item(key: Key, value: bytes, revision: int, created: int | None = None) -> Item:
    return Item(key, value, Revision(revision), Revision(created or revision))


PUT_A, PUT_B = Put(A, b"1"), Put(B, b"1")
A_11 = item(A, b"1", 11, 5)

LEGAL = {
    "empty": history(),
    "in any order": history(done(12, PUT_B), done(11, PUT_A)),
    "guards": history(
        done(11, PUT_A, guards=(RevisionIs(A, Revision(5)), ValueIs(A, b"0"), Absent(B))),
        done(12, Delete(A), guards=(RevisionIs(A, Revision(11)), Present(A))),
        done(13, PUT_A, guards=(Absent(A),)),
    ),
    "deletion of nothing": history(done(11, PUT_A), done(11, Delete(B)), done(10, Delete(B))),
    "deletion, and again": history(done(11, Delete(A)), done(11, Delete(A))),
    "refused": history(
        done(11, PUT_A), refused(ValueIs(A, b"1"), HELD, 10), refused(Present(B), None, 11)
    ),
    "refused for the second": history(refused(Absent(A), HELD, 10, Present(A), Absent(A))),
    "reads": history(done(11, PUT_A), read(10, HELD), read(11, A_11)),
}

ILLEGAL = {
    "one revision for two": history(done(11, PUT_A), done(11, PUT_B)),
    "a revision is missing": history(done(12, PUT_A)),
    "a revision of the past": history(done(10, PUT_A)),
    "guard did not hold": history(done(11, PUT_A, guards=(Absent(A),))),
    "lost update": history(
        done(11, PUT_A, guards=(RevisionIs(A, Revision(5)),)),
        done(12, PUT_A, guards=(RevisionIs(A, Revision(5)),)),
    ),
    "stale value": history(done(11, PUT_A), done(12, PUT_A, guards=(ValueIs(A, b"0"),))),
    "deletion without a revision": history(done(10, Delete(A))),
    "two deletions of one key": history(done(11, Delete(A)), done(12, Delete(A))),
    "guard of a deletion of nothing": history(done(10, Delete(B), guards=(Absent(A),))),
    "refused though it held": history(refused(Present(A), HELD, 10)),
    "refused for a later guard": history(refused(Absent(A), HELD, 10, Present(B), Absent(A))),
    "refused with an old item": history(done(11, PUT_A), refused(Absent(A), HELD, 11)),
    "refused with nothing": history(refused(Absent(A), None, 10)),
    "unknown": history(commit(Unknown("lost"), PUT_A, at=(0, 1))),
}

UNTIMELY = {
    "older than one before it": history(done(12, PUT_A, at=(1, 2)), done(11, PUT_B, at=(3, 4))),
    "refused in the past": history(
        done(11, PUT_A, at=(1, 2)),
        commit(Refused(Present(B), None, START), PUT_B, guards=(Present(B),), at=(3, 4)),
    ),
    "stale read": history(done(11, PUT_A, at=(1, 2)), read(10, HELD, at=(3, 4))),
    "reads go back": history(
        done(11, PUT_A, at=(0, 9)), read(11, A_11, at=(1, 2)), read(10, HELD, at=(3, 4))
    ),
    "written before it began": history(read(11, A_11, at=(1, 2)), done(11, PUT_A, at=(3, 4))),
}

TIMELY = {
    "side by side": history(done(12, PUT_A, at=(1, 3)), done(11, PUT_B, at=(2, 4))),
    "one after the other": history(done(11, PUT_A, at=(1, 2)), done(12, PUT_B, at=(3, 4))),
    "read of the past on purpose": history(
        done(11, PUT_A, at=(1, 2)), read(10, HELD, at=(3, 4), pinned=True)
    ),
    "read beside a write": history(done(11, PUT_A, at=(1, 4)), read(10, HELD, at=(2, 3))),
}

MISREAD = {
    "old value": history(done(11, PUT_A), read(11, HELD)),
    "new value": history(done(11, PUT_A), read(10, A_11)),
    "key missing": history(read(10)),
    "key too many": history(read(10, HELD, item(B, b"1", 10))),
    "wrong creation": history(done(11, PUT_A), read(11, item(A, b"1", 11))),
    "half a transaction": history(done(11, PUT_A, PUT_B), read(11, A_11)),
    "pinned": history(done(11, PUT_A), read(11, HELD, pinned=True)),
}


@pytest.mark.parametrize("case", LEGAL.values(), ids=LEGAL.keys())
def test_legal(case: History) -> None:
    """Results that one store could have returned are legal."""
    assert check_history(case) == []


@pytest.mark.parametrize("case", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_illegal(case: History) -> None:
    """Results that no single store could have returned are found by replay."""
    assert check_legal(case) != []
    assert check_history(case) != []


@pytest.mark.parametrize("case", UNTIMELY.values(), ids=UNTIMELY.keys())
def test_untimely(case: History) -> None:
    """An operation ordered before one that had ended when it began is found."""
    assert check_real_time(case) != []
    assert check_history(case) != []


@pytest.mark.parametrize("case", TIMELY.values(), ids=TIMELY.keys())
def test_timely(case: History) -> None:
    """Concurrent operations may be in either order."""
    assert check_history(case) == []


@pytest.mark.parametrize("case", MISREAD.values(), ids=MISREAD.keys())
def test_misread(case: History) -> None:
    """A range that differs from the state at its revision is found."""
    assert check_reads(case) != []
    assert check_history(case) != []


def test_end() -> None:
    """A history ends with the newest revision that was acknowledged."""
    assert history().end == START
    assert history(done(12, PUT_B), done(11, PUT_A)).end == 12


def test_log() -> None:
    """The log of a history has each commit's events, with previous values."""
    entries = log_of(history(done(11, PUT_A, Delete(B)), done(12, Delete(A)), done(12, Delete(A))))
    first, second = entries
    assert [(e.key, e.value, e.created, e.previous) for e in first.events] == [(A, b"1", 5, HELD)]
    assert [(e.key, e.value, e.created, e.previous) for e in second.events] == [(A, None, 5, A_11)]


async def test_recorder() -> None:
    """The recorded history of a correct store is valid."""
    storage: Storage = MemoryStorage()
    recorder = Recorder(storage, History(await storage.revision()))
    for number in range(20):
        guards = (ValueIs(A, b"%d" % (number - 1)),) if number % 3 else ()
        writes = (Put(A, b"%d" % number), Delete(B) if number % 2 else Put(B, b""))
        await recorder.commit(Transaction(guards, writes))
        await recorder.commit(Transaction((Absent(A),), (Delete(B),)))
        await recorder.range(EVERYTHING)
        await recorder.range(Span.of_key(A), revision=recorder.history.start)
    assert check_history(recorder.history) == []
    assert len(recorder.history.commits) == 40
    assert len(recorder.history.ranges) == 40


class LosingStorage(MemoryStorage):
    """Ignores guards."""

    async def commit(self, transaction: Transaction) -> Outcome:
        return await super().commit(Transaction((), transaction.writes))


async def test_recorder_of_a_bad_store() -> None:
    """A store that loses updates is detected by its own results."""
    storage: Storage = LosingStorage()
    recorder = Recorder(storage, History(await storage.revision()))
    for value in (b"1", b"2"):
        await recorder.commit(Transaction((Absent(A),), (Put(A, value),)))
    assert check_history(recorder.history) != []
