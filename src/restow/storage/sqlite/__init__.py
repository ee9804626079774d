"""The embedded store: one SQLite file, shared by the processes of one machine.

Only this package imports apsw. Rules of the contract that all drivers share are in `storage.checks`
and `storage.feed`, not here.
"""

from restow.storage.sqlite.storage import SqliteStorage, open_sqlite

__all__ = ["SqliteStorage", "open_sqlite"]
