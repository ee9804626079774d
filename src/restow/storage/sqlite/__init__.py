"""The embedded store: one SQLite file, shared by the processes of one machine.

Only this package imports apsw. It holds no rule of the contract that the other drivers do not
hold too; those are in `storage.checks` and `storage.feed`.
"""

from restow.storage.sqlite.storage import SqliteStorage, open_sqlite

__all__ = ["SqliteStorage", "open_sqlite"]
