"""A server to measure: restow, started here, or any server in a kubeconfig."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

START_SECONDS_MAX = 60.0
UNPINNED = "RESTOW_BENCH_UNPINNED"
"""If set, processes are not pinned to cores. For a machine with other load, where only CPU time is
meaningful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Address and credentials of a server."""

    name: str
    host: str
    port: int
    token: str
    ca_pem: str
    pid: int | None = None
    start_seconds: float | None = None

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.ca_pem)
        context.check_hostname = False
        return context

    def memory_mb(self) -> float | None:
        """Resident memory of the server, if it is a child process."""
        if self.pid is None:
            return None
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return None

    def cpu_seconds(self) -> float:
        """CPU time that the server has used so far."""
        if self.pid is None:
            return 0.0
        # The clock of another process, as in clock_getcpuclockid(3): to the nanosecond, while
        # `stat` counts ticks of 10 ms, and including ended threads.
        return time.clock_gettime((~self.pid << 3) | 2)


def of_kubeconfig(path: Path, name: str) -> Target:
    """The server of a kubeconfig's current context, which must have a bearer token."""
    config: Any = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    if not user.get("token"):
        raise SystemExit(f"{path}: the benchmark needs a user with a bearer token")
    data = cluster.get("certificate-authority-data")
    ca_pem = (
        base64.b64decode(data).decode()
        if data
        else Path(cluster["certificate-authority"]).read_text()
    )
    address = urlsplit(cluster["server"])
    return Target(
        name=name,
        host=address.hostname or "",
        port=address.port or 443,
        token=user["token"],
        ca_pem=ca_pem,
    )


@contextmanager
def started(
    name: str,
    directory: Path,
    store: str,
    *,
    arguments: Sequence[str] = (),
    checkout: Path | None = None,
    module: str = "restow",
) -> Iterator[Target]:
    """Start a restow server, on a core of its own where there are two; or the server of another
    checkout, with the same libraries; or one that another module runs, with the same
    arguments."""
    command = [sys.executable, "-m", module, "serve", "--port", "0"]
    command += ["--data-dir", str(directory), "--store", store, *arguments]
    source = {} if checkout is None else {"PYTHONPATH": str(checkout / "src")}
    begin = time.perf_counter()
    with (directory.with_suffix(".log")).open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | source,
            preexec_fn=on_first_core,  # noqa: PLW1509 - no threads here
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("ready"):
                raise SystemExit(f"the server did not start: see {log.name}")
            seconds = time.perf_counter() - begin
            found = of_kubeconfig(directory / "kubeconfig", name)
            yield Target(
                name=name,
                host=found.host,
                port=found.port,
                token=found.token,
                ca_pem=found.ca_pem,
                pid=process.pid,
                start_seconds=seconds,
            )
        finally:
            process.terminate()
            process.wait(START_SECONDS_MAX)


def on_first_core() -> None:
    """Pin the calling process to the first core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1 and not os.environ.get(UNPINNED):
        os.sched_setaffinity(0, {cores[0]})


def on_other_cores() -> None:
    """Leave the first core to the server."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1 and not os.environ.get(UNPINNED):
        os.sched_setaffinity(0, set(cores[1:]))


def _named(items: list[Any], name: str) -> Any:
    return next(item for item in items if item["name"] == name)
