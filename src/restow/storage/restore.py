"""Restores a backup: writes all its keys to an empty store, above every revision ever used.

A backup of either form can be restored to either driver. It is written through the storage
contract, one transaction for each key, so every object gets a new revision; and the store begins
far above the backup's revision, because servers may have written after it was taken. So clients
never see a resource version twice or a lower one; a request with an older one gets 410 (Gone), and
the client lists again.

    sqlite    the new file begins at the wanted revision, is filled under another name, and gets
              its final name when it is complete
    etcd      can only be raised write by write, so it is raised less; a key that exists until
              the end prevents servers from using an incomplete store, and lets a second
              attempt continue where the first was stopped

Everything is restored as it was, including the membership records of servers: those are expired,
and the first server that starts collects them, as after any crash. Excluded are the keys of lost
commits of etcd's driver, and keys of other programs that restow cannot store.

Not here: the meaning of values; reading a backup (`sources`).
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from restow.aio import Ids, Runtime, check_regular
from restow.storage.backup import Progress, cannot_write, ignore_progress, sync
from restow.storage.checks import check_key
from restow.storage.drivers import UNFINISHED_RESTORE_KEY
from restow.storage.errors import (
    Compacted,
    InvalidKey,
    OpenRefused,
    StorageError,
    Unavailable,
)
from restow.storage.identity import IDENTITY_KEY, accept
from restow.storage.interface import (
    EVERYTHING,
    REVISION_MAX,
    Absent,
    Delete,
    Done,
    Key,
    Put,
    Refused,
    Revision,
    Storage,
    Transaction,
    Unknown,
)
from restow.storage.private_files import changeable_by_others
from restow.storage.sources import KeyValueSource, open_source

RESTORE_FORMS: Final = "sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"
AHEAD_SQLITE: Final = 1_000_000_000
"""More revisions than any cluster writes after a backup; it costs nothing."""
AHEAD_ETCD: Final = 100_000
"""Each revision costs a write, and etcd handles some thousands per second."""
AHEAD_MAX: Final = 10**15
RAISE_MAX: Final = 10_000_000
"""Maximum of writes made to raise the revision, to limit the waiting time."""

IN_FLIGHT: Final = 128
ATTEMPTS_MAX: Final = 5
COMPACT_EVERY: Final = 10_000
_SESSIONS: Final = "/restow/etcd-sessions/"
_OWN: Final = frozenset({UNFINISHED_RESTORE_KEY, IDENTITY_KEY})
_BESIDE: Final = ("", "-wal", "-shm", "-journal")
_CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restore."""

    keys: int
    left_out: int
    """Keys of other programs, which restow cannot store."""
    backup_revision: int
    revision: Revision


async def restore_backup(
    path: Path,
    address: str,
    runtime: Runtime,
    *,
    ahead: int | None = None,
    on_progress: Progress | None = None,
) -> Restored:
    """Restore a backup into the store at this address; raises a `StorageError` with the reason.

    `ahead` is how far above the backup's revision the store begins.
    """
    scheme, _, rest = address.partition(":")
    if scheme not in {"sqlite", "etcd", "etcds"} or not rest:
        raise OpenRefused(f"cannot restore to {address!r}: the address must be {RESTORE_FORMS}")
    is_sqlite = scheme == "sqlite"
    if ahead is None:
        ahead = AHEAD_SQLITE if is_sqlite else AHEAD_ETCD
    on_progress = on_progress or ignore_progress
    identity = await asyncio.to_thread(_check_backup, path)
    source = await _open_backup(path, runtime)
    try:
        keys, left_out = await _count(source)
        begin = _begin(path, source.revision, ahead)
        opened = (
            _new_file(Path(rest), runtime, begin)
            if is_sqlite
            else _empty_etcd(
                address, runtime, begin, path=path, identity=identity, on_progress=on_progress
            )
        )
        async with opened as storage:
            revision = await fill(storage, source, runtime.ids, total=keys, on_progress=on_progress)
    finally:
        await source.close()
    return Restored(
        keys=keys, left_out=left_out, backup_revision=source.revision, revision=revision
    )


async def fill(
    storage: Storage, source: KeyValueSource, ids: Ids, *, total: int, on_progress: Progress
) -> Revision:
    """Write a backup to an empty store, and release the store to servers; return its revision."""
    await _write_all(storage, source, total=total, on_progress=on_progress)
    # Marked as accepted: servers that know another store use this one, as the operator chose.
    await accept(storage, ids)
    return await _finish(storage)


