"""Processes forked from a warm parent behave like newly started ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess
from tests.support.warm_start import WarmProcess, WarmStarter

SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def starter() -> Iterator[WarmStarter]:
    made = WarmStarter()
    yield made
    made.close()


def run(starter: WarmStarter, directory: Path, *words: str) -> tuple[WarmProcess, Path, Path]:
    out_file, log_file = directory / "out", directory / "log"
    with out_file.open("wb") as out, log_file.open("wb") as log:
        return starter.start(words, out=out, log=log), out_file, log_file


def served(starter: WarmStarter, directory: Path) -> WarmProcess:
    """A server shortly after its start."""
    return run(starter, directory, "serve", "--store=memory:", f"--data-dir={directory}")[0]


def test_output_of_a_new_process(starter: WarmStarter, tmp_path: Path) -> None:
    """Output, errors and exit code are those of the command."""
    for words in (["version"], ["serve", "--nonsense"]):
        warm, out, log = run(starter, tmp_path, *words)
        cold = subprocess.run(
            [sys.executable, "-m", "restow", *words], check=False, capture_output=True
        )
        assert warm.wait(SECONDS_MAX) == cold.returncode
        assert warm.poll() == cold.returncode, "the exit code is kept"
        assert (out.read_bytes(), log.read_bytes()) == (cold.stdout, cold.stderr)


def test_surroundings(
    starter: WarmStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has the current working directory and environment, files and a session of its own,
    and nothing of other processes."""
    monkeypatch.chdir(tmp_path)
    neighbour = served(starter, tmp_path)
    process = served(starter, tmp_path)
    try:
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path
        assert os.getsid(process.pid) == process.pid
        open_files = {link.resolve() for link in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert {tmp_path / "out", tmp_path / "log"} <= open_files
    finally:
        for each in (process, neighbour):
            each.kill()
            assert each.wait(SECONDS_MAX) == -signal.SIGKILL


def test_ends_in_any_order(starter: WarmStarter, tmp_path: Path) -> None:
    """In any order of exits, each process has its own exit code; a later signal has no effect."""
    first, second = served(starter, tmp_path), served(starter, tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0)
    second.kill()
    assert second.wait(SECONDS_MAX) == -signal.SIGKILL
    third, _, _ = run(starter, tmp_path, "version")
    assert third.wait(SECONDS_MAX) == 0
    assert first.poll() is None
    first.send_signal(signal.SIGKILL)
    assert first.wait(SECONDS_MAX) == -signal.SIGKILL
    first.send_signal(signal.SIGTERM)


def test_closing_ends_all(tmp_path: Path) -> None:
    """No started process outlives the process that forked it."""
    starter = WarmStarter()
    process = served(starter, tmp_path)
    starter.close()
    assert process._has_ended(SECONDS_MAX)
    os.close(process._handle)


def test_threads(tmp_path: Path) -> None:
    """Starting in another thread than the main one is refused: the child would end with it."""
    failures: list[str] = []

    def start() -> None:
        try:
            served(WarmStarter(), tmp_path)
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert failures == ["the first start must be in the main thread"]


def test_a_server(starter: WarmStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server started in this way serves, stops gracefully, and starts again."""
    monkeypatch.setattr(ServerProcess, "starter", starter)
    with ServerProcess(tmp_path, store="memory:") as server:
        assert isinstance(server.process, WarmProcess)
        assert server.get("/readyz")[0] == 200
        assert server.stop() == 0
        server.start()
        assert server.get("/readyz")[0] == 200
