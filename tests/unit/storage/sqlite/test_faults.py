"""Each disk call of a workload fails once; and a disk that stays broken."""

import itertools
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from restow.aio import Runtime
from restow.storage.errors import StorageError, StoreFull, Unavailable
from restow.storage.interface import Absent, Done, Key, Put, Refused, Transaction, Unknown
from restow.storage.sqlite import open_sqlite
from tests.sizes import SIZES
from tests.support.faulty_vfs import FOR_EVER, Fault, FaultyVfs, How, Kind, Marked
from tests.support.power_cut import Disk, Fate, KeepAll, KeepNothing, write_image
from tests.unit.storage.sqlite.workload import Ledger, check_file, integrity, open_small, run

ROUNDS = 12
ATTEMPTS = 20
CASES: list[tuple[Kind, How]] = [
    ("write", How.IO_ERROR),
    ("write", How.TORN),
    ("write", How.LATE_ERROR),
    ("write", How.FULL),
    ("write", How.TORN_FULL),
    ("sync", How.IO_ERROR),
    ("truncate", How.IO_ERROR),
]
NAMES = (f"faulty-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable the driver's log: each failure is logged, and here are thousands."""
    others = sys.unraisablehook

    def report(unraisable: "sys.UnraisableHookArgs") -> None:
        # apsw cannot pass on exceptions of the test VFS while SQLite closes a file.
        if not isinstance(unraisable.exc_value, apsw.Error):
            others(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", report)
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


async def run_with(
    path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[Fault]
) -> tuple[FaultyVfs, Ledger, int]:
    """Run the workload on a new store, with faults counted from after its opening."""
    vfs = FaultyVfs(next(NAMES))
    ledger = Ledger()
    storage = await open_small(path, monkeypatch, vfs=vfs)
    vfs.faults = [
        Fault(
            kind=fault.kind,
            how=fault.how,
            first=vfs.counts[fault.kind] + fault.first,
            last=fault.last and vfs.counts[fault.kind] + fault.last,
        )
        for fault in faults
    ]
    try:
        await run(storage, ledger, rounds=ROUNDS, vfs=vfs)
        end = len(vfs.journal)
    finally:
        await storage.close()
        vfs.unregister()
    return vfs, ledger, end


async def check_killed(
    directory: Path, vfs: FaultyVfs, ledger: Ledger, upto: int, fate: Fate
) -> None:
    """Check that the replies up to a point of the journal hold if the process ends there."""
    disk = Disk()
    disk.play(vfs.journal[:upto])
    write_image(disk.after_cut(fate), directory)
    notes = (op.note for op in vfs.journal[:upto] if isinstance(op, Marked))
    answered = Ledger(asked=ledger.asked, compacted=ledger.compacted)
    for note in notes:
        assert isinstance(note, tuple)
        answered.answers[note[0]] = note[1]
    await check_file(directory / "db", answered)


def first_trouble(vfs: FaultyVfs) -> int | None:
    """The point of the journal after the first reply that is not an outcome."""
    for index, operation in enumerate(vfs.journal):
        if isinstance(operation, Marked):
            assert isinstance(operation.note, tuple)
            if isinstance(operation.note[1], Unavailable | Unknown):
                return index + 1
    return None


async def check_every_way(directory: Path, vfs: FaultyVfs, ledger: Ledger, end: int) -> None:
    """After a clean close, after a kill at the first failure, after a power cut at the end."""
    await check_file(directory / "db", ledger)
    trouble = first_trouble(vfs)
    if trouble is not None:
        await check_killed(directory / "killed", vfs, ledger, trouble, KeepAll())
        await check_killed(directory / "cut", vfs, ledger, trouble, KeepNothing())
    await check_killed(directory / "killed-late", vfs, ledger, end, KeepAll())
    await check_killed(directory / "cut-late", vfs, ledger, end, KeepNothing())


async def count_calls(directory: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> int:
    """Number of calls of a kind that the workload makes without faults, including its close.

    Batching differs from run to run, and the number of calls with it: the minimum of some
    runs.
    """
    counts = []
    for number in range(3):
        path = directory / f"count-{number}"
        path.mkdir()
        vfs = FaultyVfs(next(NAMES))
        storage = await open_small(path / "db", monkeypatch, vfs=vfs)
        before = vfs.counts[kind]
        await run(storage, Ledger(), rounds=ROUNDS, vfs=vfs)
        await storage.close()
        vfs.unregister()
        counts.append(vfs.counts[kind] - before)
    return min(counts)


@pytest.mark.parametrize(("kind", "how"), CASES, ids=lambda value: getattr(value, "name", value))
async def test_any_single_fault(
    kind: Kind, how: How, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call fails once: nothing acknowledged is lost, nothing refused appears, and the
    handle stays usable."""
    calls = await count_calls(fast_path, monkeypatch, kind)
    stride = 1 if kind != "write" else SIZES.sqlite_fault_stride
    start = CASES.index((kind, how)) % stride + 1
    for number in range(start, calls + 1, stride):
        try:
            await check_fault(fast_path, monkeypatch, Fault(kind=kind, how=how, first=number))
        except Exception as error:
            raise AssertionError(f"{kind} {number} of {calls}, {how}") from error


async def check_fault(directory: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Run the workload until the fault has fired; a run may end before it reaches that call."""
    for attempt in range(ATTEMPTS):
        place = directory / f"{fault.first}-{attempt}"
        place.mkdir()
        vfs, ledger, end = await run_with(place / "db", monkeypatch, [fault])
        await check_every_way(place, vfs, ledger, end)
        shutil.rmtree(place)
        if vfs.fired:
            assert vfs.fired == 1
            return
    raise AssertionError(f"the fault did not fire in {ATTEMPTS} runs")


async def test_a_failed_sync_ends_the_handle(fast_path: Path) -> None:
    """After a failed sync the connection is dropped, not used again; the commit was rolled back, is
    reported as such, and may be sent again."""
    vfs = FaultyVfs(next(NAMES))
    path = fast_path / "db"
    storage = await open_sqlite(path, Runtime.system(), vfs=vfs.name)
    key = Key("/restow/x")
    put = Transaction((Absent(key),), (Put(key, b"1"),))
    before = storage._writer._connection
    vfs.faults = [Fault(kind="sync", how=How.IO_ERROR, first=vfs.next_number("sync"))]
    with pytest.raises(Unavailable, match="IOError"):
        await storage.commit(put)
    assert vfs.fired == 1
    assert storage._writer._connection is not before
    assert await storage.get(key) is None
    assert isinstance(await storage.commit(put), Done)
    assert isinstance(await storage.commit(put), Refused)
    await storage.close()
    vfs.unregister()
    assert integrity(path) == "ok"


async def test_a_commit_that_cannot_be_settled_is_unknown(fast_path: Path) -> None:
    """If settling fails as well, the outcome is Unknown; and the handle recovers."""
    vfs = FaultyVfs(next(NAMES))
    path = fast_path / "db"
    storage = await open_sqlite(path, Runtime.system(), vfs=vfs.name)
    first = vfs.next_number("sync")
    vfs.faults = [Fault(kind="sync", how=How.IO_ERROR, first=first, last=first + 1)]
    key = Key("/restow/x")
    outcome = await storage.commit(Transaction((), (Put(key, b"1"),)))
    assert isinstance(outcome, Unknown)
    assert "its outcome is unknown" in outcome.reason
    assert isinstance(await storage.commit(Transaction((), (Put(key, b"2"),))), Done)
    item = await storage.get(key)
    assert item is not None
    assert item.value == b"2"
    await storage.close()
    vfs.unregister()
    assert integrity(path) == "ok"


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("write", How.IO_ERROR),
        ("write", How.LATE_ERROR),
        ("write", How.TORN_FULL),
        ("sync", How.IO_ERROR),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_a_disk_that_stays_broken(
    kind: Kind, how: How, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All calls fail from some point on, including settling: earlier replies still hold after the
    process ends, and no write that was reported as failed appears."""
    calls = await count_calls(fast_path, monkeypatch, kind)
    stride = 2 if kind == "sync" else SIZES.sqlite_fault_stride * 2
    for number in range(1, calls + 1, stride):
        directory = fast_path / str(number)
        directory.mkdir()
        try:
            faults = [Fault(kind=kind, how=how, first=number, last=FOR_EVER)]
            vfs, ledger, end = await run_with(directory / "db", monkeypatch, faults)
            await check_every_way(directory, vfs, ledger, end)
        except Exception as error:
            raise AssertionError(f"from {kind} {number} of {calls} on, {how}") from error
        shutil.rmtree(directory)


@pytest.mark.parametrize(("kind", "how"), CASES, ids=lambda value: getattr(value, "name", value))
async def test_a_fault_while_opening(kind: Kind, how: How, fast_path: Path) -> None:
    """A failed creation is reported, and the next open can create the store."""
    for number in range(1, 100):
        vfs = FaultyVfs(next(NAMES))
        vfs.faults = [Fault(kind=kind, how=how, first=number)]
        path = fast_path / str(number) / "db"
        path.parent.mkdir()
        full = how in (How.FULL, How.TORN_FULL)
        try:
            storage = await open_sqlite(path, Runtime.system(), vfs=vfs.name)
        except StoreFull:
            assert full
        except StorageError:
            assert vfs.fired
            assert not full
        else:
            await storage.close()
        vfs.unregister()
        await check_file(path, Ledger())
        if not vfs.fired:
            break
    else:
        pytest.fail("opening a store makes an unlimited number of calls")
    assert number > 1