def _begin(path: Path, revision: int, ahead: int) -> Revision:
    """The revision at which the restored store begins."""
    if revision + ahead > REVISION_MAX:
        raise OpenRefused(
            f"{path} is at revision {revision:,}, which cannot be raised by {ahead:,}: use a"
            " smaller --ahead, and check where the file is from"
        )
    return Revision(revision + ahead)


def _check_backup(path: Path) -> str:
    """Check that the file is complete; return an identifier of this backup."""
    try:
        if (problem := changeable_by_others(path)) is not None:
            raise OpenRefused(problem)
        check_regular(path.stat(), path)
        with path.open("rb") as file:
            digest = hashlib.sha256()
            head = file.read(_CHUNK_BYTES)
            chunk = head
            while chunk:
                digest.update(chunk)
                chunk = file.read(_CHUNK_BYTES)
    except OSError as error:
        raise OpenRefused(f"{path} cannot be read: {error.strerror}") from error
    if head.startswith(b"SQLite format 3\0"):
        from restow.storage.sqlite.backup import check_file  # noqa: PLC0415

        check_file(path)
    return digest.hexdigest()


async def _open_backup(path: Path, runtime: Runtime) -> KeyValueSource:
    try:
        return await open_source(f"snapshot:{path}", runtime)
    except OpenRefused as error:
        raise OpenRefused(
            f"{path} is neither a copy of a restow store nor a snapshot of etcd: {error}"
        ) from error


async def _count(source: KeyValueSource) -> tuple[int, int]:
    """Number of keys to restore and to skip. Reads the whole backup, so it also checks it."""
    keys = left_out = 0
    async for page in source.pages(("",)):
        for key, _ in page:
            if _is_passed_over(key):
                continue
            if _is_ours(key):
                keys += 1
            else:
                left_out += 1
    return keys, left_out


async def _write_all(
    storage: Storage, source: KeyValueSource, *, total: int, on_progress: Progress
) -> None:
    done = 0
    async for page in source.pages(("",)):
        wanted = [
            (Key(key), value) for key, value in page if _is_ours(key) and not _is_passed_over(key)
        ]
        for first in range(0, len(wanted), IN_FLIGHT):
            part = wanted[first : first + IN_FLIGHT]
            await _together([_write(storage, key, value) for key, value in part])
            done += len(part)
            on_progress(done, total)


async def _write(storage: Storage, key: Key, value: bytes) -> None:
    """Create a key with a value; an earlier attempt may have done so."""
    wanted = Transaction((Absent(key),), (Put(key, value),))
    for _ in range(ATTEMPTS_MAX):
        outcome = await storage.commit(wanted)
        match outcome:
            case Done():
                return
            case Refused(current=current):
                if current is not None and current.value == value:
                    return
                raise Unavailable(
                    f"another client wrote {key} during the restore: stop every server of this"
                    " store, empty it, and restore again"
                )
            case Unknown():
                continue  # retry: the guard shows whether the key was written
    raise Unavailable(f"it is unknown whether {key} was written: restore again")


async def _finish(storage: Storage) -> Revision:
    """Compact, so that no earlier revision can be read, then release the store to servers."""
    with suppress(Compacted):
        await storage.compact(await storage.revision())
    for _ in range(ATTEMPTS_MAX):
        outcome = await storage.commit(Transaction((), (Delete(UNFINISHED_RESTORE_KEY),)))
        if isinstance(outcome, Done):
            return await storage.revision()
    raise Unavailable(
        "all keys are restored, but it is unknown whether servers may use the store: restore again"
    )


# SQLite.


