"""A kopf operator, run as its users run it: `kopf run --standalone`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from restow.testing.server_process import ServerProcess

SECONDS_MAX: Final = 60.0


@contextmanager
def operator_of(
    server: ServerProcess, program: str | None, log: Path, *, namespace: str = ""
) -> Iterator[None]:
    """The operator at work, in one namespace or in all."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "KUBECONFIG": str(server.kubeconfig),
    }
    where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    command = [sys.executable, "-m", "kopf", "run", "--standalone", *where, str(program)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        yield
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def eventually(condition: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
