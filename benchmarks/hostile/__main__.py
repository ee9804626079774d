"""`python -m benchmarks.hostile`: latency of well-behaved clients, without and under attack.

Each row is one kind of attack. Rounds without and with attack alternate, each of some seconds,
with the same requests of an administrator and of an ordinary user. The figures are p50 and p99
under attack as ratios to those without; below 2 is good. With `--cpu` the latency of a request is
the CPU time of the server from sending it to its response, whatever it was spent on: that equals
the latency on an idle machine, and is the only usable measure on one with other load.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.api.connection import fill
from benchmarks.api.requests import COLLECTION, DATA, NAMESPACE
from benchmarks.api.target import started
from benchmarks.hostile.attackers import ATTACKS
from benchmarks.hostile.good_client import ITEMS, Samples, measure
from benchmarks.hostile.stage import Stage, set_up

SETTLE_SECONDS: Final = 1.0
IDLE_SHARE: Final = 0.3
IDLE_TRIES_MAX: Final = 20
LIMIT: Final = 2.0
NICENESS: Final = 19
"""Of the attackers, unless CPU time is measured, which theirs does not change."""
MIXED: Final = "mixed"
KINDS: Final = ("admin get", "admin create", "user get", "user create", "admin connect")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.hostile", description=__doc__)
    parser.add_argument("--connections", type=int, default=200, help="hostile ones")
    parser.add_argument("--seconds", type=float, default=2.0, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--attack", action="append", choices=(MIXED, *ATTACKS), default=[], help="these rows only"
    )
    parser.add_argument("--cpu", action="store_true", help="measure CPU time of the server")
    parser.add_argument("--source", type=Path, help="the server of this checkout, not of this one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="restow-hostile-") as path:
        directory = Path(path) / "server"
        directory.mkdir()
        with started("ours", directory, "", checkout=arguments.source) as target:
            asyncio.run(fill(target, items=ITEMS, path=COLLECTION, data=DATA))
            stage = asyncio.run(set_up(target, namespace=NAMESPACE))
            stage.write(Path(path) / "stage")
            over = _report(stage, Path(path) / "stage", arguments)
    if over:
        raise SystemExit(f"above {LIMIT}: {', '.join(over)}")


def _report(stage: Stage, file: Path, arguments: argparse.Namespace) -> list[str]:
    """Print a row for each kind of attack; return those over the limit."""
    over = []
    clock = stage.target.cpu_seconds if arguments.cpu else time.perf_counter
    print(f"p50 / p99 of {arguments.connections} hostile connections, as ratios to without")
    print(
        f"{'attack':21}",
        *(f"{kind:>15}" for kind in KINDS),
        " p99 ms admin get  CPU  refused/failed",
    )
    for name in arguments.attack or (MIXED, *ATTACKS):
        names = list(ATTACKS) if name == MIXED else [name]
        ratios = _row(stage, file, arguments, names=names, clock=clock)
        if max(ratios) > LIMIT:
            over.append(name)
    return over


def _row(
    stage: Stage,
    file: Path,
    arguments: argparse.Namespace,
    *,
    names: Sequence[str],
    clock: Callable[[], float],
) -> list[float]:
    """Measure and print one row; return its ratios of p99."""
    quiet, loud = Samples(), Samples()
    busy = 0.0
    for _ in range(arguments.rounds):
        asyncio.run(measure(stage, arguments.seconds, quiet, clock=clock))
        niceness = 0 if arguments.cpu else NICENESS
        with attackers(file, arguments.connections, names, niceness):
            time.sleep(SETTLE_SECONDS)
            before, begin = stage.target.cpu_seconds(), time.monotonic()
            asyncio.run(measure(stage, arguments.seconds, loud, clock=clock))
            busy += (stage.target.cpu_seconds() - before) / (time.monotonic() - begin)
        _await_idle(stage)
    ratios = []
    shown = []
    for kind in KINDS:
        (q50, q99), (l50, l99) = quiet.of(kind), loud.of(kind)
        ratios.append(l99 / q99)
        shown.append(f"{l50 / q50:7.2f} {l99 / q99:7.2f}")
    name = names[0] if len(names) == 1 else MIXED
    milliseconds = f"{quiet.of(KINDS[0])[1]:8.2f} {loud.of(KINDS[0])[1]:8.2f}"
    print(
        f"{name:21}",
        *shown,
        milliseconds,
        f"{busy / arguments.rounds:4.0%}",
        f"{loud.refused}/{loud.failed}",
    )
    sys.stdout.flush()
    return ratios


def _await_idle(stage: Stage) -> None:
    """Wait until the server has done the remaining work of the attackers."""
    for _ in range(IDLE_TRIES_MAX):
        before = stage.target.cpu_seconds()
        time.sleep(SETTLE_SECONDS)
        if stage.target.cpu_seconds() - before < IDLE_SHARE * SETTLE_SECONDS:
            return


@contextmanager
def attackers(file: Path, connections: int, names: Sequence[str], niceness: int) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.hostile.attackers", str(file)]
    process = subprocess.Popen(
        [*command, str(connections), str(niceness), *names],
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
