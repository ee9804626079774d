"""Detects that the write-ahead log of a SQLite store was deleted while processes have it open.

The newest writes are then only in the deleted file, which those processes still have open: the last
one that closes the store normally copies them into it. A process that opens the store now cannot
read them, and creates another log. So commands refuse to open it.

The open files of processes are read from /proc: those of other users are visible to root only,
those of other PID namespaces not at all. Not here: how a server detects it (`file_identity`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from restow.storage.errors import OpenRefused
from restow.storage.identity import FileLocation
from restow.storage.store_mark import place_of

PROCESSES: Final = Path("/proc")
DELETED: Final = " (deleted)"
"""Linux appends this to the name of an open file that was deleted."""

DELETED_LOG_ADVICE: Final = (
    "stop all servers normally (SIGTERM, not SIGKILL): the last one writes the log back into the"
    " store. Then start them. Do not delete, move or restore anything before"
)


def check_deleted_log(path: Path) -> None:
    """Raises `OpenRefused` if processes use this store with a log that was deleted."""
    problem = deleted_log_problem(path)
    if problem is not None:
        raise OpenRefused(f"{problem}: {DELETED_LOG_ADVICE}")


def deleted_log_problem(path: Path) -> str | None:
    """Which log was deleted, and which processes have it open; None if none was."""
    file = place_of(path)
    if file is None:
        return None
    log = os.path.realpath(path) + "-wal"
    users = [each.name for each in _processes() if _has_deleted_log(each, file, log + DELETED)]
    if not users:
        return None
    return (
        f"{log} was deleted while it was in use (process {', '.join(users)}), so that the newest"
        " writes are in no file that can be opened"
    )


def _processes() -> list[Path]:
    try:
        found = [each for each in PROCESSES.iterdir() if each.name.isdecimal()]
        return sorted(found, key=lambda each: int(each.name))
    except OSError:
        return []


def _has_deleted_log(process: Path, file: FileLocation, link: str) -> bool:
    """Whether a process has a deleted file of this name open, and the store file itself. (One
    that has an earlier file of this path open has another log.)"""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:  # it exited, or belongs to another user
        return False
    has_log = any(_link_of(each) == link for each in descriptors)
    return has_log and any(place_of(each) == file for each in descriptors)


def _link_of(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""
