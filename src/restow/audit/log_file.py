"""The file that the audit log is written to, and those that it was written to before.

    audit.log                                    written now
    audit-2026-01-02T15-04-05.678.log[.gz]       full, older

Only the owner may read them. Several processes may share a file: each looks whether another one has
begun a new file, and a full file is never written over. All of it blocks, so it is called in a
thread, or by who wants to wait.

Not here: when something is written (`sink`).
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
"""About how much is handed to the system at once."""
SAME_MOMENT_MAX: Final = 1_000
_MEGABYTE: Final = 1024 * 1024
_MOMENT: Final = "%Y-%m-%dT%H-%M-%S"
_MOMENT_PATTERN: Final = r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)\.(\d{3})"
_OPEN: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LogRefused(OSError):
    """A file that cannot be used as a log. Says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When a new file is begun, and how long full ones are kept."""

    size_max_megabytes: int = 100
    """0: one file, however long."""
    age_max_days: int = 0
    """0: however old."""
    backups_max: int = 10
    """0: however many."""
    compress: bool = False


class LogFile:
    """A file to which whole lines are appended."""

    def __init__(self, path: str, clock: Clock, rotation: Rotation | None = None) -> None:
        """`-` is the standard output. Raises LogRefused."""
        self._rotation = rotation or Rotation()
        self._clock = clock
        self._is_stdout = path == STANDARD_OUTPUT
        self._path = Path(path)
        self.rotations = 0
        """How many full files there were."""
        self.problem = ""
        """Why it could not be written the last time that it could not."""
        self._fd = sys.stdout.fileno() if self._is_stdout else self._open()
        self._is_torn = not self._is_stdout and _is_torn(self._fd)

    def __repr__(self) -> str:
        return f"<LogFile {self._path}>"

    def write(self, lines: Sequence[bytes]) -> int:
        """Append lines, or several together; how many of them are not in the file, because it
        could not be written. `problem` says why."""
        done = 0
        while done < len(lines):
            piece, count = self._piece(lines, done)
            taken = self._append(piece)
            if taken < len(piece):
                left = lines[done + count :]
                return piece.count(b"\n", taken) + sum(each.count(b"\n") for each in left)
            done += count
        return 0

    def tidy(self) -> None:
        """Compress full files, and delete those that need not be kept. Raises OSError."""
        if self._is_stdout:
            return
        if self._rotation.compress:
            for moment_and_path in self._backups():
                if moment_and_path[1].suffix != ".gz":
                    _compress(moment_and_path[1])
        for path in self._superfluous():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if not self._is_stdout:
            os.close(self._fd)

    def _piece(self, lines: Sequence[bytes], first: int) -> tuple[bytes, int]:
        """Some lines as one piece, and how many."""
        size, count = 0, 0
        for line in lines[first:]:
            if count and size + len(line) > PIECE_BYTES:
                break
            size += len(line)
            count += 1
        return b"".join(lines[first : first + count]), count

    def _append(self, piece: bytes) -> int:
        """How many bytes of it were taken: all, or up to the last line that was."""
        taken = 0
        try:
            if not self._is_stdout:
                self._look(len(piece))
            if self._is_torn:
                self._write(b"\n")  # what is broken off must not spoil the next line
                self._is_torn = False
            while taken < len(piece):
                taken += self._write(memoryview(piece)[taken:])
        except OSError as error:
            self.problem = _described(error)
            whole = piece.rfind(b"\n", 0, taken) + 1
            if whole < taken:
                self._is_torn = not self._take_back(taken - whole)
            return whole
        return taken

    def _write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            os.set_blocking(self._fd, True)  # a pipe that somebody reads slowly
            return os.write(self._fd, data)

    def _take_back(self, nbytes: int) -> bool:
        """Cut off what is broken off at the end. Not while others have the file open, too: what
        they have appended would go with it."""
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

    def _look(self, nbytes: int) -> None:
        """Go on in another file, if this one is full, or is not there any more."""
        try:
            there = self._path.lstat()
            mine = os.fstat(self._fd)
            is_mine = (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)
        except FileNotFoundError:
            is_mine = False
        if not is_mine:
            self._reopen()
        size, limit = os.fstat(self._fd).st_size, self._rotation.size_max_megabytes * _MEGABYTE
        if limit and size and size + nbytes > limit:
            self._put_aside()
            self._reopen()
            self.rotations += 1

    def _reopen(self) -> None:
        fresh = self._open()
        os.close(self._fd)
        self._fd = fresh
        self._is_torn = _is_torn(fresh)

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
            with suppress(OSError):  # who has it for himself is cutting something off, or no log
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # says only: it is open
        except OSError as error:
            os.close(fd)
            if isinstance(error, LogRefused):
                raise
            raise LogRefused(f"audit log {self._path}: {error.strerror or error}") from error
        return fd

    def _put_aside(self) -> None:
        """Give the full file another name: one that nothing has."""
        moment = self._clock.wall().astimezone(UTC)
        for _ in range(SAME_MOMENT_MAX):
            try:
                os.link(self._path, self._backup_path(moment), follow_symlinks=False)
            except FileExistsError:
                moment += timedelta(milliseconds=1)
                continue
            except FileNotFoundError:
                return  # another process was first
            self._path.unlink(missing_ok=True)
            return
        raise LogRefused(f"audit log {self._path}: no free name for a full file")

    def _backup_path(self, moment: datetime) -> Path:
        text = f"{moment.strftime(_MOMENT)}.{moment.microsecond // 1000:03d}"
        return self._path.with_name(f"{self._path.stem}-{text}{self._path.suffix}")

    def _backups(self) -> list[tuple[datetime, Path]]:
        """The full files, oldest first."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        pattern = re.compile(rf"{stem}-{_MOMENT_PATTERN}{suffix}(?:\.gz)?")
        found = []
        for path in self._path.parent.iterdir():
            match = pattern.fullmatch(path.name)
            if match is not None:
                try:
                    moment = datetime.strptime(match[1], _MOMENT).replace(tzinfo=UTC)
                except ValueError:
                    continue  # looks like a date, and is none
                found.append((moment + timedelta(milliseconds=int(match[2])), path))
        return sorted(found)

    def _superfluous(self) -> list[Path]:
        rotation, backups = self._rotation, self._backups()
        gone: set[Path] = set()
        if rotation.backups_max:
            gone.update(path for _, path in backups[: -rotation.backups_max])
        if rotation.age_max_days:
            oldest = self._clock.wall() - timedelta(days=rotation.age_max_days)
            gone.update(path for moment, path in backups if moment < oldest)
        return sorted(gone)


def _is_torn(fd: int) -> bool:
    """Whether a file ends in the middle of a line."""
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) != b"\n"


def _described(error: OSError) -> str:
    """Which error it is, by the name that one looks for."""
    if isinstance(error, LogRefused) or error.errno is None:
        return str(error)
    return f"{errno.errorcode.get(error.errno, error.errno)}, {error.strerror}"


def _compress(path: Path) -> None:
    """Put a compressed file in the place of a full one; whoever breaks off leaves the full one."""
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
        part.unlink(missing_ok=True)  # another process was first
