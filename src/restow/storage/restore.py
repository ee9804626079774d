"""Restoring: all keys of a backup into a store that is empty, above every revision ever seen.

A backup of either form goes into either driver. It is written through the storage contract, one
transaction for each key, so every object gets a new revision; and the store begins far above the
backup's revision, because servers may have gone on after it was taken. So no client sees a resource
version come again, or go back; who asks for an older one is told that it is gone (410) and lists
anew.

    sqlite    the new file begins at the wanted revision, is filled under another name, and takes
              its own name when it is whole
    etcd      can only be raised write by write, so it is raised less; a key that is there
              until the end keeps servers away from a store that is not whole, and lets a second
              attempt go on where the first was stopped

Everything is restored as it was, the records of servers too: those are dead, and are collected by
the first server that starts, as after any crash. Left out are the keys of lost commits of etcd's
driver, and keys that restow cannot hold, which are other people's.

Not here: what a value means; reading a backup (`census.sources`).
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

from restow.aio import Ids, Runtime
from restow.storage.backup import Progress, cannot_write, sync, unseen
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
"""More than any cluster writes between a backup and its end; it costs nothing."""
AHEAD_ETCD: Final = 100_000
"""Each costs a write, and etcd takes some thousands in a second."""
AHEAD_MAX: Final = 10**15
RAISE_MAX: Final = 10_000_000
"""As many writes as anybody wants to wait for."""

IN_FLIGHT: Final = 128
ATTEMPTS_MAX: Final = 5
COMPACT_EVERY: Final = 10_000
_SESSIONS: Final = "/restow/etcd-sessions/"
_OWN: Final = frozenset({UNFINISHED_RESTORE_KEY, IDENTITY_KEY})
_BESIDE: Final = ("", "-wal", "-shm", "-journal")
_CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was done."""

    keys: int
    left_out: int
    """Keys of other people, which restow cannot hold."""
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
    """Restore a backup into the store at this address; raises a `StorageError` that says why not.

    `ahead` is how far above the backup's revision the store begins.
    """
    scheme, _, rest = address.partition(":")
    if scheme not in {"sqlite", "etcd", "etcds"} or not rest:
        raise OpenRefused(f"{address!r} is nothing to restore into: {RESTORE_FORMS}")
    is_sqlite = scheme == "sqlite"
    if ahead is None:
        ahead = AHEAD_SQLITE if is_sqlite else AHEAD_ETCD
    on_progress = on_progress or unseen
    identity = await asyncio.to_thread(_check_backup, path)
    source = await _open_backup(path, runtime)
    try:
        keys, left_out = await _count(source)
        begin = Revision(source.revision + ahead)
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
    """Write all keys of a backup into an empty store, and let servers use it; its revision."""
    await _write_all(storage, source, total=total, on_progress=on_progress)
    # Servers that know another store take this one: who restores it has chosen it.
    await accept(storage, ids)
    return await _finish(storage)


def _check_backup(path: Path) -> str:
    """See that the file is whole; what it is called among all backups."""
    try:
        if (problem := changeable_by_others(path)) is not None:
            raise OpenRefused(problem)
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
            f"{path} is no backup, neither a copy of a restow store nor a snapshot of etcd: {error}"
        ) from error


async def _count(source: KeyValueSource) -> tuple[int, int]:
    """How many keys are to be restored, and how many are not. Reads all, so it also checks all."""
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
    """Give an absent key its value; an earlier attempt may have done so."""
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
                    f"somebody else has written {key} meanwhile: stop every server of this store,"
                    " empty it, and restore again"
                )
            case Unknown():
                continue  # asked again, it tells by its guard what has become of it
    raise Unavailable(f"it could not be found out whether {key} was written: restore again")


async def _finish(storage: Storage) -> Revision:
    """Let nobody ask for what was before; and only then, let servers in."""
    with suppress(Compacted):
        await storage.compact(await storage.revision())
    for _ in range(ATTEMPTS_MAX):
        outcome = await storage.commit(Transaction((), (Delete(UNFINISHED_RESTORE_KEY),)))
        if isinstance(outcome, Done):
            return await storage.revision()
    raise Unavailable(
        "all is restored, but the store does not say whether servers may use it: restore again"
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
    """Refuse a store that is there, and what is left of one: SQLite would apply an old log."""
    if not path.parent.is_dir():
        raise OpenRefused(f"{path.parent} is not a directory: make it first, or use another path")
    found = [name for suffix in _BESIDE if (name := path.with_name(path.name + suffix)).exists()]
    if found:
        names = ", ".join(map(str, found))
        raise OpenRefused(
            f"{names}: there is a store already, and only a new one is restored into: stop its"
            " servers and move it away, or name another place"
        )


def _take_name(unfinished: Path, path: Path) -> None:
    """Sync the file and give it its name, unless somebody has taken that meanwhile."""
    sync(unfinished)
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        _check_absent(path)
        raise
    except OSError:  # a file system without links
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
    """`on_progress` is told of the revisions first, and of the keys later."""
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
    """Mark an empty store as ours, or find the mark of an earlier attempt with the same backup."""
    mark = Transaction(
        (Absent(UNFINISHED_RESTORE_KEY),), (Put(UNFINISHED_RESTORE_KEY, identity.encode()),)
    )
    found = await storage.get(UNFINISHED_RESTORE_KEY)
    if found is None:
        if count := await storage.count(EVERYTHING):
            raise OpenRefused(
                f"{address} holds {count:,} keys, and only an empty store is restored into: stop"
                " its servers and empty it, or name another one"
            )
        outcome = await storage.commit(mark)
        if isinstance(outcome, Done):
            return
        found = await storage.get(UNFINISHED_RESTORE_KEY)
    if found is None or found.value != identity.encode():
        raise OpenRefused(
            f"another backup than {path} was begun to be restored into {address}: restore that"
            " one, or empty the store first"
        )


def _check_distance(now: Revision, begin: Revision, path: Path) -> None:
    """Refuse what would take hours, and say how it is done at once."""
    distance = begin - now
    if distance <= RAISE_MAX:
        return
    raise OpenRefused(
        f"this etcd is at revision {now:,} and would have to be raised to {begin:,}, which takes as"
        f" many writes; at most {RAISE_MAX:,} are made. If {path} is a snapshot of etcd, make the"
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
    """All of them at once; the first error ends the others."""
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
    """What belongs to the store that was backed up, and to no cluster."""
    return key.startswith(_SESSIONS) or key in _OWN


def _is_ours(key: str) -> bool:
    try:
        check_key(Key(key))
    except InvalidKey:
        return False
    return True
