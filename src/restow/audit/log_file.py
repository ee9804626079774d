"""The audit log file and its rotated files.

    audit.log                                    the current file
    audit-2026-01-02T15-04-05.678.log[.gz]       rotated files

Only the owner may read them. Several processes may share a file: each checks whether another one
has rotated it, and a rotated file is never overwritten. All functions block, so they are called in
a thread, or where blocking is intended.

Not here: when events are written (`sink`).
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from restow.aio import Clock

STANDARD_OUTPUT: Final = "-"
MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
PIECE_BYTES: Final = 1024 * 1024
"""Approximate size of one write call."""
SAME_MOMENT_MAX: Final = 1_000
_MEGABYTE: Final = 1024 * 1024
_MOMENT: Final = "%Y-%m-%dT%H-%M-%S"
_MOMENT_PATTERN: Final = r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)\.(\d{3})"
_OPEN: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LogRefused(OSError):
    """A file that cannot be used as an audit log; the message names it and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a file is rotated, and how long rotated files are kept."""

    size_max_megabytes: int = 100
    """0: no rotation."""
    age_max_days: int = 0
    """0: no limit."""
    backups_max: int = 10
    """0: no limit."""
    compress: bool = False


class LogFile:
    """An append-only file of complete lines."""

    def __init__(self, path: str, clock: Clock, rotation: Rotation | None = None) -> None:
        """`-` is the standard output. Raises LogRefused."""
        self._rotation = rotation or Rotation()
        self._clock = clock
        self._is_stdout = path == STANDARD_OUTPUT
        self._path = Path(path)
        self.rotations = 0
        """Number of rotations."""
        self.problem = ""
        """The reason of the last failed write."""
        self._fd = sys.stdout.fileno() if self._is_stdout else self._open()
        self._ends_with_partial_line = not self._is_stdout and _ends_with_partial_line(self._fd)

    def __repr__(self) -> str:
        return f"<LogFile {self._path}>"

    def write(self, lines: Sequence[bytes]) -> int:
        """Append elements of one or more lines. Return the number of lines that could not be
        written; `problem` has the reason."""
        done = 0
        while done < len(lines):
            piece, count = self._piece(lines, done)
            taken = self._append(piece)
            if taken < len(piece):
                left = lines[done + count :]
                return piece.count(b"\n", taken) + sum(each.count(b"\n") for each in left)
            done += count
        return 0

    def prune(self) -> None:
        """Compress rotated files, and delete those beyond the limits. Raises OSError."""
        if self._is_stdout:
            return
        if self._rotation.compress:
            for moment_and_path in self._backups():
                if moment_and_path[1].suffix != ".gz":
                    _compress(moment_and_path[1])
        for path in self._expired():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if not self._is_stdout:
            os.close(self._fd)

    def _piece(self, lines: Sequence[bytes], first: int) -> tuple[bytes, int]:
        """Return the next elements joined for one write, and their number."""
        size, count = 0, 0
        for line in lines[first:]:
            if count and size + len(line) > PIECE_BYTES:
                break
            size += len(line)
            count += 1
        return b"".join(lines[first : first + count]), count

    def _append(self, piece: bytes) -> int:
        """Write a piece and return the number of bytes written: all, or up to the last complete
        line."""
        taken = 0
        try:
            if not self._is_stdout:
                self._rotate_if_needed(len(piece))
            if self._ends_with_partial_line:
                self._write(b"\n")  # end a partial line, so that it does not corrupt the next one
                self._ends_with_partial_line = False
            while taken < len(piece):
                taken += self._write(memoryview(piece)[taken:])
        except OSError as error:
            self.problem = _error_text(error)
            whole = piece.rfind(b"\n", 0, taken) + 1
            if whole < taken:
                self._ends_with_partial_line = not self._take_back(taken - whole)
            return whole
        return taken

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            os.set_blocking(self._fd, True)  # a pipe with a slow reader
            return os.write(self._fd, data)

    def _take_back(self, nbytes: int) -> bool:
        """Truncate a partial line at the end, unless other processes have the file open: their
        lines could follow it."""
        if self._is_stdout:
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                end = os.lseek(self._fd, 0, os.SEEK_CUR)
                if os.fstat(self._fd).st_size != end:
                    return False
                os.ftruncate(self._fd, end - nbytes)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _rotate_if_needed(self, nbytes: int) -> None:
        """Rotate the file if it is full, and reopen it if it was rotated or deleted."""
        try:
            current = self._path.lstat()
            own = os.fstat(self._fd)
            is_current = (current.st_ino, current.st_dev) == (own.st_ino, own.st_dev)
        except FileNotFoundError:
            is_current = False
        if not is_current:
            self._reopen()
        size, limit = os.fstat(self._fd).st_size, self._rotation.size_max_megabytes * _MEGABYTE
        if limit and size and size + nbytes > limit:
            self._rename_full()
            self._reopen()
            self.rotations += 1

    def _reopen(self) -> None:
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        self._ends_with_partial_line = _ends_with_partial_line(fresh)

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            fd = os.open(self._path, _OPEN, MODE)
        except OSError as error:
            raise LogRefused(f"audit log {self._path}: {error.strerror or error}") from error
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise LogRefused(f"audit log {self._path}: not a file")
            if stat.S_IMODE(found.st_mode) & ~MODE:
                os.fchmod(fd, MODE)
            # an exclusive lock: another process is truncating a partial line, or it is no audit log
            with suppress(OSError):
                # a shared lock only shows that the file is open
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, LogRefused):
                raise
            raise LogRefused(f"audit log {self._path}: {error.strerror or error}") from error
        return fd

    def _rename_full(self) -> None:
        """Rename the full file to an unused name."""
        moment = self._clock.wall().astimezone(UTC)
        for _ in range(SAME_MOMENT_MAX):
            try:
                os.link(self._path, self._backup_path(moment), follow_symlinks=False)
            except FileExistsError:
                moment += timedelta(milliseconds=1)
                continue
            except FileNotFoundError:
                return  # another process has rotated it
            self._path.unlink(missing_ok=True)
            return
        raise LogRefused(f"audit log {self._path}: no unused name for a rotated file")

    def _backup_path(self, moment: datetime) -> Path:
        text = f"{moment.strftime(_MOMENT)}.{moment.microsecond // 1000:03d}"
        return self._path.with_name(f"{self._path.stem}-{text}{self._path.suffix}")

    def _backups(self) -> list[tuple[datetime, Path]]:
        """Return the rotated files, oldest first."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        pattern = re.compile(rf"{stem}-{_MOMENT_PATTERN}{suffix}(?:\.gz)?")
        found = []
        for path in self._path.parent.iterdir():
            match = pattern.fullmatch(path.name)
            if match is not None:
                try:
                    moment = datetime.strptime(match[1], _MOMENT).replace(tzinfo=UTC)
                except ValueError:
                    continue  # not a valid date
                found.append((moment + timedelta(milliseconds=int(match[2])), path))
        return sorted(found)

    def _expired(self) -> list[Path]:
        rotation, backups = self._rotation, self._backups()
        expired: set[Path] = set()
        if rotation.backups_max:
            expired.update(path for _, path in backups[: -rotation.backups_max])
        if rotation.age_max_days:
            oldest = self._clock.wall() - timedelta(days=rotation.age_max_days)
            expired.update(path for moment, path in backups if moment < oldest)
        return sorted(expired)


def _ends_with_partial_line(fd: int) -> bool:
    """Return whether a file ends with a partial line."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _error_text(error: OSError) -> str:
    """Return the name and the message of an error."""
    if isinstance(error, LogRefused) or error.errno is None:
        return str(error)
    return f"{errno.errorcode.get(error.errno, error.errno)}, {error.strerror}"


def _compress(path: Path) -> None:
    """Replace a rotated file with a compressed one. If interrupted, the uncompressed file
    remains."""
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    target = path.with_name(f"{path.name}.gz")
    try:
        with (
            path.open("rb") as source,
            os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed,
        ):
            shutil.copyfileobj(source, packed)
        part.rename(target)
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        part.unlink(missing_ok=True)  # another process has compressed it
