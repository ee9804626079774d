"""The page about aggregated servers: its commands run, and print what it shows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.documents import ROOT, Foreground, Shell, blocks_of, make_clone

pytestmark = pytest.mark.area("documents")

PAGE: Final = ROOT / "docs" / "how-to" / "aggregated-servers.md"
SECONDS_MAX: Final = 180
"""Some twenty commands on real processes; on an idle machine they take a tenth of it."""


@pytest.mark.timeout(SECONDS_MAX)
def test_the_page(tmp_path: Path) -> None:
    """The commands serve an API, roll it, and print what the page shows."""
    up, *others = blocks_of(PAGE)
    environment = make_clone(tmp_path)
    environment["PATH"] = f"{tmp_path / '.venv' / 'bin'}:{environment['PATH']}"
    command = up.commands.strip()
    assert command.startswith("restow up ")
    with (
        _servers_end(tmp_path),
        Foreground(f"{command} --port 0", tmp_path, environment=environment) as cluster,
        Shell(tmp_path, environment=environment) as shell,
    ):
        cluster.wait_ready()
        for block in others:
            shell.run(block)
        assert cluster.stop() == 0, cluster.output
    assert not (tmp_path / ".lamps").exists()


@contextmanager
def _servers_end(place: Path) -> Iterator[None]:
    """Kills the page's servers at the end of the test; each writes a PID file."""
    restow, pids = place / ".venv" / "bin" / "restow", place / "pids"
    head, rest = restow.read_text().split("\n", 1)
    restow.write_text(f'{head}\necho $$ >> "{pids}"\n{rest}')
    try:
        yield
    finally:
        for pid in pids.read_text().split() if pids.exists() else ():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cwd").readlink() == place:  # and the PID was not reused
                    os.kill(int(pid), signal.SIGKILL)
