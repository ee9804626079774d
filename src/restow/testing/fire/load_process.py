"""The load as a process of its own, so that nothing that is done to servers delays it.

    python -m restow.testing.fire.load_process TARGET RECORD SEED PER_SECOND

It prints `ready` when all watchers watch, then its progress; when asked to stop it writes the last
objects, waits until every watcher has seen them, and saves the record. Not here: what is written
and watched.
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

from restow.runtime import SystemClock
from restow.testing.child_process import ChildProcess
from restow.testing.fire.clients import Target, read_target
from restow.testing.fire.record import LoadRecord
from restow.testing.fire.watchers import WATCHERS, Watchers
from restow.testing.fire.writers import Writers

PROGRESS_SECONDS: Final = 0.1
SEEN_SECONDS_MAX: Final = 40.0
"""From the last write until every watcher has seen it."""
_PROGRESS: Final = re.compile(r"^acknowledged (\d+), open (\d+), cuts (\d+)$", re.MULTILINE)


class Progress(NamedTuple):
    """How far a load is."""

    acknowledged: int
    open: int
    cuts: int


class LoadProcess(ChildProcess):
    """A load: its directory, and its process while it runs."""

    NAME = "load"

    def __init__(self, directory: Path, target: Target, *, seed: int, per_second: float) -> None:
        """Nothing is started yet."""
        super().__init__(directory)
        self._target = target
        self._seed, self._per_second = seed, per_second

    @property
    def record_file(self) -> Path:
        return self.directory / "load.record"

    def command(self) -> list[str]:
        target = self.directory / "target.json"
        target.write_bytes(msgspec.json.encode(self._target))
        target.chmod(0o600)
        return [
            *(sys.executable, "-m", "restow.testing.fire.load_process"),
            *(str(target), str(self.record_file), str(self._seed), str(self._per_second)),
        ]

    def is_ready(self, printed: str) -> bool:
        return "ready\n" in printed

    @property
    def progress(self) -> Progress:
        found = _PROGRESS.findall(self.out_file.read_text(errors="replace"))
        return Progress(*map(int, found[-1])) if found else Progress(0, 0, 0)


async def run_load(target: Target, *, seed: int, per_second: float) -> LoadRecord:
    """Until SIGTERM."""
    tls = target.context()
    writers = Writers(target, tls=tls, seed=seed, per_second=per_second)
    watchers = Watchers(target, tls=tls, seed=seed)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writers.stop)
    async with asyncio.TaskGroup() as group:
        watching = watchers.start(group)
        progress = group.create_task(_tell(writers, watchers), name="progress")
        await writers.run(group)
        ended_well = await writers.write_ends()
        _, late = await asyncio.wait(watching, timeout=SEEN_SECONDS_MAX)
        for each in late:
            each.cancel()
        progress.cancel()
    return LoadRecord(
        seed=seed,
        operations=writers.operations,
        watchers=watchers.records,
        ended_well=ended_well,
    )


async def _tell(writers: Writers, watchers: Watchers) -> None:
    clock, was_ready = SystemClock(), False
    while True:
        if not was_ready and watchers.begun == WATCHERS and writers.acknowledged:
            was_ready = True
            os.write(1, b"ready\n")
        line = f"acknowledged {writers.acknowledged}, open {watchers.open}, cuts {watchers.cuts}\n"
        os.write(1, line.encode())
        await clock.sleep(PROGRESS_SECONDS)


def main(words: list[str]) -> None:
    target, record, seed, per_second = words
    done = uvloop.run(
        run_load(read_target(Path(target)), seed=int(seed), per_second=float(per_second))
    )
    done.save(Path(record))


if __name__ == "__main__":
    main(sys.argv[1:])
