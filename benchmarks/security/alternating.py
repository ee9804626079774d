"""Measures several servers alternately, in slices of some milliseconds.

On a machine with other load, the cost of a request doubles from one second to the next. So each
server has its own client, and all but one of these are stopped at any time: all servers are
affected alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.api.requests import command, rate_of
from benchmarks.api.target import Target, on_other_cores

SLICE_SECONDS: Final = 0.06
DRAIN_SECONDS: Final = 0.004
"""Requests in flight at the end of a slice mostly complete within this time, on SQLite."""
SLACK_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 2.0

Script = Callable[[Target], str]


def idle_cpu(targets: Mapping[str, Target]) -> dict[str, float]:
    """CPU that each server uses in a second without requests, in seconds."""
    before = {name: target.cpu_seconds() for name, target in targets.items()}
    time.sleep(IDLE_SECONDS)
    return {
        name: (target.cpu_seconds() - before[name]) / IDLE_SECONDS
        for name, target in targets.items()
    }


def measure(
    targets: Mapping[str, Target],
    script: Script,
    *,
    seconds: int,
    connections: int,
    idle: Mapping[str, float],
) -> dict[str, float]:
    """CPU of each server per request, in us. Each gets requests for some seconds."""
    order, lasts_seconds = list(targets), seconds * len(targets)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        begin = time.monotonic()
        before = {name: target.cpu_seconds() for name, target in targets.items()}
        clients = {}
        for name, target in targets.items():
            file = directory / f"{name}.lua"
            file.write_text(script(target))
            words = command(target, file, seconds=lasts_seconds, connections=connections)
            clients[name] = stack.enter_context(_client(words))
        while time.monotonic() < begin + lasts_seconds - SLACK_SECONDS:
            for name in order:
                os.kill(clients[name].pid, signal.SIGCONT)
                time.sleep(SLICE_SECONDS)
                os.kill(clients[name].pid, signal.SIGSTOP)
                time.sleep(DRAIN_SECONDS)
            order.append(order.pop(0))  # none is always the first
        time.sleep(max(0.0, begin + lasts_seconds - time.monotonic()) + DRAIN_SECONDS)
        found = {}
        for name, client in clients.items():
            client.send_signal(signal.SIGCONT)
            printed, _ = client.communicate(timeout=10)
            lasted = time.monotonic() - begin
            used = targets[name].cpu_seconds() - before[name] - idle[name] * lasted
            found[name] = rate_of(targets[name], printed, used).cpu_us
        return found


@contextmanager
def _client(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A client that is stopped before it has sent anything."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=on_other_cores,  # noqa: PLW1509
    )
    process.send_signal(signal.SIGSTOP)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
