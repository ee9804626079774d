"""One run: a store, a fault, a load, and the checks.

    calm → fault → healed → calm → the load ends → everything is checked

A run with too small a load, or without an effect of the fault, proves nothing: it is void, which is
a separate error. Not here: the checks (`replay_check`, `watch_view`, `raw_audit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from restow.kinds.releases import shipped_release
from restow.registry.catalog import release_catalog
from restow.storage.interface import Key, Storage
from tests.support.fire.fault import Fault, Window
from tests.support.fire.load_process import LoadPlan, LoadProcess
from tests.support.fire.objects import WIDGETS
from tests.support.fire.raw_audit import audit
from tests.support.fire.record import NOT_SENT, PUT_OFF, REFUSALS, LoadRecord
from tests.support.fire.replay_check import check_operations
from tests.support.fire.server_faults import ClockSkew, KillAll, KillOne, Pause, RollingUpgrade
from tests.support.fire.stage import NEW, Stage, StageFailed
from tests.support.fire.store_faults import FullDisk, LeaderKilled, Partition, SlowStore
from tests.support.fire.stores import make_store
from tests.support.fire.truth import Truth, read_truth
from tests.support.fire.watch_view import check_watcher, comparable_log

WRITES_PER_SECOND_MIN: Final = 100.0
"""Writes per second; below that, outside of the fault, a run is void."""
PER_SECOND: Final = 250.0
"""Operations per second, including reads, that a load tries."""
CALM_WRITES_MIN: Final = 50
"""Number of writes before the fault, and after recovery."""
HEALED_WRITES_MIN: Final = 20
"""Number of writes after the fault that count as recovery."""
SERVERS: Final = 3
LOAD_STOPPED_SECONDS_MAX: Final = 120.0
PROBLEMS_MAX: Final = 50
"""Maximum of reported problems."""
FAULTS: Final[dict[str, type[Fault]]] = {
    each.NAME: each
    for each in (
        *(KillOne, KillAll, Pause, Partition, SlowStore),
        *(FullDisk, ClockSkew, LeaderKilled, RollingUpgrade),
    )
}


class RunVoid(Exception):
    """The run proves nothing; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FireResult:
    """The result of a run."""

    store: str
    fault: str
    seed: int
    seconds: float
    """Seconds of the load."""
    acknowledged: int
    """Writes."""
    writes_per_second: float
    """Outside of the fault."""
    refused: int
    """Writes that were correctly refused: a conflict, or not found."""
    put_off: int
    """Requests to be retried, or without a connection."""
    unknown: int
    """Writes of unknown outcome."""
    watchers: int
    cuts: int
    events: int
    """Events that watchers saw."""
    revisions: int
    """Revisions audited."""
    values: int
    """Values audited, of all kinds, including overwritten ones."""
    narrowed: int
    """Verified migrations of the kind under load."""
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class Times:
    """Start times of the phases, on the monotonic clock."""

    calm: float = 0.0
    fault: float = 0.0
    healed: float = 0.0
    end: float = 0.0

    def is_calm(self, moment: float) -> bool:
        return self.calm <= moment < self.fault or self.healed <= moment < self.end

    @property
    def calm_seconds(self) -> float:
        return (self.fault - self.calm) + (self.end - self.healed)


async def run_fire(
    store: str,
    fault: str,
    *,
    seed: int,
    seconds: float,
    directory: Path,
    writes_per_second_min: float = WRITES_PER_SECOND_MIN,
    per_second: float = PER_SECOND,
) -> FireResult:
    """Run it. The directory must be new; the load lasts longer if the fault does.

    Raises RunVoid, StageFailed, CannotBeMade.
    """
    made = FAULTS[fault]()
    if store not in made.STORES:
        raise RunVoid(f"{fault} is not for {store}")
    where = make_store(store, directory, servers=SERVERS, is_small=made.NEEDS_SMALL_STORE)
    stage = Stage(directory, where, releases=made.RELEASES, has_skews=made.NEEDS_SKEWS)
    times = Times()
    try:
        await stage.open()
        plan = LoadPlan(target=stage.target(), seed=seed, per_second=per_second)
        load = LoadProcess(directory / "load", plan)
        storage = await stage.open_storage()
        try:
            await _play(stage, storage, load.launch(), fault=made, times=times, seconds=seconds)
            stage.end()  # no pending request can be applied after this
            truth, problems = await read_truth(storage)
        finally:
            load.kill()
            await storage.close()
        problems += where.check()
    finally:
        await stage.close()
    record = LoadRecord.load(load.record_file)
    check_load(record, times, writes_per_second_min)
    check_bite(made, Window.of(record, begin=times.fault, end=times.healed))
    ports = stage.target().ports
    return judge(record, truth, problems, times=times, names=(store, fault), ports=ports)


