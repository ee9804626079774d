"""`python -m benchmarks.coordination`: cost of the fence, time to ready, time to agree."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.coordination import agreement, fence
from benchmarks.coordination.processes import (
    START_SECONDS_MAX,
    Start,
    make_server,
    measure_start,
    write_release,
)
from benchmarks.rounds import Comparison
from restow.aio import Runtime
from restow.storage.drivers import open_storage
from tests.support.etcd_process import start_etcd

OFF = ("--feature-gates", "StorageVersionAPI=false,APIServerIdentity=false")
SERVERS = 3
_NUMBERS = count(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.coordination", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="of writes, interleaved")
    parser.add_argument("--each", type=int, default=100, help="writes per writer and round")
    parser.add_argument("--starts", type=int, default=5, help="per number of kinds")
    parser.add_argument("--kinds", type=int, nargs="*", default=[0, 440], help="besides built-in")
    parser.add_argument("--agreements", type=int, default=200, help="rounds")
    parser.add_argument("--store", choices=["sqlite", "etcd", "both"], default="both")
    arguments = parser.parse_args()
    stores = ["sqlite", "etcd"] if arguments.store == "both" else [arguments.store]
    with tempfile.TemporaryDirectory(prefix="restow-bench-") as name:
        directory = Path(name)
        print(f"{'CPU of one write, us':32} {'fence':>10} {'without':>10} {'ratio':>7}  goal")
        for store in ("memory", "sqlite"):
            address = "memory:" if store == "memory" else f"sqlite:{directory / 'fence.db'}"
            found = uvloop.run(_measure_fence(address, arguments))
            print(f"{store:32} {found.ours:10.1f} {found.theirs:10.1f} {found.ratio:7.3f}  ≤ 1.05")
        for store in stores:
            _measure_starts(directory, store, arguments)
            _measure_agreement(directory, store, arguments)


async def _measure_fence(address: str, arguments: argparse.Namespace) -> Comparison:
    storage = await open_storage(address, Runtime.system())
    try:
        return await fence.measure(storage, rounds=arguments.rounds, each=arguments.each)
    finally:
        await storage.close()


def _measure_starts(directory: Path, store: str, arguments: argparse.Namespace) -> None:
    head = f"start on an empty {store}, s"
    print(f"\n{head:32} {'ready':>10} {'gates off':>10} {'ratio':>7}  of which reporting")
    for kinds in arguments.kinds:
        release = write_release(directory / f"{kinds}.yaml", kinds=kinds)
        on: list[Start] = []
        off: list[Start] = []
        for _ in range(arguments.starts):
            for found, words in ((on, ()), (off, OFF)):
                with _fresh_store(directory, store) as (address, place):
                    server = make_server(place, address, "--release", str(release), *words)
                    found.append(measure_start(server))
        ready = median(start.ready_seconds for start in on)
        plain = median(start.ready_seconds for start in off)
        reporting = median(start.register_seconds for start in on)
        what = f"{on[0].resources} kinds"
        print(f"{what:32} {ready:10.2f} {plain:10.2f} {ready / plain:7.2f}  {reporting:.3f}")


def _measure_agreement(directory: Path, store: str, arguments: argparse.Namespace) -> None:
    with ExitStack() as stack:
        address, place = stack.enter_context(_fresh_store(directory, store))
        servers = [
            make_server(place.with_name(f"{place.name}-{number}"), address, "--release", "x+1")
            for number in range(SERVERS)
        ]
        for server in servers:
            stack.callback(server.kill)
            server.launch()
        for server in servers:
            server.wait_ready(seconds_max=START_SECONDS_MAX)
        found = uvloop.run(agreement.measure(servers, address, rounds=arguments.agreements))
    what = f"agreement seen, {SERVERS} servers, ms"
    print(
        f"{what:32} p50 {found.p50_ms:.1f}, p99 {found.p99_ms:.1f} (goal < 100),"
        f" the report itself {found.commit_ms:.1f}"
    )


@contextmanager
def _fresh_store(directory: Path, store: str) -> Iterator[tuple[str, Path]]:
    """The address of an empty store, and a directory that does not exist yet."""
    place = directory / f"server-{next(_NUMBERS)}"
    if store == "sqlite":
        yield f"sqlite:{place.with_suffix('.db')}", place
        return
    with start_etcd(place.with_suffix(".etcd"), members=1, with_fsync=True) as etcd:
        yield etcd.url, place


if __name__ == "__main__":
    main()
