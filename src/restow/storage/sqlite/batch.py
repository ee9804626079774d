"""What a group of transactions does to the tables, inside one SQLite transaction.

Synchronous and without waiting: the writer decides in which thread, and commits. Guards are
checked before anything of their transaction is written, so a refused one needs no undoing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import apsw

from restow.storage.checks import holds
from restow.storage.feed import Entry
from restow.storage.interface import (
    Done,
    Event,
    Item,
    Key,
    Outcome,
    Put,
    Refused,
    Revision,
    Transaction,
    Write,
)
from restow.storage.sqlite import schema

Execute = Callable[..., "apsw.Cursor"]
_Rows = dict[Key, Any]  # rows as GET_PLACE gives them, or None

OPERATION_WORK: Final = 4096
"""What an operation costs beside its value: as much as to move so many bytes."""


class Applied(NamedTuple):
    """What a batch came to, once it is committed."""

    before: Revision
    after: Revision
    outcomes: list[Outcome]
    entries: list[Entry]


def apply(
    connection: apsw.Connection,
    transactions: Iterable[Transaction],
    *,
    work_max: float = math.inf,
) -> Applied:
    """Do what the transactions ask for, in their order, each at a revision of its own.

    Stops when it has done enough work: what has no outcome then was not begun.
    """
    execute = connection.execute
    before = revision = read_revision(connection)
    outcomes: list[Outcome] = []
    entries: list[Entry] = []
    work = 0
    for transaction in transactions:
        if work > work_max:
            break
        rows: _Rows = {}
        refused = _check_guards(execute, transaction, revision, rows)
        if refused is not None:
            outcomes.append(refused)
            continue
        events = _write_all(execute, transaction.writes, Revision(revision + 1), rows)
        work += OPERATION_WORK * len(transaction.guards)
        if events:
            work += sum(map(work_of_event, events))
            revision = Revision(revision + 1)
            entries.append(Entry(revision, events))
        outcomes.append(Done(revision))
    if revision != before:
        execute(schema.SET_REVISION, (revision,))
    return Applied(before, revision, outcomes, entries)


def work_of(value: bytes | None) -> int:
    """For how long an operation on this value keeps the loop, in bytes moved."""
    return OPERATION_WORK + (len(value) if value else 0)


def work_of_event(event: Event) -> int:
    return work_of(event.value) + (len(event.previous.value) if event.previous else 0)


def read_revision(connection: apsw.Connection) -> Revision:
    (value,) = connection.execute(schema.REVISION).fetchone() or (0,)
    return Revision(_integer(value))


def read_compacted(connection: apsw.Connection) -> Revision:
    (value,) = connection.execute(schema.COMPACTED).fetchone() or (0,)
    return Revision(_integer(value))


def read_item(execute: Execute, key: Key) -> Item | None:
    row: Any = execute(schema.GET, (key,)).fetchone()
    return None if row is None else Item(*row)


def _check_guards(
    execute: Execute, transaction: Transaction, revision: Revision, rows: _Rows
) -> Refused | None:
    for guard in transaction.guards:
        row = rows[guard.key] = execute(schema.GET_PLACE, (guard.key,)).fetchone()
        current = None if row is None else Item(*row[:4])
        if not holds(guard, current):
            return Refused(guard, current, revision)
    return None


def _write_all(
    execute: Execute, writes: tuple[Write, ...], revision: Revision, rows: _Rows
) -> tuple[Event, ...]:
    """Write; `rows` holds what the guards have read already."""
    events: list[Event] = []
    place = (revision << schema.SUB_BITS) - 1
    for write in writes:
        place += 1
        key = write.key
        row = rows[key] if key in rows else execute(schema.GET_PLACE, (key,)).fetchone()
        value = write.value if isinstance(write, Put) else None
        if row is None:
            if value is None:
                continue  # nothing to delete
            execute(schema.ADD_KEY, (key, place, revision))
            old, created, replaced = None, revision, None
        else:
            old, created, replaced = Item(*row[:4]), row[3], row[4]
            if value is None:
                execute(schema.REMOVE_KEY, (key,))
            else:
                execute(schema.MOVE_KEY, (place, key))
        if value is not None:
            execute(schema.ADD_VERSION, (place, value))
        execute(schema.ADD_CHANGE, (place, key, value is None, created, replaced))
        events.append(Event(key, value, revision, created, old))
    return tuple(events)


def _integer(value: Any) -> int:
    assert isinstance(value, int)
    return value
