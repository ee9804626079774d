"""Real `restow controllers` processes for real servers, in tests and demonstrations.

    with ControllersProcess(directory, kubeconfig=server.kubeconfig) as running:
        running.kill()

Not here: the controllers' behaviour, and requests to the servers.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

from tests.support.child_process import ChildProcess

REQUEST_SECONDS_MAX: Final = 10.0
_READY: Final = re.compile(r"^ready: .*:(\d+)/healthz$", re.MULTILINE)


class ControllersProcess(ChildProcess):
    """Controllers: their directory, their arguments, and their process if it is running."""

    NAME = "controllers"

    def __init__(self, directory: Path, *, kubeconfig: Path, arguments: Sequence[str] = ()) -> None:
        """Nothing is started yet."""
        super().__init__(directory)
        self.kubeconfig = kubeconfig
        self.arguments = tuple(arguments)
        self.port = 0
        """Port of probes and metrics, when it is ready."""

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "restow", "controllers"),
            *("--kubeconfig", str(self.kubeconfig)),
            *("--port", "0"),
            *self.arguments,
        ]

    def is_ready(self, printed: str) -> bool:
        found = _READY.search(printed)
        if found is not None:
            self.port = int(found[1])
        return found is not None

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page: /healthz, /readyz, /metrics."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=REQUEST_SECONDS_MAX) as answer:
                return int(answer.status), answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
