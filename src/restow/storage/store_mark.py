"""The file in which a server records its store's identity: `store.mark` in the data directory.

Written by every server of the directory, always as a whole. Not here: how it is evaluated
(`identity`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from restow.storage import private_files
from restow.storage.errors import OpenRefused
from restow.storage.identity import FileLocation, Mark, explain

MARK_NAME: Final = "store.mark"
MARK_BYTES_MAX: Final = 1024 * 1024
FORMER_MAX: Final = 500


def read_mark(path: Path) -> Mark | None:
    """The mark, or None if there is none. Raises `OpenRefused` for one that is damaged."""
    try:
        content = private_files.read_kept(path, bytes_max=MARK_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OpenRefused(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return msgspec.json.decode(content, type=Mark)
    except msgspec.MsgspecError as error:
        raise OpenRefused(
            f"{path} is damaged ({error}), so this server cannot check whether its store was"
            " replaced: check the store with `restow doctor`, then delete this file"
        ) from error


def read_checked(path: Path, name: str) -> Mark | None:
    """The mark at `path`, after a check that the store of this `place_name` may be opened.

    Call it before a SQLite file is opened for writing. Raises `OpenRefused`.
    """
    mark = read_mark(path)
    scheme, _, rest = name.partition(":")
    if mark is not None and scheme == "sqlite":
        check_log(mark, Path(rest))
        if mark.address == name and not Path(rest).exists():
            raise OpenRefused(explain(name, "the file does not exist"))
    return mark


def write_mark(path: Path, mark: Mark, *, nonce: str) -> None:
    """Write the mark, merged with those of other servers of the directory. Raises OSError."""
    with suppress(OpenRefused):
        known = read_mark(path)
        mark = merged(mark, known)
        if mark == known:
            return
    unfinished = path.with_name(f".{path.name}.{nonce}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(unfinished, flags, private_files.FILE_MODE), "wb") as file:  # noqa: PTH123
            file.write(msgspec.json.encode(mark))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def merged(mark: Mark, known: Mark | None) -> Mark:
    """A mark merged with that of another server of the same store."""
    if known is None:
        return mark
    if known.id == mark.id:
        suspect = mark.suspect or known.suspect
        revision = max(mark.revision, known.revision)
        mark = msgspec.structs.replace(mark, suspect=suspect, revision=revision)
    return with_former(mark, known)


def with_former(mark: Mark, known: Mark) -> Mark:
    """A mark that also has the identities in another one."""
    former = dict.fromkeys((*known.former, *mark.former, known.id))
    former.pop(mark.id, None)
    return msgspec.structs.replace(mark, former=tuple(former)[-FORMER_MAX:])


def check_log(mark: Mark, path: Path) -> None:
    """Refuse to open a SQLite file beside the write-ahead log of another one.

    SQLite would copy pages of the log into the file and damage it.
    """
    log = path.with_name(path.name + "-wal")
    if mark.file is None or place_of(path) in (None, mark.file):
        return
    if mark.log is not None and place_of(log) == mark.log and log.stat().st_size > 0:
        raise OpenRefused(
            f"{path} was replaced, and {log} belongs to the earlier file: with it, SQLite would"
            f" damage this one. Stop all servers of this store, move {log} and"
            f" {path.name}-shm away (keep them), then: restow store accept --store sqlite:{path}"
        )


def place_of(path: Path) -> FileLocation | None:
    """The location of this file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileLocation(status.st_dev, status.st_ino)
