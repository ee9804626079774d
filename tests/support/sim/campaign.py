"""Plays many worlds in separate processes, and combines their results.

The world of a seed depends on the order of sets of strings, which Python randomizes for each
process: so worlds are played in processes with a fixed hash seed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.support.sim.play import Played

HASH_SEED: Final = "0"
WORLD_SECONDS_MAX: Final = 600.0
"""Real time limit of one world."""
LINE_BYTES_MAX: Final = 1 << 20
PROBLEMS_SHOWN_MAX: Final = 5

OnResult = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Tally:
    """The combined results of many worlds."""

    worlds: int = 0
    steps: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    phases: Counter[tuple[str, str]] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    settled_seconds_max: float = 0.0
    failed: dict[int, list[str]] = field(default_factory=dict)
    """Problems by seed."""

    def add(self, line: dict[str, Any]) -> None:
        self.worlds += 1
        self.steps += line["steps"]
        self.seconds += line["seconds"]
        for name in ("counts", "checked", "hits"):
            found = {key: value for key, value in line[name].items() if key != "acknowledged"}
            getattr(self, name).update(found)
        self.phases.update({(act, phase): count for act, phase, count in line["phases"]})
        self.modes[line["mode"]] += 1
        self.settled_seconds_max = max(self.settled_seconds_max, line["settled_seconds"] or 0.0)
        if line["problems"]:
            self.failed[line["seed"]] = line["problems"][:PROBLEMS_SHOWN_MAX]


def to_line(played: Played, mode: str) -> dict[str, Any]:
    """The result of a world, as its process reports it."""
    return {
        "seed": played.seed,
        "mode": mode,
        "problems": list(played.problems),
        "steps": played.steps,
        "seconds": played.seconds,
        "trace": played.trace,
        "settled_seconds": played.settled_seconds,
        "counts": dict(played.counts),
        "checked": dict(played.checked),
        "hits": dict(played.hits),
        "phases": [[act, phase, count] for (act, phase), count in played.phases.items()],
    }


async def play_seeds(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    mutant: str = "",
    is_advised: bool = False,
    on_result: OnResult = lambda _line: None,
    stops: Callable[[dict[str, Any]], bool] = lambda _line: False,
) -> Tally:
    """Play worlds concurrently; `is_advised`: those with advice. `stops`: whether to stop after a
    result."""
    tally, wanted = Tally(), list(seeds)
    parts = [wanted[number::jobs] for number in range(jobs)]
    over = asyncio.Event()

    async def work(part: Sequence[int]) -> None:
        if not part:
            return
        async for line in _process(part, mutant, is_advised=is_advised):
            tally.add(line)
            on_result(line)
            if stops(line):
                over.set()
            if over.is_set():
                return

    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(work(part), name="worlds")
    return tally


async def _process(
    seeds: Sequence[int], mutant: str, *, is_advised: bool
) -> AsyncIterator[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.support.sim", "worlds"]
    command += ["--mutant", mutant] if mutant else []
    command += ["--advice"] if is_advised else []
    child = await asyncio.create_subprocess_exec(
        *command,
        *map(str, seeds),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": HASH_SEED},
        limit=LINE_BYTES_MAX,
    )
    assert child.stdout is not None
    try:
        for seed in seeds:
            async with asyncio.timeout(WORLD_SECONDS_MAX):
                line = await child.stdout.readline()
            if not line:
                raise RuntimeError(f"the process of the world {seed} has ended: {child.returncode}")
            yield orjson.loads(line)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
