"""How a store is: its file or its members, its size, its room. For `restow doctor`; only reads.

Not here: what is good and what is bad about it, and what to do.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from restow.aio import Runtime
from restow.storage.errors import OpenRefused, StorageError, StoreDamaged
from restow.storage.identity import IDENTITY_KEY, Seen, decode_record
from restow.storage.private_files import changeable_by_others

if TYPE_CHECKING:
    from restow.storage.etcd.checkup import MemberFacts

CHECKUP_FORMS: Final = "sqlite:FILE | etcd://HOST:PORT[,HOST:PORT…]"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What is known of a store file."""

    path: Path
    problem: str = ""
    """Why it could not be looked at; then the rest is not known."""
    damages: tuple[str, ...] = ()
    revision: int = 0
    keys: int = 0
    size: int = 0
    log_size: int = 0
    """Of the write-ahead log beside it."""
    free: int = 0
    """Room on its file system, for its owner."""
    mode: int = 0
    """Who may read and write it."""
    links: int = 1
    """How many names it has."""
    exposures: tuple[str, ...] = ()
    """How others can change it, or what lies beside it; each says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFacts:
    """What is known of an etcd."""

    address: str
    members: tuple[MemberFacts, ...]


async def check_up(address: str, runtime: Runtime) -> FileFacts | EtcdFacts:
    """Look at the store at this address; raises `OpenRefused` when it is no address."""
    scheme, _, rest = address.partition(":")
    match scheme:
        case "sqlite" if rest:
            return await asyncio.to_thread(_look_at_file, Path(rest))
        case "etcd" | "etcds" if rest:
            from restow.storage.etcd import parse_address  # noqa: PLC0415
            from restow.storage.etcd.checkup import ask_members  # noqa: PLC0415

            members = await ask_members(parse_address(address), runtime)
            return EtcdFacts(address=address, members=tuple(members))
        case _:
            raise OpenRefused(f"{address!r} is no store to look at: {CHECKUP_FORMS}")


async def see_identity(address: str, runtime: Runtime) -> Seen:
    """What the store at this address shows of itself; raises a `StorageError`."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        return await asyncio.to_thread(_see_file, Path(rest))
    from restow.storage.etcd import open_etcd, parse_address  # noqa: PLC0415

    storage = await open_etcd(parse_address(address), runtime)
    try:
        return await storage.look()
    finally:
        await storage.close()


def _see_file(path: Path) -> Seen:
    from restow.storage.sqlite import schema  # noqa: PLC0415
    from restow.storage.sqlite.read_only import open_read_only  # noqa: PLC0415

    file = open_read_only(path)
    try:
        rows = file.query(schema.GET, (IDENTITY_KEY,))
        return Seen(decode_record(rows[0][1] if rows else None), file.revision, cluster_id="")
    finally:
        file.close()


def _look_at_file(path: Path) -> FileFacts:
    from restow.storage.sqlite.backup import problems_of  # noqa: PLC0415

    revision = keys = 0
    try:
        try:
            damages = problems_of(path, is_thorough=False)
            if not damages:
                revision, keys = _counted(path)
        except StoreDamaged as error:
            damages = [str(error)]
        status, room = path.stat(), os.statvfs(path)
        log = path.with_name(path.name + "-wal")
        return FileFacts(
            path=path,
            damages=tuple(damages),
            revision=revision,
            keys=keys,
            size=status.st_size,
            log_size=log.stat().st_size if log.exists() else 0,
            free=room.f_bavail * room.f_frsize,
            mode=status.st_mode & 0o777,
            links=status.st_nlink,
            exposures=_exposures(path),
        )
    except StorageError as error:
        return FileFacts(path=path, problem=str(error))
    except OSError as error:
        return FileFacts(path=path, problem=f"{path} cannot be read: {error.strerror}")


def _counted(path: Path) -> tuple[int, int]:
    """The revision of a store file, and the number of its keys."""
    from restow.storage.interface import EVERYTHING  # noqa: PLC0415
    from restow.storage.sqlite.read_only import open_read_only  # noqa: PLC0415

    file = open_read_only(path)
    try:
        return int(file.revision), file.count((EVERYTHING,))
    finally:
        file.close()


def _exposures(path: Path) -> tuple[str, ...]:
    from restow.storage.sqlite.file_setup import files_of  # noqa: PLC0415

    places = [place for place in (path.parent, *files_of(path)) if place.exists()]
    return tuple(filter(None, map(changeable_by_others, places)))
