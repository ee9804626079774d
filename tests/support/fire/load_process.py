"""The load as a separate process, so that faults of the servers do not delay it.

    python -m tests.support.fire.load_process PLAN RECORD

It prints `ready` when all watchers watch, then its progress; on SIGTERM it writes the last objects,
waits until every watcher has seen them, and saves the record. A brief one keeps hardly anything, so
that it can run for hours. Not here: the objects that are written and watched.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import uvloop

from restow.aio import SystemClock
from tests.support.child_process import ChildProcess, ProcessFailed
from tests.support.fire.clients import Target
from tests.support.fire.objects import KINDS, WIDGETS
from tests.support.fire.record import LoadRecord
from tests.support.fire.watchers import WATCHERS, Watchers
from tests.support.fire.writers import Writers

PROGRESS_SECONDS: Final = 0.1
SEEN_SECONDS_MAX: Final = 40.0
"""Timeout from the last write until every watcher has seen it."""
_HEAD_BYTES: Final = 65_536
_TAIL_BYTES: Final = 400
"""Bytes at the end of the output that contain the last lines."""
_PROGRESS: Final = re.compile(r"^acknowledged (\d+), open (\d+), cuts (\d+)$", re.MULTILINE)


class Progress(NamedTuple):
    """Progress of a load."""

    acknowledged: int
    open: int
    cuts: int


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a load."""

    target: Target
    seed: int
    per_second: float
    """Operations per second of all writers together."""
    resources: tuple[str, ...] = (WIDGETS.resource_name,)
    """The kinds that are written, by the names of their StorageVersions."""
    watchers: int = WATCHERS
    has_record: bool = True
    """Whether all operations and events are kept; without, a load can run for hours."""


class LoadProcess(ChildProcess):
    """A load: its directory, and its process while it runs."""

    NAME = "load"

    def __init__(self, directory: Path, plan: LoadPlan) -> None:
        """Nothing is started yet."""
        super().__init__(directory)
        self._plan = plan

    @property
    def record_file(self) -> Path:
        return self.directory / "load.record"

    def command(self) -> list[str]:
        plan = self.directory / "plan.json"
        plan.touch(mode=0o600)
        plan.write_bytes(msgspec.json.encode(self._plan))
        words = ("-m", "tests.support.fire.load_process", str(plan), str(self.record_file))
        return [sys.executable, *words]

    def is_ready(self, printed: str) -> bool:
        return "ready\n" in printed

    def is_up(self) -> bool:
        """Whether all watchers watch. Raises ProcessFailed when it has exited."""
        if self.process is None or self.process.poll() is not None:
            raise ProcessFailed(f"the load has ended:\n{self.log_tail()}")
        with self.out_file.open("rb") as file:
            return self.is_ready(file.read(_HEAD_BYTES).decode(errors="replace"))

    @property
    def progress(self) -> Progress:
        with self.out_file.open("rb") as file:
            file.seek(max(self.out_file.stat().st_size - _TAIL_BYTES, 0))
            found = _PROGRESS.findall(file.read().decode(errors="replace"))
        return Progress(*map(int, found[-1])) if found else Progress(0, 0, 0)


async def run_load(plan: LoadPlan) -> LoadRecord:
    """Run until SIGTERM."""
    tls = plan.target.context()
    writers = Writers(
        plan.target,
        tls=tls,
        seed=plan.seed,
        per_second=plan.per_second,
        has_record=plan.has_record,
        kinds=[KINDS[name] for name in plan.resources],
    )
    watchers = Watchers(
        plan.target, tls=tls, seed=plan.seed, has_record=plan.has_record, count=plan.watchers
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writers.stop)
    async with asyncio.TaskGroup() as group:
        watching = watchers.start(group)
        progress = group.create_task(_print_progress(writers, watchers), name="progress")
        await writers.run(group)
        ended_well = await writers.write_ends()
        if watching:
            _, late = await asyncio.wait(watching, timeout=SEEN_SECONDS_MAX)
            for each in late:
                each.cancel()
        progress.cancel()
    return LoadRecord(
        seed=plan.seed,
        operations=writers.operations,
        watchers=watchers.records,
        ended_well=ended_well,
    )


async def _print_progress(writers: Writers, watchers: Watchers) -> None:
    clock, was_ready = SystemClock(), False
    while True:
        if not was_ready and watchers.begun == len(watchers.records) and writers.acknowledged:
            was_ready = True
            os.write(1, b"ready\n")
        line = f"acknowledged {writers.acknowledged}, open {watchers.open}, cuts {watchers.cuts}\n"
        os.write(1, line.encode())
        await clock.sleep(PROGRESS_SECONDS)


def main(words: list[str]) -> None:
    plan, record = map(Path, words)
    done = uvloop.run(run_load(msgspec.json.decode(plan.read_bytes(), type=LoadPlan)))
    done.save(record)


if __name__ == "__main__":
    main(sys.argv[1:])
