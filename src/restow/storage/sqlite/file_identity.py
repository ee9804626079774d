"""Checks which file is open, and whether its path still names it.

A path can name another file while this one is open: it was moved, deleted or replaced, or its
write-ahead log was. Later commits are then lost when the last process closes it. A second hard
link is as bad: opened by that name, the file has another log. The log itself never becomes shorter
while it is open (`checkpoints` only move its pages), so a shorter one was truncated.

The descriptor is one that only names the file (`O_PATH`): closing it drops no lock of SQLite's.
"""

from __future__ import annotations

import os
from pathlib import Path

from restow.storage.deleted_log import DELETED_LOG_ADVICE
from restow.storage.errors import StoreReplaced
from restow.storage.identity import FileLocation
from restow.storage.private_files import links_problem
from restow.storage.store_mark import place_of

ADVICE = (
    "stop all servers of this store, put the original file back with its -wal, or restore a backup"
    " with `restow restore`, and start them"
)


class FileIdentity:
    """The file of one handle. Create it while a connection is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._file_name, self._log_name = str(self._path), str(self._log)
        self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self.file = FileLocation(status.st_dev, status.st_ino)
        self.log = place_of(self._log)
        self._index_path = path.with_name(path.name + "-shm")
        self._index = place_of(self._index_path)
        self._log_bytes = 0
        """The largest size of the log that was seen."""

    def is_in_place(self) -> bool:
        """Whether `check` finds nothing wrong. Two system calls, for the write path."""
        try:
            found = os.stat(self._file_name)  # noqa: PTH116  (a path costs more)
            log = found if self.log is None else os.stat(self._log_name)  # noqa: PTH116
        except OSError:
            return False
        self._log_bytes = max(self._log_bytes, 0 if self.log is None else log.st_size)
        return (
            found.st_nlink == 1
            and (found.st_dev, found.st_ino) == self.file
            and (self.log is None or (log.st_dev, log.st_ino) == self.log)
        )

    def has_whole_log(self) -> bool:
        """Whether the log is as long as before, and its index is the open one. Call it before a
        commit, which makes the log longer: processes with two indexes overwrite each other."""
        return self._is_log_long() and self._is_index_open()

    def _is_log_long(self) -> bool:
        expected = self._log_bytes  # read first: the writer's thread may commit meanwhile
        try:
            return os.stat(self._log_name).st_size >= expected  # noqa: PTH116
        except OSError:
            return expected == 0

    def _is_index_open(self) -> bool:
        return self._index is None or place_of(self._index_path) == self._index

    def check(self) -> None:
        """Raises `StoreReplaced` unless the paths name the open file and its log, and no other
        path does."""
        problem = self._problem()
        if problem is not None:
            raise StoreReplaced(problem, passes=True)

    def _problem(self) -> str | None:
        found = place_of(self._path)
        if found is None:
            return f"{self._path} was deleted or moved away while it was in use: {ADVICE}"
        if found != self.file:
            return (
                f"{self._path} was replaced by another file while it was in use (inode"
                f" {found.inode}, and {self.file.inode} is open): {ADVICE}"
            )
        log = place_of(self._log)
        if self.log is not None and log is None:
            return (
                f"{self._log} was deleted while it was in use, so that the newest writes are in no"
                f" file that has a name: {DELETED_LOG_ADVICE}"
            )
        if self.log is not None and log != self.log:
            return (
                f"{self._log} was replaced while it was in use, so that the newest"
                f" writes are in no file: {ADVICE}"
            )
        if not self._is_index_open():
            return (
                f"{self._index_path} was deleted or replaced while it was in use, so that servers"
                f" that start now do not see the writes of this one: {ADVICE}"
            )
        if not self._is_log_long():
            return f"{self._log} was truncated while it was in use: {ADVICE}"
        return links_problem(self._path, os.fstat(self._descriptor).st_nlink)

    def close(self) -> None:
        os.close(self._descriptor)
