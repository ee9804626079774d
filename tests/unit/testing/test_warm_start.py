"""Starts that branch off a process: for whoever starts one, it is as if it had begun anew."""

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
    """A server that has not got far."""
    return run(starter, directory, "serve", "--store=memory:", f"--data-dir={directory}")[0]


def test_it_says_what_a_new_process_says(starter: WarmStarter, tmp_path: Path) -> None:
    """Output, errors and exit code are those of the command."""
    for words in (["version"], ["serve", "--nonsense"]):
        warm, out, log = run(starter, tmp_path, *words)
        cold = subprocess.run(
            [sys.executable, "-m", "restow", *words], check=False, capture_output=True
        )
        assert warm.wait(SECONDS_MAX) == cold.returncode
        assert warm.poll() == cold.returncode, "it is remembered"
        assert (out.read_bytes(), log.read_bytes()) == (cold.stdout, cold.stderr)


def test_surroundings(
    starter: WarmStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has the working directory and the environment of this moment, files and a session
    of its own, and nothing of its neighbours."""
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
    """Whoever ends first, each process gets its own exit code; a signal after it reaches nobody."""
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
    """Nothing that was started outlives the process that forked it."""
    starter = WarmStarter()
    process = served(starter, tmp_path)
    starter.close()
    assert process._has_ended(SECONDS_MAX)
    os.close(process._handle)


def test_threads(tmp_path: Path) -> None:
    """It refuses to begin in a thread, with which it would end."""
    failures: list[str] = []

    def start() -> None:
        try:
            served(WarmStarter(), tmp_path)
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert failures == ["the first start is from the main thread"]


def test_a_server(starter: WarmStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was started so serves, stops in good order, and starts again."""
    monkeypatch.setattr(ServerProcess, "starter", starter)
    with ServerProcess(tmp_path, store="memory:") as server:
        assert isinstance(server.process, WarmProcess)
        assert server.get("/readyz")[0] == 200
        assert server.stop() == 0
        server.start()
        assert server.get("/readyz")[0] == 200
