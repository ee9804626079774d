"""`python -m benchmarks.tls_layers`: restow's TLS layer and the event loop's, in one run.

Three servers on SQLite run concurrently and are measured alternately: the product (`own`) and two
variants on the event loop's TLS (`event_loop_tls`). Printed are the CPU of a get, and for each
attack the p99 of a well-behaved client, as a ratio to the p99 without attack. Times are CPU time of
the server, as in `benchmarks.hostile --cpu`, so that other load on the machine counts less. On a
busy machine the p99 of some seconds still varies by a factor of two and more; the longest iteration
of the event loop, by `python -m benchmarks.tls_layers.steps`, does not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.api import requests
from benchmarks.api.connection import fill
from benchmarks.api.target import Target, on_other_cores, started
from benchmarks.hostile.__main__ import attackers
from benchmarks.hostile.good_client import ITEMS, Samples, measure
from benchmarks.hostile.stage import Stage
from benchmarks.hostile.unauthenticated import ATTACKS
from benchmarks.security import alternating
from benchmarks.tls_layers.event_loop_tls import VARIANT

REPLACED = "benchmarks.tls_layers.event_loop_tls"
LAYERS = {"own": "restow", "plain": REPLACED, "limited": REPLACED}
SETTLE_SECONDS = 1.0
IN_FLIGHT = 16
MEASURED = "admin get"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tls_layers", description=__doc__)
    parser.add_argument("--connections", type=int, default=200, help="hostile ones")
    parser.add_argument("--seconds", type=float, default=3.0, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--get-rounds", type=int, default=9)
    parser.add_argument("--attack", action="append", default=[], help="these kinds only")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-tls-")))
        targets = {}
        for name, module in LAYERS.items():
            os.environ[VARIANT] = name
            place = directory / name
            place.mkdir()
            targets[name] = stack.enter_context(
                started(name, place, f"sqlite:{place}/store.db", module=module)
            )
            asyncio.run(
                fill(targets[name], items=ITEMS, path=requests.COLLECTION, data=requests.DATA)
            )
        on_other_cores()
        if arguments.get_rounds:
            _gets(targets, rounds=arguments.get_rounds)
        names = arguments.attack or [each.__name__ for each in ATTACKS]
        for name in names:
            _attacked(targets, name, directory, arguments)


def _gets(targets: dict[str, Target], *, rounds: int) -> None:
    idle = alternating.idle_cpu(targets)
    found: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(rounds):
        cpu = alternating.measure(
            targets, requests.get_script, seconds=4, connections=IN_FLIGHT, idle=idle
        )
        for name, cpu_us in cpu.items():
            found[name].append(cpu_us)
    for name, each in found.items():
        ratio = median(own / other for own, other in zip(found["own"], each, strict=True))
        print(
            f"get, {name:8} {median(each):6.1f} us of CPU ({min(each):.1f}),"
            f" rate by CPU {ratio:.2f} ({min(found['own']) / min(each):.2f}) times the own layer",
            flush=True,
        )


def _attacked(
    targets: dict[str, Target], attack: str, directory: Path, arguments: argparse.Namespace
) -> None:
    ratios: dict[str, list[float]] = {name: [] for name in targets}
    quiet_ms: dict[str, list[float]] = {name: [] for name in targets}
    loud_ms: dict[str, list[float]] = {name: [] for name in targets}
    busy: dict[str, list[float]] = {name: [] for name in targets}
    order = list(targets)
    for _ in range(arguments.rounds):
        for name in order:
            target = targets[name]
            clock = target.cpu_seconds
            token = target.token
            stage = Stage(target=target, ordinary=token, viewers=(token,), editors=(token,))
            file = directory / f"{name}.stage"
            stage.write(file)
            quiet, loud = Samples(), Samples()
            asyncio.run(measure(stage, arguments.seconds, quiet, clock=clock))
            with attackers(file, arguments.connections, [attack], 0):
                time.sleep(SETTLE_SECONDS)
                before, begin = target.cpu_seconds(), time.monotonic()
                asyncio.run(measure(stage, arguments.seconds, loud, clock=clock))
                busy[name].append((target.cpu_seconds() - before) / (time.monotonic() - begin))
            quiet_ms[name].append(quiet.of(MEASURED)[1])
            loud_ms[name].append(loud.of(MEASURED)[1])
            ratios[name].append(loud_ms[name][-1] / quiet_ms[name][-1])
        order.append(order.pop(0))  # none is always the first
    line = f"{attack:16}"
    for name in targets:
        line += (
            f" | {name} {median(ratios[name]):6.2f} x (worst {max(ratios[name]):.2f};"
            f" {median(quiet_ms[name]):.2f} -> {median(loud_ms[name]):.2f} ms,"
            f" CPU {median(busy[name]):.0%})"
        )
    print(line, flush=True)


if __name__ == "__main__":
    main()
