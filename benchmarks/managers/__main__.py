"""`python -m benchmarks.managers`: the cost of tracking field managers.

Servers of this checkout on SQLite run concurrently. A client sends some writes to one, then to the
next, so that a ratio is of measurements made within a fraction of a second. The CPU time of the
server per write is compared:

    tracked     the unmodified server
    untracked   the same server without managers (`untracked`)
    again       a second server without managers, to measure the difference between equal servers

The bodies are in `writes`. The ratio is the median of the ratios of adjacent rounds; the noise is
the same ratio of two servers without managers. On a machine with other load, memory-bound work gets
slower: `quiet` is the ratio of the best tenth of the rounds of each.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import orjson
import uvloop

from benchmarks.api.connection import Connection
from benchmarks.api.requests import NAMESPACE
from benchmarks.api.target import Target, on_other_cores, started
from benchmarks.managers.writes import Answer, Write, all_writes

TRACKED: Final = "tracked"
UNTRACKED: Final = "untracked"
AGAIN: Final = "again"
CONNECTIONS: Final = 8
"""Requests in flight; each has an object of its own."""
IN_A_TURN: Final = 4
"""Writes of each connection before the next server gets its writes."""
RATIO_MAX: Final = 1.15


@dataclass(slots=True)
class Measured:
    """One kind of write: CPU per write in us, by server and round."""

    what: str
    found: dict[str, list[float]] = field(
        default_factory=lambda: {TRACKED: [], UNTRACKED: [], AGAIN: []}
    )

    def ratio(self, name: str) -> float:
        """The median of the rounds' ratios to the server without managers."""
        pairs = zip(self.found[name], self.found[UNTRACKED], strict=True)
        return median(ours / theirs for ours, theirs in pairs)

    def ratio_of_quiet(self) -> float:
        """The ratio of the least disturbed rounds: of each, the best tenth."""
        ours, theirs = (quantiles(self.found[each], n=10)[0] for each in (TRACKED, UNTRACKED))
        return ours / theirs


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.managers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=150, help="of each kind of write")
    parser.add_argument("--only", action="append", default=[], help="writes with this in the name")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        targets = [
            stack.enter_context(_server(directory, name)) for name in (TRACKED, UNTRACKED, AGAIN)
        ]
        on_other_cores()
        found = uvloop.run(_measure_all(targets, rounds=arguments.rounds, only=arguments.only))
    _print(found)


def _server(directory: Path, name: str) -> AbstractContextManager[Target]:
    place = directory / name
    place.mkdir()
    module = "restow" if name == TRACKED else "benchmarks.managers.untracked"
    return started(name, place, f"sqlite:{place}/store.db", module=module)


async def _measure_all(targets: list[Target], *, rounds: int, only: list[str]) -> list[Measured]:
    clients = {target.name: await _Client.open(target) for target in targets}
    found = []
    for write in all_writes():
        if only and not any(each in write.what for each in only):
            continue
        found.append(await _measure(clients, write, rounds=rounds))
    for client in clients.values():
        client.close()
    return found


async def _measure(clients: dict[str, _Client], write: Write, *, rounds: int) -> Measured:
    measured, order = Measured(write.what), list(clients)
    begin = time.monotonic()
    for client in clients.values():
        await client.prepare(write)
        await client.measure_writes(write)  # warm-up: lazy initialization is not measured
    gc.collect()
    for _ in range(rounds):
        for name in order:
            measured.found[name].append(await clients[name].measure_writes(write))
        order.append(order.pop(0))  # none is always the first
    print(f"{write.what}: {rounds} rounds in {time.monotonic() - begin:.0f} s", flush=True)
    return measured


class _Client:
    """Connections to one server, each of which writes one object after another."""

    def __init__(self, target: Target, connections: list[Connection]) -> None:
        self._target = target
        self._connections = connections
        self._numbers = count(1)
        self._last: dict[tuple[str, int], Answer] = {}

    @classmethod
    async def open(cls, target: Target) -> _Client:
        made = [await Connection.open(target) for _ in range(CONNECTIONS)]
        await made[0].send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        return cls(target, made)

    def close(self) -> None:
        for each in self._connections:
            each.close()

    async def prepare(self, write: Write) -> None:
        """Create the objects to change."""
        if write.method == "POST":
            return
        create = next(
            each for each in all_writes() if each.method == "POST" and each.path == write.path
        )
        for place, connection in enumerate(self._connections):
            name = f"item-{place}"
            if (write.path, place) not in self._last:
                code, answer = await connection.send_bytes(
                    "POST", create.path, create.content(name, 0, {})
                )
            else:
                code, answer = await connection.send("GET", f"{write.path}/{name}")
            self._last[write.path, place] = self._read(write, code, answer)

    async def measure_writes(self, write: Write) -> float:
        """CPU of the server per write, in us."""
        before = self._target.cpu_seconds()
        await asyncio.gather(*(self._work(write, place) for place in range(CONNECTIONS)))
        used = self._target.cpu_seconds() - before
        return used / (IN_A_TURN * CONNECTIONS) * 1e6

    async def _work(self, write: Write, place: int) -> None:
        connection, key = self._connections[place], (write.path, place)
        for _ in range(IN_A_TURN):
            number = next(self._numbers)
            name = f"new-{number}" if write.method == "POST" else f"item-{place}"
            content = write.content(name, number, self._last.get(key, {}))
            code, answer = await connection.send_bytes(
                write.method, write.url(name), content, form=write.form
            )
            read = self._read(write, code, answer)
            if write.method != "POST":
                self._last[key] = read

    def _read(self, write: Write, code: int, answer: bytes) -> Answer:
        if code not in (200, 201):
            raise SystemExit(f"{self._target.name}: {write.what}: {code} {answer[:200]!r}")
        read: Answer = orjson.loads(answer)
        if ("managedFields" in read["metadata"]) != (self._target.name == TRACKED):
            raise SystemExit(f"{self._target.name}: unexpected managedFields: {answer[:500]!r}")
        return read


def _print(found: list[Measured]) -> None:
    load = os.getloadavg()[0]
    print(f"\nload average {load:.1f}; us of CPU per write, medians")
    print(f"{'':28}{UNTRACKED:>12}{TRACKED:>12}{'ratio':>8}{'noise':>8}{'quiet':>8}")
    for each in found:
        values = [median(each.found[name]) for name in (UNTRACKED, TRACKED)]
        print(f"{each.what:28}{values[0]:12.1f}{values[1]:12.1f}", end="")
        print(f"{each.ratio(TRACKED):8.3f}{each.ratio(AGAIN):8.3f}{each.ratio_of_quiet():8.3f}")
    worst = max(found, key=lambda each: each.ratio(TRACKED))
    print(f"\nmost: {worst.what}, {worst.ratio(TRACKED):.3f} times the CPU")
    if worst.ratio(TRACKED) > RATIO_MAX:
        print(f"that is more than {RATIO_MAX}, the goal")


if __name__ == "__main__":
    main()
