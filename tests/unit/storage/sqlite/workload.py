"""A workload whose replies can be compared with the content of the store afterwards.

Each transaction also creates a key of its own, its mark. The marks show which transactions a store
holds, and in which order; replaying those must give exactly its content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import apsw
import pytest

from restow.aio import Runtime
from restow.storage.errors import Compacted, Unavailable
from restow.storage.interface import (
    EVERYTHING,
    Absent,
    Delete,
    Done,
    Event,
    Guard,
    Key,
    Outcome,
    Present,
    Put,
    Refused,
    Revision,
    Storage,
    Transaction,
    Unknown,
    Write,
)
from restow.storage.sqlite import SqliteStorage, open_sqlite, writer
from tests.support.faulty_vfs import FaultyVfs

MARKS: Final = "/restow/marks/"
CHECKPOINT_PAGES: Final = 24
KEYS: Final = 6
NOTHING_COMPACTED: Final = Revision(0)

Answer = Outcome | Unavailable


@dataclass(slots=True)
class Ledger:
    """The requests and their replies."""

    asked: list[Transaction] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    compacted: Revision = NOTHING_COMPACTED

    def ask(self, *writes: Write, guards: tuple[Guard, ...] = ()) -> int:
        """Number a transaction, and add its mark."""
        number = len(self.asked)
        mark = Put(mark_of(number), b"")
        self.asked.append(Transaction(guards, (*writes, mark)))
        return number

    def newest_done(self) -> Revision:
        done = (a.revision for a in self.answers.values() if isinstance(a, Done))
        return max(done, default=Revision(1))


def mark_of(number: int) -> Key:
    return Key(f"{MARKS}{number:05}")


def key_of(number: int) -> Key:
    return Key(f"/restow/data/{number % KEYS}")


async def ask_round(storage: Storage, ledger: Ledger, number: int, vfs: FaultyVfs | None) -> None:
    """Several concurrent transactions: creates, updates, deletes, one that is refused."""
    value = bytes([number % 251]) * (100 + 1700 * (number % 5))
    numbers = [
        ledger.ask(Put(key_of(number), value)),
        ledger.ask(Put(key_of(number + 1), value), Put(Key("/restow/data/shared"), value)),
    ]
    if number % 3 == 1:
        numbers.append(ledger.ask(Delete(key_of(number - 1)), guards=(Absent(Key("/none")),)))
    if number % 4 == 2:
        numbers.append(ledger.ask(Put(key_of(number), b"never"), guards=(Present(Key("/none")),)))
    if number % 6 == 5:
        numbers.append(ledger.ask(Put(Key("/restow/data/large"), value * 6)))
    await asyncio.gather(*(ask(storage, ledger, number, vfs) for number in numbers))


async def ask(storage: Storage, ledger: Ledger, number: int, vfs: FaultyVfs | None) -> None:
    try:
        answer: Answer = await storage.commit(ledger.asked[number])
    except Unavailable as error:
        answer = error
    ledger.answers[number] = answer
    if vfs is not None:
        vfs.mark((number, answer))


async def run(
    storage: Storage, ledger: Ledger, *, rounds: int, vfs: FaultyVfs | None = None
) -> None:
    """The rounds, with a compaction now and then. A round without a fault must succeed."""
    for number in range(rounds):
        fired = vfs.fired if vfs else 0
        first = len(ledger.asked)
        await ask_round(storage, ledger, number, vfs)
        if vfs is None or vfs.fired == fired:
            for asked in range(first, len(ledger.asked)):
                assert isinstance(ledger.answers[asked], Done | Refused), ledger.answers[asked]
        if number % 5 == 4:
            await compact(storage, ledger, vfs)


async def compact(storage: Storage, ledger: Ledger, vfs: FaultyVfs | None) -> None:
    revision = Revision(ledger.newest_done() - 3)
    fired = vfs.fired if vfs else 0
    if revision <= max(ledger.compacted, 1):
        return
    try:
        await storage.compact(revision)
    except (Unavailable, Compacted):
        assert vfs is not None
        assert vfs.fired > fired
    ledger.compacted = revision


async def check(storage: Storage, ledger: Ledger) -> set[int]:
    """Check that the store holds all transactions that were done, none that were refused, and each
    other one completely or not at all. Returns the transactions that it holds.
    """
    page = await storage.range(EVERYTHING)
    marked = {
        int(item.key.removeprefix(MARKS)): item.revision
        for item in page.items
        if item.key.startswith(MARKS)
    }
    for number, answer in ledger.answers.items():
        match answer:
            case Done(revision=revision):
                assert marked.get(number) == revision, f"acknowledged {number} is lost"
            case Unknown():
                pass
            case _:
                assert number not in marked, f"{number} exists, though the reply was {answer!r}"
    numbers = sorted(marked, key=lambda number: marked[number])
    assert page.revision == max(marked.values(), default=1)
    stored = {item.key: (item.value, item.revision) for item in page.items}
    assert stored == replay(ledger, [(number, marked[number]) for number in numbers])
    await _check_past(storage, ledger, marked)
    return set(marked)


async def _check_past(storage: Storage, ledger: Ledger, marked: dict[int, Revision]) -> None:
    """Check that reads in the past, and the log, are consistent with the present."""
    ordered = sorted((revision, number) for number, revision in marked.items())
    if not ordered:
        return
    for revision, _ in ordered[-3:]:
        page = await storage.range(EVERYTHING, revision=revision)
        stored = {item.key: (item.value, item.revision) for item in page.items}
        assert stored == replay(ledger, [(n, r) for r, n in ordered if r <= revision])
    last = ordered[-1][0]
    after = Revision(max(ordered[-3:][0][0] - 1, ledger.compacted, 1))
    if after >= last:
        return
    watch = storage.watch(EVERYTHING, after=after)
    watch.expect(last)
    events: list[Event] = []
    async for batch in watch:
        events += batch.events
        if batch.revision >= last:
            break
    await watch.close()
    seen = [event.key for event in events if event.key.startswith(MARKS)]
    assert seen == [mark_of(number) for revision, number in ordered if revision > after]


def replay(
    ledger: Ledger, held: Sequence[tuple[int, Revision]]
) -> dict[Key, tuple[bytes, Revision]]:
    """The content after these transactions, in this order."""
    content: dict[Key, tuple[bytes, Revision]] = {}
    for number, revision in held:
        for write in ledger.asked[number].writes:
            if isinstance(write, Put):
                content[write.key] = (write.value, revision)
            else:
                content.pop(write.key, None)
    return content


def integrity(path: Path) -> str:
    """SQLite's full integrity check of a file that is closed, or in normal use."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return "; ".join(str(row[0]) for row in connection.execute("PRAGMA integrity_check"))
    finally:
        connection.close()


async def check_file(path: Path, ledger: Ledger) -> set[int]:
    """The same for a file: it opens, holds its content, accepts a write, and is intact."""
    storage = await open_sqlite(path, Runtime.system())
    try:
        held = await check(storage, ledger)
        later = await storage.commit(Transaction((), (Put(Key("/restow/later"), b"x"),)))
        assert isinstance(later, Done)
        assert later.revision > ledger.newest_done()
    finally:
        await storage.close()
    assert integrity(path) == "ok"
    return held


async def open_small(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, vfs: FaultyVfs | None = None
) -> SqliteStorage:
    """A store that checkpoints often, so that a short workload has some."""
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", CHECKPOINT_PAGES)
    return await open_sqlite(path, Runtime.system(), vfs=vfs.name if vfs else None)
