"""Reading the log of a store; a log with contradictions is detected."""

from __future__ import annotations

from restow.storage.feed import RevisionEvents
from restow.storage.interface import Delete, Event, Key, Put, Revision, Transaction
from restow.storage.memory import MemoryStorage
from tests.support.fire.truth import check_log, read_truth, truth_of

A, B = Key("/restow/a"), Key("/restow/b")


async def filled() -> MemoryStorage:
    storage = MemoryStorage()
    for writes in ((Put(A, b"1"),), (Put(B, b"2"), Put(A, b"3")), (Delete(A),)):
        await storage.commit(Transaction(writes=writes))
    return storage


async def test_read() -> None:
    """Every revision is complete, and every state can be read."""
    storage = await filled()
    truth, problems = await read_truth(storage)
    assert problems == []
    assert [entry.revision for entry in truth.log] == [2, 3, 4]
    assert len(truth.log[1].events) == 2
    states = truth.states_between(A, 1, 4)
    assert [None if item is None else item.value for item in states] == [None, b"1", b"3", None]
    assert truth.event_at(A, 3) is not None
    assert truth.event_at(B, 2) is None
    await storage.close()


def test_contradiction() -> None:
    """An event with a wrong previous value."""
    first = Event(A, b"1", Revision(2), Revision(2), None)
    wrong = Event(A, b"2", Revision(3), Revision(3), None)
    ghost = Event(B, None, Revision(4), Revision(2), None)
    log = [RevisionEvents(event.revision, (event,)) for event in (first, wrong, ghost)]
    problems = check_log(truth_of(log))
    assert "replayed it is" in problems[0]
    assert problems[1] == "log: 4 deletes a key that does not exist"


async def test_range_differs() -> None:
    """A store whose content differs from its log."""

    class Forgetful(MemoryStorage):
        async def range(self, *args: object, **more: object):  # type: ignore[no-untyped-def]
            page = await super().range(*args, **more)  # type: ignore[arg-type]
            return page._replace(items=page.items[1:])

    storage = Forgetful()
    await storage.commit(Transaction(writes=(Put(A, b"1"),)))
    _, problems = await read_truth(storage)
    assert problems == [f"store at 2 differs from its log: [{str(A)!r}]"]
    await storage.close()
