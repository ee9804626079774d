"""Servers of one cluster as real processes, with keys that are created beforehand."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from restow.aio import Runtime
from restow.apiserver.pki import PkiOptions, ensure_pki
from tests.support.server_process import ServerProcess

START_SECONDS_MAX = 120.0
_REGISTERED = re.compile(r"registered (\d+) resources in (\S+) s$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Start:
    """How long it took a server to be ready, and to report, in seconds."""

    resources: int
    ready_seconds: float
    register_seconds: float


def make_server(directory: Path, store: str, *arguments: str) -> ServerProcess:
    """A server that is not started; all in one parent directory share their keys."""
    keys = directory.parent / "pki"
    ensure_pki(keys, Runtime.system(), PkiOptions(bind="127.0.0.1"))
    directory.mkdir(mode=0o700, parents=True)
    shutil.copytree(keys, directory / "pki")
    return ServerProcess(directory, store=store, arguments=arguments)


def measure_start(server: ServerProcess) -> Start:
    """Start a server and stop it."""
    begin = time.perf_counter()
    server.launch()
    server.wait_ready(seconds_max=START_SECONDS_MAX)
    seconds = time.perf_counter() - begin
    found = _REGISTERED.search(server.log_file.read_text())
    server.stop()
    if found is None:
        return Start(0, seconds, 0.0)
    return Start(int(found[1]), seconds, float(found[2]))


def write_release(path: Path, *, kinds: int) -> Path:
    """Write a release file with `kinds` kinds besides the built-in ones; they are data only."""
    listed: list[dict[str, Any]] = [
        {
            "group": "example.com",
            "kind": f"Kind{number}",
            "plural": f"kind{number}s",
            "scope": "Namespaced",
            "versions": [{"name": "v1"}],
            "storage": "v1",
            "conversion": "rename",
            "schema": "open",
        }
        for number in range(kinds)
    ]
    path.write_text(json.dumps({"release": path.stem, "kinds": listed}))  # JSON is YAML
    return path