@asynccontextmanager
async def _new_file(path: Path, runtime: Runtime, begin: Revision) -> AsyncIterator[Storage]:
    from restow.storage.sqlite import open_sqlite  # noqa: PLC0415
    from restow.storage.sqlite.backup import make_store_at  # noqa: PLC0415

    _check_absent(path)
    unfinished = path.with_name(f".{path.name}.{runtime.ids.nonce(4)}.unfinished")
    try:
        await asyncio.to_thread(make_store_at, unfinished, begin)
        storage = await open_sqlite(unfinished, runtime)
        try:
            yield storage
        finally:
            await storage.close()
        _check_absent(path)
        await asyncio.to_thread(_take_name, unfinished, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        for suffix in _BESIDE:
            with suppress(OSError):
                unfinished.with_name(unfinished.name + suffix).unlink(missing_ok=True)
        shutil.rmtree(unfinished.with_name(unfinished.name + "-peers"), ignore_errors=True)


def _check_absent(path: Path) -> None:
    """Refuse an existing store or its leftover files: SQLite would apply an old log."""
    if not path.parent.is_dir():
        raise OpenRefused(f"{path.parent} is not a directory: create it first, or use another path")
    found = [name for suffix in _BESIDE if (name := path.with_name(path.name + suffix)).exists()]
    if found:
        names = ", ".join(map(str, found))
        raise OpenRefused(
            f"{names}: a store exists already, and a backup is restored to a new one only: stop its"
            " servers and move it away, or use another path"
        )


def _take_name(unfinished: Path, path: Path) -> None:
    """Sync the file and give it its final name, unless that exists by now."""
    sync(unfinished)
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        _check_absent(path)
        raise
    except OSError:  # a file system without hard links
        unfinished.rename(path)
    sync(path.parent)


# etcd.


@asynccontextmanager
async def _empty_etcd(
    address: str,
    runtime: Runtime,
    begin: Revision,
    *,
    path: Path,
    identity: str,
    on_progress: Progress,
) -> AsyncIterator[Storage]:
    """`on_progress` gets revisions first, and keys later."""
    from restow.storage.etcd import open_etcd, parse_address  # noqa: PLC0415

    storage = await open_etcd(parse_address(address), runtime)
    try:
        _check_distance(await storage.revision(), begin, path)
        await _claim(storage, address, path=path, identity=identity)
        await _raise_revision(storage, begin, identity=identity, on_progress=on_progress)
        yield storage
    finally:
        await storage.close()


async def _claim(storage: Storage, address: str, *, path: Path, identity: str) -> None:
    """Mark an empty store for this restore, or find the mark of an attempt with the same backup."""
    mark = Transaction(
        (Absent(UNFINISHED_RESTORE_KEY),), (Put(UNFINISHED_RESTORE_KEY, identity.encode()),)
    )
    found = await storage.get(UNFINISHED_RESTORE_KEY)
    if found is None:
        if count := await storage.count(EVERYTHING):
            raise OpenRefused(
                f"{address} holds {count:,} keys, and a backup needs an empty store: stop"
                " its servers and empty it, or use another one"
            )
        outcome = await storage.commit(mark)
        if isinstance(outcome, Done):
            return
        found = await storage.get(UNFINISHED_RESTORE_KEY)
    if found is None or found.value != identity.encode():
        raise OpenRefused(
            f"the restore of another backup than {path} to {address} was interrupted: restore that"
            " one, or empty the store first"
        )


def _check_distance(now: Revision, begin: Revision, path: Path) -> None:
    """Refuse a restore that would take hours, and name the faster way."""
    distance = begin - now
    if distance <= RAISE_MAX:
        return
    raise OpenRefused(
        f"this etcd is at revision {now:,} and would have to be raised to {begin:,}, which takes as"
        f" many writes; at most {RAISE_MAX:,} are made. If {path} is a snapshot of etcd, create the"
        f" members' data directories from it instead, and start etcd on them: `etcdutl snapshot"
        f" restore {path} --bump-revision {AHEAD_SQLITE} --mark-compacted --data-dir DIR`"
    )


async def _raise_revision(
    storage: Storage, begin: Revision, *, identity: str, on_progress: Progress
) -> None:
    """Write until the revision is high enough; etcd has no other way to raise it."""
    put = Transaction((), (Put(UNFINISHED_RESTORE_KEY, identity.encode()),))
    first = now = compacted = await storage.revision()
    while now < begin:
        await _together([storage.commit(put) for _ in range(min(IN_FLIGHT, begin - now))])
        now = await storage.revision()
        on_progress(now - first, begin - first)
        if now - compacted >= COMPACT_EVERY:
            compacted = now
            with suppress(Compacted):
                await storage.compact(now)


async def _together(steps: Sequence[Coroutine[Any, Any, object]]) -> None:
    """Run all concurrently; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for number, step in enumerate(steps):
                group.create_task(step, name=f"restore/{number}")
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        if isinstance(first, StorageError):
            raise first from errors
        raise


def _is_passed_over(key: str) -> bool:
    """Whether a key belongs to the backed-up store itself, and is not restored."""
    return key.startswith(_SESSIONS) or key in _OWN


def _is_ours(key: str) -> bool:
    try:
        check_key(Key(key))
    except InvalidKey:
        return False
    return True
