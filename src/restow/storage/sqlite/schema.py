"""The file format: its tables, its marks, and the SQL statements on them.

A value is written once and never moved: `versions` holds it under its *place*, which is
`revision << SUB_BITS | position in its transaction`. `keys` has the place of each key's current
value. `changes` has a small row for every change, with the place of the value it replaced.

So a read in the past takes the values that have not changed since, and for changed keys the version
that the change replaced; a compaction goes through the changes up to a revision and deletes them
with the versions that they replaced.
"""

from __future__ import annotations

from typing import Final

from restow.storage.interface import OPERATIONS_MAX

APPLICATION_ID: Final = 0x72737477  # "rstw"
FORMAT: Final = 1
PAGE_BYTES: Final = 4096

SUB_BITS: Final = 7
assert 1 << SUB_BITS > OPERATIONS_MAX

CREATE: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (
    key TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    created INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE versions (place INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE changes (
    place INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    created INTEGER NOT NULL,
    replaced INTEGER
);
INSERT INTO meta VALUES ('revision', 1), ('compacted', 0), ('settled', 0);
"""

TABLES: Final = ("changes", "keys", "meta", "versions")
OTHER_OBJECTS: Final = (
    "SELECT type || ' ' || name FROM sqlite_schema"
    f" WHERE NOT (type = 'table' AND rootpage > 0 AND name IN {TABLES})"
)
"""Objects that no store has: views, triggers, indexes, virtual tables, other tables."""
COUNT_OBJECTS: Final = "SELECT count(*) FROM sqlite_schema"

REVISION: Final = "SELECT value FROM meta WHERE name = 'revision'"
COMPACTED: Final = "SELECT value FROM meta WHERE name = 'compacted'"
SET_REVISION: Final = "UPDATE meta SET value = ? WHERE name = 'revision'"
SET_COMPACTED: Final = "UPDATE meta SET value = ? WHERE name = 'compacted'"
SETTLE: Final = "UPDATE meta SET value = value + 1 WHERE name = 'settled'"
BACKUP: Final = "SELECT value FROM meta WHERE name = 'backup'"
"""Only a backup has this: when it was taken, in seconds."""
SET_BACKUP: Final = "INSERT OR REPLACE INTO meta VALUES ('backup', ?)"

# Subqueries, not joins: SQLite prepares a join again each time, at four times the cost.
_ITEM = (
    "key, (SELECT value FROM versions WHERE place = keys.place) AS value,"
    f" place >> {SUB_BITS} AS revision, created"
)
GET: Final = f"SELECT {_ITEM} FROM keys WHERE key = ?"
GET_PLACE: Final = f"SELECT {_ITEM}, place FROM keys WHERE key = ?"
ADD_KEY: Final = "INSERT INTO keys VALUES (?, ?, ?)"
# A key that was removed and created again within one batch has another `created`, too.
MOVE_KEY: Final = "UPDATE keys SET place = ?, created = ? WHERE key = ?"
REMOVE_KEY: Final = "DELETE FROM keys WHERE key = ?"
ADD_VERSION: Final = "INSERT INTO versions VALUES (?, ?)"
ADD_CHANGE: Final = "INSERT INTO changes VALUES (?, ?, ?, ?, ?)"

CHANGES_UPTO: Final = "SELECT place, replaced FROM changes WHERE place < ? ORDER BY place LIMIT ?"
REMOVE_CHANGES: Final = "DELETE FROM changes WHERE place <= ?"
REMOVE_VERSION: Final = "DELETE FROM versions WHERE place = ?"

GET_VERSION: Final = "SELECT value FROM versions WHERE place = ?"


def range_now(*, bounded: bool) -> str:
    return f"SELECT {_ITEM} FROM keys WHERE {_span(bounded=bounded)} ORDER BY key LIMIT :limit"


def range_then(*, bounded: bool) -> str:
    """The current keys, with a value only where nothing has changed since the place `then`."""
    return f"""
    SELECT key,
        CASE WHEN place < :then THEN (SELECT value FROM versions WHERE place = keys.place) END,
        place >> {SUB_BITS}, created
    FROM keys WHERE {_span(bounded=bounded)} ORDER BY key
    """


def replaced_between(*, bounded: bool) -> str:
    """Values that existed at the place `then` and were replaced between two later places."""
    return f"""
    SELECT key, replaced, created FROM changes
    WHERE place >= :first AND place < :behind AND replaced < :then AND {_span(bounded=bounded)}
    """


def count_slice(*, bounded: bool) -> str:
    """Number of the next keys, number of those older than `then`, and the last key."""
    span = _span(bounded=bounded)
    return f"""
    SELECT count(*), coalesce(sum(place < :then), 0), max(key)
    FROM (SELECT key, place FROM keys WHERE {span} ORDER BY key LIMIT :limit)
    """


def changes_between(*, bounded: bool) -> str:
    """The changes between two places, each with its new value and the one it replaced."""
    return f"""
    SELECT place, key, deleted, created, replaced,
        (SELECT value FROM versions WHERE place = changes.place),
        (SELECT value FROM versions WHERE place = changes.replaced)
    FROM changes WHERE place >= :first AND place < :behind AND {_span(bounded=bounded)}
    ORDER BY place
    """


def _span(*, bounded: bool) -> str:
    return "key >= :start AND key < :end" if bounded else "key >= :start AND :end IS NULL"
