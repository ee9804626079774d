"""`python -m benchmarks.hostile`: latency of a well-behaved client, without and under attack.

Rounds without and with attack alternate, each of some seconds, with the same requests. The figure
is the median of the rounds' ratios of p99; below 2 is good. With `--cpu` the latency of a request
is the CPU time of the server from sending it to its response, whatever it was spent on: that equals
the latency on an idle machine, and is the only usable measure on one with other load.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.api.connection import Connection, fill
from benchmarks.api.requests import COLLECTION, DATA
from benchmarks.api.target import Target, on_other_cores, started

SETTLE_SECONDS = 2.0
ITEMS = 200
PAUSE_SECONDS = 0.002
"""Pause between the requests of the well-behaved client, which must not overload the server."""
LIMIT = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.hostile", description=__doc__)
    parser.add_argument("--connections", type=int, default=200, help="hostile ones")
    parser.add_argument("--seconds", type=float, default=5.0, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--attack", action="append", default=[], help="these kinds only")
    parser.add_argument("--cpu", action="store_true", help="measure CPU time of the server")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restow-hostile-") as path:
        directory = Path(path) / "server"
        directory.mkdir()
        with started("ours", directory, "") as target:
            on_other_cores()
            asyncio.run(fill(target, items=ITEMS, path=COLLECTION, data=DATA))
            _report(target, directory / "kubeconfig", arguments)


def _report(target: Target, kubeconfig: Path, arguments: argparse.Namespace) -> None:
    ratios = []
    clock = target.cpu_seconds if arguments.cpu else time.perf_counter
    print(f"{'round':>5} {'quiet p50':>10} {'p99 ms':>8} {'attack p50':>11} {'p99 ms':>8} ratio")
    for number in range(arguments.rounds):
        quiet = asyncio.run(measure(target, arguments.seconds, clock=clock))
        with attackers(kubeconfig, arguments.connections, arguments.attack):
            time.sleep(SETTLE_SECONDS)
            before, begin = target.cpu_seconds(), time.monotonic()
            loud = asyncio.run(measure(target, arguments.seconds, clock=clock))
            busy = (target.cpu_seconds() - before) / (time.monotonic() - begin)
        ratios.append(loud[1] / quiet[1])
        print(
            f"{number:5} {quiet[0]:10.2f} {quiet[1]:8.2f} {loud[0]:11.2f} {loud[1]:8.2f}"
            f" {ratios[-1]:5.2f}  CPU {busy:4.0%}"
        )
    print(f"p99 with {arguments.connections} hostile connections: {median(ratios):.2f} x")
    if median(ratios) > LIMIT:
        raise SystemExit(f"that is more than {LIMIT}")


async def measure(
    target: Target, seconds: float, *, clock: Callable[[], float]
) -> tuple[float, float]:
    """p50 and p99, in milliseconds, of gets and updates of one connection."""
    connection = await Connection.open(target)
    taken = []
    end = time.perf_counter() + seconds
    number = 0
    while time.perf_counter() < end:
        number += 1
        name = f"item-{number % ITEMS:06d}"
        body = {"metadata": {"name": name}, "data": DATA} if number % 4 == 0 else None
        begin = clock()
        code, _ = await connection.send("PUT" if body else "GET", f"{COLLECTION}/{name}", body)
        taken.append(clock() - begin)
        if code != 200:
            raise SystemExit(f"the well-behaved client got {code}")
        await asyncio.sleep(PAUSE_SECONDS)
    connection.close()
    cuts = quantiles(taken, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3


@contextmanager
def attackers(kubeconfig: Path, connections: int, names: list[str]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.hostile.attackers", str(kubeconfig)]
    process = subprocess.Popen(
        [*command, str(connections), *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":  # all are connected
            raise SystemExit("the attackers could not connect")
        yield
    finally:
        process.kill()
        process.wait(10)


if __name__ == "__main__":
    main()
