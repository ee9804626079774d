"""`python -m benchmarks.api`: one table, restow on SQLite and etcd, a baseline, and a peer.

The baseline is a bare TLS server that does not interpret requests. With `--peer KUBECONFIG` the
same requests are also sent to that server, and ratios to it are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.api import connection, fan_out, requests
from benchmarks.api.target import Target, of_kubeconfig, on_first_core, started
from tests.support.etcd_process import start_etcd

RATIO_ROUNDS_MIN = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one server."""

    what: str
    value: float
    detail: str = ""
    higher_is_better: bool = True


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.api", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="per measurement")
    parser.add_argument("--items", type=int, default=10_000, help="objects in the namespace")
    parser.add_argument("--watchers", type=int, default=1_000)
    parser.add_argument("--store", choices=["sqlite", "etcd", "both"], default="both")
    parser.add_argument("--peer", type=Path, metavar="KUBECONFIG", help="another API server")
    arguments = parser.parse_args()
    tables: dict[str, list[Row]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="restow-bench-")))
        if arguments.store in ("sqlite", "both"):
            tables["sqlite"] = _measure_ours(directory / "sqlite", "", arguments)
        if arguments.store in ("etcd", "both"):
            with start_etcd(directory / "etcd-server", members=1, with_fsync=True) as etcd:
                tables["etcd"] = _measure_ours(directory / "etcd", etcd.url, arguments)
        if arguments.peer is not None:
            tables["peer"] = _measure(of_kubeconfig(arguments.peer, "peer"), arguments)
    _print(tables)


def _measure_ours(directory: Path, store: str, arguments: argparse.Namespace) -> list[Row]:
    directory.mkdir()
    with started(directory.name, directory, store) as target:
        rows = _measure(target, arguments)
        with _baseline(directory, target) as bare:
            pairs = [
                tuple(requests.get(each, seconds=1, connections=64) for each in (bare, target))
                for _ in range(max(RATIO_ROUNDS_MIN, arguments.seconds))
            ]
        # In rounds of a second: on a shared machine the next second can be twice as slow.
        rate = median(ours.per_second / theirs.per_second for theirs, ours in pairs)
        cpu = median(theirs.cpu_us / ours.cpu_us for theirs, ours in pairs)
        rows.append(Row("get c=64 / bare TLS server", rate))
        rows.append(Row("same, by CPU per request", cpu))
        return rows


def _measure(target: Target, arguments: argparse.Namespace) -> list[Row]:
    seconds, items = arguments.seconds, arguments.items
    rows: list[Row] = []
    if target.start_seconds is not None:
        rows.append(Row("start to ready, s", target.start_seconds, higher_is_better=False))
        rows.append(Row("memory idle, MB", target.memory_mb() or 0, higher_is_better=False))
    asyncio.run(connection.fill(target, items=items, path=requests.COLLECTION, data=requests.DATA))
    if target.pid is not None:
        what = f"memory with {items} objects, MB"
        rows.append(Row(what, target.memory_mb() or 0, higher_is_better=False))
    for connections in (1, 64):
        found = requests.get(target, seconds=seconds, connections=connections)
        rows.append(_row(f"get 1 KB c={connections}, per s", found))
    for connections in (1, 4):
        found = requests.list_all(target, seconds=seconds, connections=connections)
        rows.append(_row(f"list {items} c={connections}, per s", found))
    found = requests.update(target, seconds=seconds, connections=64, items=items)
    rows.append(_row("update c=64, per s", found))
    events, cpu_us = fan_out.measure(target, watchers=arguments.watchers, seconds=seconds)
    what = f"events to {arguments.watchers} watchers, per s"
    rows.append(Row(what, events, f"{cpu_us:.1f} us CPU each"))
    for connections in (1, 64):
        found = requests.create(
            target, seconds=seconds, connections=connections, name=f"new-{connections}"
        )
        rows.append(_row(f"create c={connections}, per s", found))
    return rows


def _row(what: str, found: requests.Rate) -> Row:
    detail = f"p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms"
    return Row(what, found.per_second, f"{detail}, CPU {found.cpu_us:.0f} us")


@contextmanager
def _baseline(directory: Path, target: Target) -> Iterator[Target]:
    """The bare server, with the certificate of the other one."""
    pki = directory / "pki"
    command = [sys.executable, "-m", "benchmarks.api.bare_server", "--port", "0"]
    command += ["--cert-file", str(next(pki.glob("serving*.crt")))]
    command += ["--key-file", str(next(pki.glob("serving*.key")))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=on_first_core)  # noqa: PLW1509
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(None, 1)[-1])
        yield Target(
            name="bare",
            host=target.host,
            port=port,
            token=target.token,
            ca_pem=target.ca_pem,
            pid=process.pid,
        )
    finally:
        process.terminate()
        process.wait(10)


def _print(tables: dict[str, list[Row]]) -> None:
    peer = {row.what: row.value for row in tables.get("peer", [])}
    for name, rows in tables.items():
        print(f"\n{name:38} {'value':>12}  {'x peer' if peer else ''}")
        for row in rows:
            ratio = ""
            if name != "peer" and peer.get(row.what):
                value, other = row.value, peer[row.what]
                ratio = f"{value / other if row.higher_is_better else other / value:6.1f}"
            print(f"{row.what:38} {row.value:12,.2f}  {ratio}  {row.detail}")


if __name__ == "__main__":
    main()
