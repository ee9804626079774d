"""Files and sinks: rotation, full buffers, disk errors, and file permissions."""

from __future__ import annotations

import asyncio
import errno
import gzip
import logging
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from restow.aio import Runtime, SimulatedClock, SystemClock
from restow.audit.event_parts import Event, parts_of
from restow.audit.log_file import LogFile, LogRefused, Rotation
from restow.audit.sink import EVENT_BYTES, TEXT_BYTES, BatchSink, BlockingSink

START = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
WRITE = os.write
LINE = b"x" * 1023 + b"\n"
MEGABYTE = [LINE] * 1024


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_appends(tmp_path: Path) -> None:
    """Lines are appended to a file and directory that only the owner can read."""
    path = tmp_path / "a" / "audit.log"
    for line in (b"1\n", b"2\n"):
        file = LogFile(str(path), SystemClock())
        assert file.write([line]) == 0
        file.close()
    assert path.read_bytes() == b"1\n2\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_mode_is_corrected(tmp_path: Path) -> None:
    """The mode of a log that others can read is corrected."""
    path = tmp_path / "audit.log"
    path.write_bytes(b"")
    path.chmod(0o644)
    LogFile(str(path), SystemClock()).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_refused(tmp_path: Path) -> None:
    """A directory, a pipe or a link is refused with its name."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_bytes(b"")
    for name in ("", "pipe", "link", "file/log"):
        with pytest.raises(LogRefused, match="audit log"):
            LogFile(str(tmp_path / name), SystemClock())


async def test_rotates(tmp_path: Path) -> None:
    """A full file is renamed with the time, and a new one is created; no line is lost or cut."""
    clock = SimulatedClock(START)
    file = LogFile(str(tmp_path / "audit.log"), clock, Rotation(size_max_megabytes=1))
    assert file.write(MEGABYTE) == 0
    assert file.write([b"2\n"]) == 0
    await clock.advance(1)
    assert file.write(MEGABYTE) == 0
    assert file.write([b"3\n"]) == 0
    file.close()
    assert contents(tmp_path) == {
        "audit-2026-01-02T03-04-05.678.log": b"".join(MEGABYTE),
        "audit-2026-01-02T03-04-06.678.log": b"2\n",
        "audit-2026-01-02T03-04-06.679.log": b"".join(MEGABYTE),
        "audit.log": b"3\n",
    }
    assert file.rotations == 3


def test_no_rotation(tmp_path: Path) -> None:
    """With size 0 there is one file."""
    file = LogFile(str(tmp_path / "log"), SystemClock(), Rotation(size_max_megabytes=0))
    file.write(MEGABYTE)
    file.write(MEGABYTE)
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def make_backups(directory: Path) -> None:
    for day in ("2025-12-01", "2026-01-01", "2026-01-02"):
        (directory / f"audit-{day}T00-00-00.000.log").write_bytes(day.encode())
    (directory / "audit-2026-13-99T00-00-00.000.log").write_bytes(b"no date")
    (directory / "audit-mine.log").write_bytes(b"somebody's")


PRUNED = [
    (Rotation(backups_max=2), ["2026-01-01", "2026-01-02"]),
    (Rotation(backups_max=0, age_max_days=2), ["2026-01-01", "2026-01-02"]),
    (Rotation(backups_max=1, age_max_days=10), ["2026-01-02"]),
    (Rotation(backups_max=0), ["2025-12-01", "2026-01-01", "2026-01-02"]),
]


@pytest.mark.parametrize(("rotation", "kept"), PRUNED)
def test_prunes(tmp_path: Path, rotation: Rotation, kept: list[str]) -> None:
    """Old files are deleted by number and age; other files are kept."""
    make_backups(tmp_path)
    file = LogFile(str(tmp_path / "audit.log"), SimulatedClock(START), rotation)
    file.prune()
    file.close()
    names = [f"audit-{day}T00-00-00.000.log" for day in kept]
    others = ["audit-2026-13-99T00-00-00.000.log", "audit-mine.log", "audit.log"]
    assert sorted(contents(tmp_path)) == sorted([*names, *others])


def test_compresses(tmp_path: Path) -> None:
    """Rotated files are compressed, readable for the owner only, and count as before."""
    make_backups(tmp_path)
    rotation = Rotation(compress=True, backups_max=2)
    file = LogFile(str(tmp_path / "audit.log"), SimulatedClock(START), rotation)
    file.prune()
    file.prune()
    file.close()
    packed = tmp_path / "audit-2026-01-02T00-00-00.000.log.gz"
    assert gzip.decompress(packed.read_bytes()) == b"2026-01-02"
    assert packed.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.glob("*.gz"))) == 2
    assert (tmp_path / "audit-mine.log").exists()


def test_shared_file(tmp_path: Path) -> None:
    """Processes that share a file continue in the new one after another has rotated it."""
    clock = SimulatedClock(START)
    path, rotation = str(tmp_path / "audit.log"), Rotation(size_max_megabytes=1)
    one, other = LogFile(path, clock, rotation), LogFile(path, clock, rotation)
    one.write(MEGABYTE)
    one.write([b"one\n"])
    other.write([b"other\n"])
    assert (tmp_path / "audit.log").read_bytes() == b"one\nother\n"
    (tmp_path / "audit.log").unlink()
    one.write([b"again\n"])
    one.close()
    other.close()
    assert (tmp_path / "audit.log").read_bytes() == b"again\n"


def event(name: str) -> Event:
    """Return an event whose line begins with a name."""
    return (parts_of(name.encode(), (b" ",), b"\n"), b"", 0.0, 0.0)


class Disk:
    """A log file whose disk can fail or be slow."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        """The names at the begin of the lines."""
        self.pieces = 0
        self.refuses = False
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Event()
        self.rotations = 0
        self.problem = "ENOSPC, No space left on device"
        self.closed = False

    def write(self, lines: Sequence[bytes]) -> int:
        self.begun.set()
        self.go_on.wait()
        if self.refuses:
            return len(lines)
        for piece in lines:
            self.lines += [line.split()[0] for line in piece.splitlines()]
            self.pieces += 1
        return 0

    def prune(self) -> None:
        raise OSError("no")

    def close(self) -> None:
        self.closed = True


async def reach(condition: threading.Event) -> None:
    await asyncio.to_thread(condition.wait, 10)


async def test_batches() -> None:
    """Events are written in order, in batches, and all of them before the sink is closed."""
    runtime, disk = Runtime.system(), Disk()
    tasks = runtime.tasks("test")
    sink = BatchSink(disk, runtime.clock, tasks)  # type: ignore[arg-type]
    numbers = [b"%d" % number for number in range(TEXT_BYTES // EVENT_BYTES + 10)]
    for name in numbers:
        sink.put(event(name.decode()), 0)
    assert not disk.lines
    sink.put(event("large"), TEXT_BYTES)
    sink.put(event("last"), 0)
    await sink.close()
    await tasks.close()
    assert disk.lines == [*numbers, b"large", b"last"]
    assert disk.pieces == 3
    assert (sink.written, sink.dropped_full, disk.closed) == (len(disk.lines), 0, True)


async def test_full_buffer(caplog: pytest.LogCaptureFixture) -> None:
    """When the disk is too slow, events beyond the limit are counted and dropped immediately,
    without blocking the loop; later events are written."""
    runtime, disk = Runtime.system(), Disk()
    tasks = runtime.tasks("test")
    room = 2 * EVENT_BYTES
    sink = BatchSink(disk, runtime.clock, tasks, waiting_bytes_max=room)  # type: ignore[arg-type]
    disk.go_on.clear()
    sink.put(event("1"), 0)
    await reach(disk.begun)
    sink.put(event("2"), 0)
    for _ in range(5):
        sink.put(event("3"), 0)  # events that are being written count too
    assert sink.dropped_full == 5
    disk.go_on.set()
    await sink.close()
    await tasks.close()
    assert disk.lines == [b"1", b"2"]
    assert sink.written == 2
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == [
        "the audit log is written more slowly than events arrive: events are lost"
    ]


async def test_disk_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """Lines that the disk rejects are counted, and logged once; so is the recovery."""
    runtime, disk = Runtime.system(), Disk()
    tasks = runtime.tasks("test")
    sink = BlockingSink(disk, runtime.clock, tasks)  # type: ignore[arg-type]
    disk.refuses = True
    for _ in range(3):
        sink.put(event("1"), 0)
    disk.refuses = False
    sink.put(event("2"), 0)
    disk.rotations = 1
    sink.put(event("3"), 0)
    await sink.close()
    await tasks.close()
    assert (sink.written, sink.dropped_disk, disk.lines) == (2, 3, [b"2", b"3"])
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert said[0] == (
        "cannot write the audit log (ENOSPC, No space left on device): events are lost until it"
        " can be written"
    )
    assert said[1] == "the audit log can be written again; 3 events were lost"


def full_after(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk accept so many bytes and no more."""
    room = [nbytes]

    def write(fd: int, data: bytes | memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = WRITE(fd, bytes(data)[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)


def test_full_disk_tears_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial line is truncated to the last complete line, then writing continues."""
    path = tmp_path / "audit.log"
    file = LogFile(str(path), SystemClock())
    lines = [b'{"a":1}\n', b'{"b":2}\n{"c":3}\n', b'{"d":4}\n']
    full_after(11, monkeypatch)
    assert file.write(lines) == 3
    assert file.problem == "ENOSPC, No space left on device"
    assert path.read_bytes() == b'{"a":1}\n'
    monkeypatch.setattr(os, "write", WRITE)
    assert file.write([b'{"e":5}\n']) == 0
    file.close()
    assert path.read_bytes() == b'{"a":1}\n{"e":5}\n'


def test_a_shared_file_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While other processes have the log open, a partial line is kept and terminated, also when it
    is opened."""
    path = tmp_path / "audit.log"
    file, other = LogFile(str(path), SystemClock()), LogFile(str(path), SystemClock())
    full_after(3, monkeypatch)
    assert file.write([b'{"a":1}\n']) == 1
    monkeypatch.setattr(os, "write", WRITE)
    assert file.write([b'{"b":2}\n']) == 0
    full_after(3, monkeypatch)
    assert file.write([b'{"c":3}\n']) == 1
    monkeypatch.setattr(os, "write", WRITE)
    for each in (file, other):
        each.close()
    third = LogFile(str(path), SystemClock())
    assert third.write([b'{"d":4}\n']) == 0
    third.close()
    assert path.read_bytes() == b'{"a\n{"b":2}\n{"c\n{"d":4}\n'
