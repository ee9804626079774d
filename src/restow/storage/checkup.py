"""Reads the state of a store for `restow doctor`: file or members, size, free space. Read-only.

Not here: which findings are problems, and what to do about them.
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
    """State of a store file."""

    path: Path
    problem: str = ""
    """Why it could not be read; then the other fields are unset."""
    damages: tuple[str, ...] = ()
    revision: int = 0
    keys: int = 0
    size: int = 0
    log_size: int = 0
    """Size of the write-ahead log."""
    free: int = 0
    """Bytes available to its owner on the file system."""
    mode: int = 0
    """Permission bits of the file."""
    links: int = 1
    """Number of hard links."""
    exposures: tuple[str, ...] = ()
    """How other users can change the store's files; each text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFacts:
    """State of an etcd cluster."""

    address: str
    members: tuple[MemberFacts, ...]


async def check_up(address: str, runtime: Runtime) -> FileFacts | EtcdFacts:
    """Read the state of the store at this address; raises `OpenRefused` for an invalid address."""
    scheme, _, rest = address.partition(":")
    match scheme:
        case "sqlite" if rest:
            return await asyncio.to_thread(_check_file, Path(rest))
        case "etcd" | "etcds" if rest:
            from restow.storage.etcd import parse_address  # noqa: PLC0415
            from restow.storage.etcd.checkup import query_members  # noqa: PLC0415

            members = await query_members(parse_address(address), runtime)
            return EtcdFacts(address=address, members=tuple(members))
        case _:
            raise OpenRefused(f"cannot check {address!r}: the address must be {CHECKUP_FORMS}")


async def read_identity(address: str, runtime: Runtime) -> Seen:
    """Read the identity of the store at this address; raises a `StorageError`."""
    scheme, _, rest = address.partition(":")
    if scheme == "sqlite":
        return await asyncio.to_thread(_file_identity, Path(rest))
    from restow.storage.etcd import open_etcd, parse_address  # noqa: PLC0415

    storage = await open_etcd(parse_address(address), runtime)
    try:
        return await storage.look()
    finally:
        await storage.close()


def _file_identity(path: Path) -> Seen:
    from restow.storage.sqlite import schema  # noqa: PLC0415
    from restow.storage.sqlite.read_only import open_read_only  # noqa: PLC0415

    file = open_read_only(path)
    try:
        rows = file.query(schema.GET, (IDENTITY_KEY,))
        return Seen(decode_record(rows[0][1] if rows else None), file.revision, cluster_id="")
    finally:
        file.close()


def _check_file(path: Path) -> FileFacts:
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
