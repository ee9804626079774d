"""Opens and creates the store file, and checks its environment before its content is trusted.

Every refusal states the problem and what to do. Nothing here reads or writes keys.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from restow.storage import private_files
from restow.storage.errors import OpenRefused, StoreDamaged, Unavailable
from restow.storage.interface import Revision
from restow.storage.sqlite import schema
from restow.storage.sqlite.locks import USERS_LOCK, FileLock

WRITER_CACHE_KIB: Final = 16_000
READER_CACHE_KIB: Final = 4_000
BUSY_MILLISECONDS: Final = 10_000
"""How long a thread waits for another process that holds the file."""
BUSY_ON_LOOP_MILLISECONDS: Final = 5
"""How long the event loop waits; afterwards it retries later."""

FILE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
"""Files of a store; SQLite creates the others with the mode of the first."""

# Where SQLite's shared memory or its locks do not work across machines.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "ncpfs"}
    | {"ocfs2", "gfs2", "beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs"}
    | {"fuse.gcsfuse", "fuse.rclone"}
)

# In earlier versions, two processes that write and checkpoint at once could corrupt a file.
WAL_RESET_FIXED: Final = (3, 51, 3)
WAL_RESET_BACKPORTS: Final = ((3, 50, 7), (3, 44, 6))


def check_sqlite(version: tuple[int, int, int]) -> None:
    """Reject an SQLite that can corrupt a file which several processes share."""
    fixed = version >= WAL_RESET_FIXED or any(
        version[:2] == backport[:2] and version >= backport for backport in WAL_RESET_BACKPORTS
    )
    if not fixed:
        raise OpenRefused(
            f"SQLite {_dotted(version)} can corrupt a write-ahead log that several processes"
            f" share (the WAL-reset bug); at least {_dotted(WAL_RESET_FIXED)} is needed:"
            " install a newer apsw"
        )


def check_file_system(path: Path, mounts: str) -> None:
    """Reject a network file system, and a file that is mounted by itself: under another
    name it would have another log. `mounts` is the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if "-" not in fields or len(fields) < fields.index("-") + 2:
            continue
        point = fields[4].replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    if best == str(path):
        raise OpenRefused(
            f"{path} is a mount point, so that its write-ahead log is not beside the file that was"
            " mounted: mount the directory instead"
        )
    if kind in NETWORK_FILE_SYSTEMS:
        raise OpenRefused(
            f"{path} is on a network file system ({kind} at {best}), where SQLite cannot be"
            " shared safely: use a local disk, or etcd"
        )


def check_writable(path: Path) -> None:
    """Reject a file that cannot be created or cannot be written."""
    if not path.parent.is_dir():
        raise OpenRefused(f"{path.parent} is not a directory: create it first, or use another path")
    if not path.exists():
        return
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise OpenRefused(f"{path} is not a regular file")
    if (problem := private_files.links_problem(path, path.stat().st_nlink)) is not None:
        raise OpenRefused(problem)
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise OpenRefused(f"{path} is read-only: make it writable for this user")


def make_private(path: Path) -> None:
    """Reject a store that others can change; remove others' read permission."""
    try:
        problem = private_files.ownership_problem(path.parent)
        problem = problem or private_files.changeable_by_others(path.parent)
        if problem is not None:
            raise OpenRefused(problem)
        for place in (*files_of(path), peers_directory(path)):
            if os.path.lexists(place):
                private_files.secure(place)
    except OSError as error:
        raise OpenRefused(f"cannot read the permissions of {path}: {error.strerror}") from error


def check_private(path: Path) -> None:
    """The same for read-only use: no mode is changed, and any owner is accepted."""
    try:
        for place in (path.parent, *files_of(path)):
            problem = private_files.changeable_by_others(place) if place.exists() else None
            if problem is not None:
                raise OpenRefused(problem)
    except OSError as error:
        raise OpenRefused(f"cannot read the permissions of {path}: {error.strerror}") from error


def files_of(path: Path) -> tuple[Path, ...]:
    return tuple(path.with_name(path.name + suffix) for suffix in FILE_SUFFIXES)


