"""A kopf operator, run by `kopf run` as users do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SECONDS_MAX: Final = 60.0


@contextmanager
def operator_of(
    kubeconfig: Path,
    program: str | None,
    log: Path,
    *,
    options: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[None]:
    """Runs the operator; it must exit with 0."""
    command = [sys.executable, "-m", "kopf", "run", *options, str(program)]
    known = {"PATH": os.environ["PATH"], "HOME": str(log.parent), "KUBECONFIG": str(kubeconfig)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**known, **environment},
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
