"""`make bench`: prints one table of ratios. See `--help` for sizes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import uvloop

from benchmarks.rounds import Comparison
from benchmarks.storage import etcd, sqlite, watches
from restow.aio import Runtime
from restow.storage.memory import MemoryStorage
from restow.storage.sqlite import open_sqlite


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.storage", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--each", type=int, default=100, help="writes per writer and round")
    parser.add_argument("--items", type=int, default=10_000, help="size of range and watch")
    parser.add_argument("--directory", type=Path, help="where the files go (a real disk)")
    uvloop.run(_measure(parser.parse_args()))


async def _measure(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="restow-bench-") as name:
        directory = Path(name)
        print(f"{'what':44} {'restow':>12} {'bare':>12} {'ratio':>7}  goal")
        writes = await sqlite.measure_writes(
            directory, rounds=arguments.rounds, each=arguments.each
        )
        _row("sqlite, 64 writers / one commit each, per s", writes, "≥ 6")
        found = await sqlite.measure_range(
            directory, rounds=arguments.rounds, items=arguments.items
        )
        _row(f"sqlite, range of {arguments.items} x 1 KiB, ms", found, "≤ 3")
        puts = await etcd.measure_puts(directory, rounds=arguments.rounds, each=arguments.each)
        _row("etcd, 64 guarded puts / bare grpc.aio, per s", puts, "≥ 0.8")
        await _measure_watches(directory, events=arguments.items)


async def _measure_watches(directory: Path, *, events: int) -> None:
    print(
        f"\n{'watch of ' + str(events) + ' events, per s':44} {'written':>12} {'followed':>12}"
        f" {'replayed':>12}"
    )
    memory = MemoryStorage()
    _watch_row("memory", await watches.measure_watch(memory, events=events, name="w"))
    await memory.close()
    storage = await open_sqlite(directory / "watch.db", Runtime.system())
    _watch_row("sqlite", await watches.measure_watch(storage, events=events, name="w"))
    await storage.close()
    _watch_row("etcd", await etcd.measure_watch(directory, events=events))


def _row(what: str, found: Comparison, goal: str) -> None:
    print(f"{what:44} {found.ours:12,.1f} {found.theirs:12,.1f} {found.ratio:7.2f}  {goal}")


def _watch_row(what: str, rates: watches.WatchRates) -> None:
    print(f"{what:44} {rates.written:12,.0f} {rates.followed:12,.0f} {rates.replayed:12,.0f}")


if __name__ == "__main__":
    main()