def prepare(path: Path, *, vfs: str | None = None) -> FileLock:
    """Check the file and, if necessary, create it. Returns the lock that shows that it is in use.

    Blocks the thread: other processes may be creating or checking the same file.
    """
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    check_sqlite((version[0], version[1], version[2]))
    check_writable(path)
    make_private(path)
    mounts = Path("/proc/self/mountinfo")
    if mounts.exists():
        check_file_system(path.resolve(), mounts.read_text())
    directory = peers_directory(path)
    private_files.make_directory(directory)
    users = FileLock(directory / USERS_LOCK)
    try:
        # Under the exclusive lock: check a file after an unclean stop, or create a new one.
        if users.try_acquire():
            _prepare_alone(path, vfs)
        users.share()
        connection = connect(path, cache_kib=READER_CACHE_KIB, vfs=vfs)
        try:
            _check_marks(path, connection)
        finally:
            connection.close()
    except apsw.NotADBError:
        users.close()
        raise OpenRefused(f"{path} is not an SQLite file, so not a restow store") from None
    except BaseException:
        users.close()
        raise
    return users


def peers_directory(path: Path) -> Path:
    """Directory of the locks and sockets of the processes that share a file."""
    return path.with_name(path.name + "-peers")


def connect(path: Path, *, cache_kib: int, vfs: str | None = None) -> apsw.Connection:
    """A connection with the settings that this driver's guarantees depend on."""
    flags = apsw.SQLITE_OPEN_READWRITE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see checkpoints
    except BaseException:
        disconnect(connection)
        raise
    return connection


def read_file_revision(path: Path, *, vfs: str | None = None) -> Revision | None:
    """The revision in the file itself, ignoring its log: that of the last checkpoint.

    None if it cannot be read now, for example during a checkpoint. Locks of other connections of
    this process stay: SQLite closes the descriptor when the last of them is closed.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags, vfs=vfs)
        try:
            row: Any = connection.execute(schema.REVISION).fetchone()
        finally:
            connection.close()
    except apsw.Error:
        return None
    return Revision(row[0]) if row is not None and isinstance(row[0], int) else None


def disconnect(connection: apsw.Connection) -> None:
    """Close it. The checkpoint of the last close may fail: nothing is lost by that."""
    with suppress(apsw.Error):
        connection.close(True)


def _prepare_alone(path: Path, vfs: str | None) -> None:
    created = not path.exists()
    if created:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_files.FILE_MODE)
        os.fchmod(file, private_files.FILE_MODE)  # independent of the umask
        os.close(file)
    log = path.with_name(path.name + "-wal")
    unclean = log.exists() and log.stat().st_size > 0
    connection = connect(path, cache_kib=WRITER_CACHE_KIB, vfs=vfs)
    try:
        if _is_blank(connection):
            _make(connection)
        _check_marks(path, connection)
        _use_log(connection)
        if unclean:
            _check_pages(path, connection)
    finally:
        connection.close()
    if created:
        _sync_directory(path.parent)


def _is_blank(connection: apsw.Connection) -> bool:
    """Whether the file is empty; a crash during its creation may have left it so."""
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    return tables == (0,) and _pragma(connection, "application_id") == 0


def _make(connection: apsw.Connection) -> None:
    connection.execute(f"PRAGMA page_size = {schema.PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _use_log(connection)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(schema.CREATE)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.FORMAT}")
    connection.execute("COMMIT")


def _use_log(connection: apsw.Connection) -> None:
    """Enable the write-ahead log: SQLite does not raise when it cannot switch to it."""
    row = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if row != ("wal",):
        raise Unavailable(f"the store cannot use a write-ahead log: journal mode is {row}")


def _check_marks(path: Path, connection: apsw.Connection) -> None:
    mark, form = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if mark != schema.APPLICATION_ID:
        raise OpenRefused(
            f"{path} is an SQLite file, but not a restow store: give the path of a new file"
        )
    if form > schema.FORMAT:
        raise OpenRefused(
            f"{path} has format {form}; this restow supports formats up to {schema.FORMAT}:"
            " use a newer restow"
        )
    if connection.execute(schema.BACKUP).fetchone() is not None:
        raise OpenRefused(
            f"{path} is a backup, which no server may use: restore it into a new store with"
            f" `restow restore {path} --data-dir DIR`"
        )


def _check_pages(path: Path, connection: apsw.Connection) -> None:
    """After an unclean stop: check whether the file is intact before it is used."""
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(10)")]
    if found != ["ok"]:
        raise StoreDamaged(
            f"{path} was not closed cleanly and is damaged ({'; '.join(found)}): restore a backup"
        )


def _pragma(connection: apsw.Connection, name: str) -> int:
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return int(row[0]) if row else 0


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
