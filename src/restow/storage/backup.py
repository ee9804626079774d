"""Backs up a store: one file with all keys at one revision, taken while servers run.

    sqlite:FILE    a copy of the file by SQLite's own backup, checked page by page
    etcd://…       a snapshot of a member, with its SHA-256, as `etcdctl snapshot save` writes it

So a backup identifies its own format, and other tools and the census can read it. It gets its final
name only when it is complete, synced and checked; until then it is a file in the same directory
that ends in `.partial`. Only its owner may read it, since it holds every secret of the cluster.

Not here: the keys and certificates of a cluster, which are in no store; and restoring (`restore`).
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from restow.aio import Runtime
from restow.storage.errors import (
    NO_SPACE,
    OpenRefused,
    StorageError,
    StoreDamaged,
    StoreFull,
    Unavailable,
)
from restow.storage.interface import Revision

BACKUP_FORMS: Final = "sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"
MODE: Final = 0o600

Progress = Callable[[int, int], None]
"""Progress callback: how much is done, and the total, in pages, bytes or keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The result of a backup."""

    path: Path
    form: Literal["sqlite", "etcd"]
    revision: Revision
    size: int


async def write_backup(
    address: str,
    path: Path,
    runtime: Runtime,
    *,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Backup:
    """Back up the store at this address to a file; raises a `StorageError` with the reason."""
    scheme, _, rest = address.partition(":")
    if scheme not in {"sqlite", "etcd", "etcds"} or not rest:
        raise OpenRefused(f"cannot back up {address!r}: the address must be {BACKUP_FORMS}")
    on_progress = on_progress or ignore_progress
    check_target(path, overwrite=overwrite)
    with _partial_file(path, runtime.ids.nonce(4), overwrite=overwrite) as partial:
        if scheme == "sqlite":
            revision = await _copy_sqlite(Path(rest), partial, runtime, on_progress)
        else:
            revision = await _save_etcd(address, partial, runtime, on_progress)
        size = partial.stat().st_size
    return Backup(
        path=path,
        form="sqlite" if scheme == "sqlite" else "etcd",
        revision=revision,
        size=size,
    )


def ignore_progress(_done: int, _total: int) -> None:
    """Ignore the progress."""


def check_target(path: Path, *, overwrite: bool) -> None:
    """Reject a path to which no backup can be written, before anything is read."""
    if not path.parent.is_dir():
        raise OpenRefused(f"{path.parent} is not a directory: create it first, or use another one")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(path, error) from error
    if stat.S_ISDIR(mode):
        raise OpenRefused(f"{path} is a directory: give the name of a file in it")
    if stat.S_ISLNK(mode):
        raise OpenRefused(f"{path} is a symbolic link: give the name of the file itself")
    if not stat.S_ISREG(mode):
        # The backup would replace it: a device would be a file from then on.
        raise OpenRefused(f"{path} is not a regular file: name one, or a new file")
    if not overwrite:
        raise OpenRefused(f"{path} exists: choose another name, or use --overwrite")


async def _copy_sqlite(
    source: Path, partial: Path, runtime: Runtime, on_progress: Progress
) -> Revision:
    from restow.storage.sqlite.backup import copy_store  # noqa: PLC0415

    taken_at = int(runtime.clock.wall().timestamp())
    is_cancelled = threading.Event()

    def on_pages(done: int, total: int) -> None:
        if is_cancelled.is_set():
            raise Unavailable("the backup was cancelled")
        on_progress(done, total)

    try:
        return await asyncio.to_thread(
            copy_store, source, partial, taken_at=taken_at, on_progress=on_pages
        )
    finally:
        is_cancelled.set()  # the thread does not end when the waiting task is cancelled


async def _save_etcd(
    address: str, partial: Path, runtime: Runtime, on_progress: Progress
) -> Revision:
    from restow.storage.etcd import parse_address  # noqa: PLC0415
    from restow.storage.etcd.snapshot import save_snapshot  # noqa: PLC0415
    from restow.storage.etcd.snapshot_file import EtcdSnapshot  # noqa: PLC0415

    with partial.open("wb") as file:
        known = await save_snapshot(parse_address(address), runtime, file, on_progress=on_progress)
    snapshot = EtcdSnapshot(partial)
    try:
        if snapshot.revision < known:
            raise Unavailable(
                f"etcd: the member's snapshot is at revision {snapshot.revision}, older than"
                f" revision {known} that was committed before: name another member, or try again"
            )
        for _ in snapshot.entries(("",)):
            pass  # read every page and decode every change, to check the snapshot
        return Revision(snapshot.revision)
    except StoreDamaged as error:
        raise StoreDamaged(f"etcd sent a snapshot that cannot be read: {error}") from error
    finally:
        snapshot.close()


@contextmanager
def _partial_file(path: Path, nonce: str, *, overwrite: bool) -> Iterator[Path]:
    """Create a file in the same directory, and rename it to `path` if the block succeeds."""
    partial = path.with_name(f".{path.name}.{nonce}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
        yield partial
        sync(partial)
        check_target(path, overwrite=overwrite)
        partial.replace(path)
        sync(path.parent)
    except StoreFull as error:
        raise StoreFull(f"no space left for {path}") from error
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                partial.with_name(partial.name + suffix).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The error for a file that cannot be written."""
    if error.errno in NO_SPACE:
        return StoreFull(f"no space left for {path}")
    return OpenRefused(f"{path} cannot be written: {error.strerror}")
