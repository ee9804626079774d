"""A long load on three servers: memory, open files and tasks of each must stay constant.

    python -m tests.support.fire.soak --seconds 3600

Each server is sampled every few seconds. The second half is checked, when all caches are warm: the
slope of a line through the samples, times the length of that half, is the growth. Memory is checked
server by server, and only if that half is long enough for caches to have filled before it; open
files and tasks of all servers together, since streams of watchers move from one to another. History
is compacted as in production, only more often. Exit codes: 0 flat, 1 not flat, 2 not made.

Not here: whether the responses are correct (`run`).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.support.child_process import ProcessFailed
from tests.support.fire.load_process import LoadPlan, LoadProcess
from tests.support.fire.run import PER_SECOND, SERVERS
from tests.support.fire.stage import NEW, Stage, StageFailed
from tests.support.fire.stores import STORES, CannotBeMade, make_store
from tests.support.server_process import ServerProcess

SAMPLES_MAX: Final = 720
SAMPLE_SECONDS_MIN: Final = 0.5
SECONDS_MAX: Final = 24 * 3600.0
GROWN_PART_MAX: Final = 0.05
"""Allowed growth of the memory of a server, in the second half."""
GROWN_KIB_MIN: Final = 8 * 1024
"""Less than this is noise, however small the server."""
MEMORY_SECONDS_MIN: Final = 300.0
"""A shorter half is not sufficient for memory: a server keeps changes for watchers, up to a limit
that a load like this one reaches after minutes."""
GROWN_COUNT_MAX: Final = 10.0
"""Allowed growth of open files and of tasks: streams end and begin all the time."""
_TASKS: Final = re.compile(r"^restow_tasks (\S+)$", re.MULTILINE)
_RESIDENT: Final = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


class Sample(NamedTuple):
    """One sample of one server."""

    at_seconds: float
    memory_kib: float
    files: float
    tasks: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One figure over the second half."""

    server: int | None
    """None: the sum over all servers."""
    what: str
    first: float
    mean: float
    last: float
    grown: float
    """Growth over the whole half, from the slope."""
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.grown <= self.allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakResult:
    """The result of a soak."""

    store: str
    seconds: float
    acknowledged: int
    writes_per_second: float
    samples: int
    """Samples of each server."""
    trends: tuple[Trend, ...]

    @property
    def is_flat(self) -> bool:
        return all(trend.is_flat for trend in self.trends)


def take_sample(server: ServerProcess, at_seconds: float) -> Sample:
    """Sample a server. Blocks."""
    process = Path("/proc") / str(server.pid)
    memory = _RESIDENT.search((process / "status").read_text())
    tasks = _TASKS.search(server.get("/metrics")[1])
    assert memory is not None
    assert tasks is not None, "no server without that metric"
    files = len(list((process / "fd").iterdir()))
    return Sample(at_seconds, float(memory[1]), files, float(tasks[1]))


def trends_of(samples: Sequence[Sequence[Sample]]) -> list[Trend]:
    """The trends of the second half of each server's samples."""
    halves = [each[len(each) // 2 :] for each in samples]
    times = [sample.at_seconds for sample in halves[0]]
    trends = [
        _trend(number, "memory_kib", times, [sample.memory_kib for sample in half])
        for number, half in enumerate(halves)
    ]
    together = list(zip(*halves, strict=True))
    files = [sum(sample.files for sample in each) for each in together]
    tasks = [sum(sample.tasks for sample in each) for each in together]
    return [*trends, _trend(None, "files", times, files), _trend(None, "tasks", times, tasks)]


def _trend(server: int | None, what: str, times: list[float], values: list[float]) -> Trend:
    slope = statistics.linear_regression(times, values).slope if len(times) > 1 else 0.0
    mean, seconds = statistics.fmean(values), times[-1] - times[0]
    allowed = GROWN_COUNT_MAX
    if what == "memory_kib":
        is_long = seconds >= MEMORY_SECONDS_MIN
        allowed = max(GROWN_PART_MAX * mean, GROWN_KIB_MIN) if is_long else math.inf
    return Trend(
        server=server,
        what=what,
        first=values[0],
        mean=mean,
        last=values[-1],
        grown=slope * seconds,
        allowed=allowed,
    )


async def run_soak(store: str, *, seed: int, seconds: float, directory: Path) -> SoakResult:
    """Run it. The directory must be new. Raises StageFailed, CannotBeMade."""
    seconds = min(seconds, SECONDS_MAX)
    where = make_store(store, directory, servers=SERVERS, is_small=False)
    stage = Stage(directory, where, releases=(NEW,) * SERVERS, has_history=False)
    samples: list[list[Sample]] = [[] for _ in range(SERVERS)]
    try:
        await stage.open()
        plan = LoadPlan(target=stage.target(), seed=seed, per_second=PER_SECOND, has_record=False)
        load = LoadProcess(directory / "load", plan)
        try:
            load.launch()
            await stage.wait(load.is_up, "the load runs")
            begin, known = stage.now(), load.progress.acknowledged
            gap_seconds = max(seconds / SAMPLES_MAX, SAMPLE_SECONDS_MIN)
            while (now := stage.now() - begin) < seconds:
                for server, seen in zip(stage.servers, samples, strict=True):
                    seen.append(await asyncio.to_thread(take_sample, server, now))
                load.is_up()
                await stage.sleep(gap_seconds)
            done, seconds = load.progress.acknowledged - known, stage.now() - begin
        finally:
            load.kill()
    finally:
        await stage.close()
    return SoakResult(
        store=store,
        seconds=seconds,
        acknowledged=done,
        writes_per_second=done / seconds,
        samples=len(samples[0]),
        trends=tuple(trends_of(samples)),
    )


def table_of(result: SoakResult) -> str:
    """For people."""
    head = (
        f"{result.store}: {result.seconds:.0f} s, {result.acknowledged} writes,"
        f" {result.writes_per_second:.0f}/s, {result.samples} samples of each server"
    )
    columns = f"{'server':>6}  {'what':<10}  {'first':>9}  {'mean':>9}  {'last':>9}"
    rows = [head, f"{columns}  {'grown':>8}  {'allowed':>8}"]
    rows += [
        f"{'all' if each.server is None else each.server + 1:>6}  {each.what:<10}"
        f"  {each.first:>9.0f}  {each.mean:>9.0f}"
        f"  {each.last:>9.0f}  {each.grown:>8.1f}  {each.allowed:>8.1f}"
        f"{'' if each.is_flat else '  NOT FLAT'}"
        for each in result.trends
    ]
    return "\n".join(rows)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fire.soak")
    parser.add_argument("--store", choices=STORES, default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--directory", type=Path, help="new, and kept; default: one that is not")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="restow-soak-") as temporary:
        directory = given.directory or Path(temporary) / "run"
        run = run_soak(given.store, seed=given.seed, seconds=given.seconds, directory=directory)
        try:
            result = asyncio.run(run)
        except (CannotBeMade, ProcessFailed, StageFailed) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return 2
    is_json = given.output == "json"
    sys.stdout.write(msgspec.json.encode(result).decode() if is_json else table_of(result))
    sys.stdout.write("\n")
    return 0 if result.is_flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
