"""The power fails at any point: acknowledged writes exist after the restart."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime, SeededRandomness
from restow.storage.interface import Done
from restow.storage.sqlite import file_setup, open_sqlite
from tests.sizes import SIZES
from tests.support.faulty_vfs import Fault, FaultyVfs, How, Marked
from tests.support.power_cut import (
    Disk,
    Fate,
    KeepAll,
    KeepFirst,
    KeepNothing,
    KeepSome,
    write_image,
)
from tests.unit.storage.sqlite.workload import Ledger, check_file, open_small, run

ROUNDS = 30


@dataclass
class Recording:
    """A workload that ran to its end, and the journal of its disk operations."""

    vfs: FaultyVfs
    ledger: Ledger

    def answered(self, upto: int) -> Ledger:
        """The replies up to a point of the journal."""
        ledger = Ledger(asked=self.ledger.asked, compacted=self.ledger.compacted)
        for operation in self.vfs.journal[:upto]:
            if isinstance(operation, Marked):
                assert isinstance(operation.note, tuple)
                ledger.answers[operation.note[0]] = operation.note[1]
        return ledger


async def record(
    path: Path, monkeypatch: pytest.MonkeyPatch, vfs: FaultyVfs, *, rounds: int = ROUNDS
) -> Recording:
    storage = await open_small(path, monkeypatch, vfs=vfs)
    ledger = Ledger()
    await run(storage, ledger, rounds=rounds, vfs=vfs)
    await storage.close()
    vfs.unregister()
    return Recording(vfs, ledger)


def fates(seed: int) -> list[Fate]:
    chance = SeededRandomness(seed)
    return [KeepNothing(), KeepSome(chance), KeepFirst(chance), KeepAll()]


async def test_nothing_acknowledged_is_lost(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At sampled points of a workload, whatever subset of the unsynced writes survives: all
    acknowledged writes exist, the file is intact, and the revision is not below them."""
    recording = await record(fast_path / "db", monkeypatch, FaultyVfs("power-cut"))
    journal = recording.vfs.journal
    possible = len(journal) * len(fates(0))
    cuts = min(SIZES.sqlite_power_cuts, possible)
    disk, played = Disk(), 0
    for number in range(cuts):
        point, kind = divmod(number * possible // cuts, len(fates(0)))
        disk.play(journal[played : point + 1])
        played = point + 1
        fate = fates(point)[(kind + number) % 4]
        directory = fast_path / "image"
        write_image(disk.after_cut(fate), directory)
        try:
            await check_file(directory / "db", recording.answered(played))
        except Exception as error:
            raise AssertionError(
                f"cut after {played} of {len(journal)}, {type(fate).__name__}"
            ) from error
        shutil.rmtree(directory)


async def test_a_cut_in_the_middle_of_the_next_start(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery itself may be interrupted repeatedly, and loses nothing."""
    recording = await record(fast_path / "db", monkeypatch, FaultyVfs("first-run"), rounds=8)
    point = len(recording.vfs.journal) * 3 // 4
    disk = Disk()
    disk.play(recording.vfs.journal[:point])
    answered = recording.answered(point)
    assert any(isinstance(answer, Done) for answer in answered.answers.values())
    chance = SeededRandomness(7)
    write_image(disk.after_cut(KeepSome(chance)), fast_path / "restart-0")
    for restart in range(8):
        vfs = FaultyVfs(f"restart-{restart}")
        path = fast_path / f"restart-{restart}"
        storage = await open_sqlite(path / "db", Runtime.system(), vfs=vfs.name)
        await storage.close()
        vfs.unregister()
        disk = Disk()
        disk.play(vfs.journal[: chance.randrange(len(vfs.journal)) + 1])
        left = disk.after_cut(KeepSome(chance))
        if "db-wal" not in left and not any(
            getattr(operation, "file", "") == "db-wal" for operation in vfs.journal
        ):
            break  # clean already: nothing left to recover
        write_image(left, fast_path / f"restart-{restart + 1}")
        await _check_copy(fast_path / f"restart-{restart + 1}", answered)


async def _check_copy(directory: Path, ledger: Ledger) -> None:
    copy = directory.with_name("copy")
    shutil.copytree(directory, copy)
    await check_file(copy / "db", ledger)
    shutil.rmtree(copy)


@pytest.mark.parametrize("mutant", ["the disk lies about syncs", "the driver does not sync"])
async def test_the_check_detects_lost_writes(
    mutant: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that ignores syncs, or a driver that does not sync, is detected as losing writes."""
    vfs = FaultyVfs(f"mutant-{len(mutant)}")
    if mutant == "the disk lies about syncs":
        vfs.faults = [Fault(kind="sync", how=How.LIE, first=20, last=10_000)]
    else:
        connect = file_setup.connect

        def without_sync(path: Path, *, cache_kib: int, vfs: str | None = None) -> apsw.Connection:
            connection = connect(path, cache_kib=cache_kib, vfs=vfs)
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection

        monkeypatch.setattr(file_setup, "connect", without_sync)
    recording = await record(fast_path / "db", monkeypatch, vfs, rounds=8)
    monkeypatch.undo()
    lost = 0
    for point in range(100, len(vfs.journal), 40):
        disk = Disk()
        disk.play(vfs.journal[:point])
        write_image(disk.after_cut(KeepNothing()), fast_path / "image")
        try:
            await check_file(fast_path / "image" / "db", recording.answered(point))
        except AssertionError:
            lost += 1
        shutil.rmtree(fast_path / "image")
    assert lost