async def _play(
    stage: Stage,
    storage: Storage,
    load: LoadProcess,
    *,
    fault: Fault,
    times: Times,
    seconds: float,
) -> None:
    """The run itself, until the load has ended."""
    await stage.wait(load.is_up, "the load runs")
    times.calm = stage.now()
    await stage.sleep(seconds / 4)
    await _see_writes(stage, load, CALM_WRITES_MIN)
    times.fault = stage.now()
    await fault.inject(stage, storage)
    await stage.sleep(max(seconds / 2 - (stage.now() - times.fault), 0))
    if fault.WRITES_MIN:
        await _see_writes(stage, load, fault.WRITES_MIN)
    await fault.heal(stage, storage)
    await _see_writes(stage, load, HEALED_WRITES_MIN)
    times.healed = stage.now()
    await stage.sleep(seconds / 4)
    await _see_writes(stage, load, CALM_WRITES_MIN)
    times.end = stage.now()
    load.send_stop_signal()
    process = load.process
    assert process is not None
    await stage.wait(lambda: process.poll() is not None, "the load ends", LOAD_STOPPED_SECONDS_MAX)
    if load.wait_stopped():
        raise StageFailed(f"the load has failed:\n{load.log_tail()}")


async def _see_writes(stage: Stage, load: LoadProcess, wanted: int) -> None:
    """Wait for so many more writes, however slow the machine is."""
    known = load.progress.acknowledged
    await stage.wait(
        lambda: load.progress.acknowledged >= known + wanted, f"{wanted} writes are done"
    )


def check_load(record: LoadRecord, times: Times, per_second_min: float) -> None:
    """Raises RunVoid if the load was too small."""
    found = _per_second(record, times)
    if found < per_second_min:
        raise RunVoid(f"load: {found:.0f} writes/s outside of the fault, below {per_second_min}")


def _per_second(record: LoadRecord, times: Times) -> float:
    """Writes per second outside of the fault."""
    done = sum(
        each.is_write and each.is_done and times.is_calm(each.ended) for each in record.operations
    )
    return done / times.calm_seconds if times.calm_seconds else 0.0


def check_bite(fault: Fault, window: Window) -> None:
    """Raises RunVoid if no client was affected by the fault."""
    missed = fault.notes + fault.missed(window)
    if missed:
        counts = dict(window.statuses())
        raise RunVoid(f"{fault.NAME} had no effect: {'; '.join(missed)} (statuses {counts})")


def judge(
    record: LoadRecord,
    truth: Truth,
    problems: Sequence[str],
    *,
    times: Times,
    names: tuple[str, str],
    ports: tuple[int, ...],
) -> FireResult:
    """Check all operations and events against the log of the store."""
    operations = record.operations
    found = [*problems, *check_operations(operations, truth)]
    asked: dict[tuple[Key, int], int] = {
        (each.key, each.revision): each.server
        for each in operations
        if each.is_write and each.is_done and each.revision
    }
    raw = audit(truth, release_catalog(shipped_release(NEW)), ports=ports, asked=asked)
    found += raw.problems
    log = comparable_log(truth)
    for watcher in record.watchers:
        found += check_watcher(watcher, truth, log)
    if not record.ended_well:
        found.append("liveness: the last objects could not be written")
    store, fault = names
    return FireResult(
        store=store,
        fault=fault,
        seed=record.seed,
        seconds=times.end - times.calm,
        acknowledged=sum(each.is_write and each.is_done for each in operations),
        writes_per_second=_per_second(record, times),
        refused=sum(each.is_write and each.status in REFUSALS for each in operations),
        put_off=sum(each.status in PUT_OFF or each.status == NOT_SENT for each in operations),
        unknown=sum(each.is_unknown for each in operations),
        watchers=len(record.watchers),
        cuts=sum(len(each.cuts) for each in record.watchers),
        events=sum(len(part.seen) for each in record.watchers for part in each.stretches),
        revisions=raw.revisions,
        values=raw.values,
        narrowed=raw.narrowed[WIDGETS.resource_name],
        problems=tuple(found[:PROBLEMS_MAX]),
    )
