"""Applies a group of transactions to the tables, inside one SQLite transaction.

Synchronous and without waiting: the writer chooses the thread, and commits. The guards of a
transaction are checked before its first write, so a refused one needs no undo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import apsw

from restow.storage.checks import holds
from restow.storage.errors import StoreDamaged
from restow.storage.feed import RevisionEvents
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

OPERATION_WORK: Final = 4096
"""Fixed cost of an operation beside its value, in bytes moved."""


class Applied(NamedTuple):
    """The result of a batch, once it is committed."""

    before: Revision
    after: Revision
    outcomes: list[Outcome]
    entries: list[RevisionEvents]


def apply(
    connection: apsw.Connection,
    transactions: Iterable[Transaction],
    *,
    work_max: float = math.inf,
) -> Applied:
    """Execute the transactions in their order, each at a revision of its own.

    Stops when the work limit is reached: transactions without an outcome were not begun.
    """
    before = revision = read_revision(connection)
    state = _State(connection)
    outcomes: list[Outcome] = []
    entries: list[RevisionEvents] = []
    work = 0
    for transaction in transactions:
        if work > work_max:
            break
        refused = _check_guards(state, transaction, revision)
        if refused is not None:
            outcomes.append(refused)
            continue
        events = _write_all(state, transaction.writes, Revision(revision + 1))
        work += OPERATION_WORK * len(transaction.guards)
        if events:
            for event in events:
                work += work_of_event(event)
            revision = Revision(revision + 1)
            entries.append(RevisionEvents(revision, events))
        outcomes.append(Done(revision))
    if revision != before:
        state.save()
        connection.execute(schema.SET_REVISION, (revision,))
    return Applied(before, revision, outcomes, entries)


class _State:
    """The keys that a batch has read, as its transactions have left them so far.

    The tables are updated at the end, when all rows of a table can be written by one statement.
    Until then they are stale, so a batch must read keys only through this class.
    """

    __slots__ = ("_changes", "_cursor", "_items", "_places", "_stored", "_versions")

    def __init__(self, connection: apsw.Connection) -> None:
        self._cursor = connection.cursor()
        self._items: dict[Key, Item | None] = {}
        self._places: dict[Key, int] = {}
        """Places of the values of the existing keys."""
        self._stored: dict[Key, bool] = {}
        """The keys to be written, and whether the table has them."""
        self._versions: list[tuple[int, bytes]] = []
        self._changes: list[tuple[int, Key, bool, int, int | None]] = []

    def item(self, key: Key) -> Item | None:
        """The current item of a key."""
        items = self._items
        if key in items:
            return items[key]
        row: Any = self._cursor.execute(schema.GET_PLACE, (key,)).fetchone()
        if row is None:
            items[key] = None
            return None
        item = items[key] = Item(*row[:4])
        self._places[key] = row[4]
        return item

    def put(self, key: Key, value: bytes, *, place: int) -> Event:
        """Set the value of a key."""
        revision = Revision(place >> schema.SUB_BITS)
        previous = self._items[key]
        created = revision if previous is None else previous.created
        self._note(key, previous)
        self._changes.append((place, key, False, created, self._places.get(key)))
        self._versions.append((place, value))
        self._items[key] = Item(key, value, revision, created)
        self._places[key] = place
        return Event(key, value, revision, created, previous)

    def delete(self, key: Key, previous: Item, *, place: int) -> Event:
        """Remove a key that exists."""
        self._note(key, previous)
        self._changes.append((place, key, True, previous.created, self._places.pop(key)))
        self._items[key] = None
        return Event(key, None, Revision(place >> schema.SUB_BITS), previous.created, previous)

    def _note(self, key: Key, previous: Item | None) -> None:
        if key not in self._stored:
            self._stored[key] = previous is not None

    def save(self) -> None:
        """Write the changes to the tables."""
        added: list[tuple[Key, int, int]] = []
        moved: list[tuple[int, int, Key]] = []
        removed: list[tuple[Key]] = []
        for key, is_stored in self._stored.items():
            item = self._items[key]
            if item is None:
                if is_stored:
                    removed.append((key,))
            elif is_stored:
                moved.append((self._places[key], item.created, key))
            else:
                added.append((key, self._places[key], item.created))
        write = self._cursor.executemany
        for statement, rows in (
            (schema.ADD_KEY, added),
            (schema.MOVE_KEY, moved),
            (schema.REMOVE_KEY, removed),
            (schema.ADD_VERSION, self._versions),
            (schema.ADD_CHANGE, self._changes),
        ):
            if rows:
                write(statement, rows)


def work_of(value: bytes | None) -> int:
    """How long an operation on this value blocks the loop, in bytes moved."""
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
    return None if row is None else item_of(row)


def item_of(row: tuple[Any, ...]) -> Item:
    """Convert a row of the table of keys. Raises StoreDamaged for an invalid one."""
    key, value, revision, created = row
    if type(value) is not bytes or type(revision) is not int or type(created) is not int:
        raise StoreDamaged(f"the value of {key} is missing or damaged")
    return Item(*row)


def _check_guards(state: _State, transaction: Transaction, revision: Revision) -> Refused | None:
    for guard in transaction.guards:
        current = state.item(guard.key)
        if not holds(guard, current):
            return Refused(guard, current, revision)
    return None


def _write_all(state: _State, writes: tuple[Write, ...], revision: Revision) -> tuple[Event, ...]:
    events: list[Event] = []
    place = (revision << schema.SUB_BITS) - 1
    for write in writes:
        place += 1
        previous = state.item(write.key)
        if isinstance(write, Put):
            events.append(state.put(write.key, write.value, place=place))
        elif previous is not None:
            events.append(state.delete(write.key, previous, place=place))
    return tuple(events)


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise StoreDamaged(f"the store file is damaged: {value!r:.40} is in place of a number")
    return value
