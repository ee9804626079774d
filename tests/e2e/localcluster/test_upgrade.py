"""`restow upgrade` on a real cluster with clients."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
from importlib import resources
from pathlib import Path

from tests.e2e.localcluster.running import RESTOW, WAIT_SECONDS_MAX, Up, Users, wait_for

WIDGET = """\
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
"""


def as_printed(line: str) -> subprocess.CompletedProcess[str]:
    """Runs a hint as it was printed, in a directory without a cluster."""
    words = shlex.split(line)
    assert words[0] == "restow"
    return subprocess.run(
        [*RESTOW, *words[1:]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
        cwd="/",
    )


def releases(up: Up) -> list[str]:
    return [server["release"] for server in up.state()["servers"]]


def test_an_upgrade_and_back_without_a_failed_request(tmp_path: Path) -> None:
    """During pause, end and rollback, clients of the front port see no failure."""
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--servers=2", "--release=x", "--no-controllers") as up:
        up.ready()
        manifest = tmp_path / "widget.yaml"
        manifest.write_text(WIDGET)
        up.kubectl("create", f"--filename={manifest}")
        with Users(data_dir / "kubeconfig") as users:
            paused = up.run("upgrade", "--to=x+1", "--pause-after=1", "--yes")
            assert paused.returncode == 0, paused.stderr
            hint = f"restow upgrade --data-dir {data_dir}"
            assert f"continue: {hint} --to x+1    roll back: {hint} --rollback" in paused.stdout
            assert releases(up) == ["x+1", "x"]

            done = as_printed(f"{hint} --to x+1 --yes")
            assert done.returncode == 0, done.stderr
            assert "server 0:" not in done.stdout
            assert "server 1 is ready with x+1" in done.stdout
            assert releases(up) == ["x+1"] * 2

            back = up.run("upgrade", "--rollback", "--yes")
            assert back.returncode == 0, back.stderr
            assert releases(up) == ["x"] * 2
        assert users.failures == []
        assert all(users.answers.values())

        # An unsafe step is refused.
        refused = up.run("upgrade", "--to=x+3", "--yes")
        assert refused.returncode == 3
        assert "stored as example.com/v1: x+3 can read example.com/v2" in refused.stderr
        nothing = up.run("upgrade", "--rollback", "--yes")
        assert (nothing.returncode, "nothing to roll back" in nothing.stderr) == (1, True)
        assert releases(up) == ["x"] * 2


def test_a_release_is_remembered(tmp_path: Path) -> None:
    """An upgraded cluster starts with its current release, and another one needs an upgrade."""
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--servers=1", "--release=x", "--no-controllers") as up:
        up.ready()
        assert up.run("upgrade", "--to=x+1", "--yes").returncode == 0
        assert up.stop() == 0
    with Up(data_dir, "--release=x", "--no-controllers") as up:
        assert up.process is not None
        assert up.process.wait(90) == 1
        assert "run x+1" in up.output
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        assert releases(up) == ["x+1"]


def test_wrong_usage(tmp_path: Path) -> None:
    """Each usage error has its own message and exit code."""
    up = Up(tmp_path)
    for words, code, said in (
        (("--to=x+1", "--yes"), 1, "no cluster runs in"),
        (("--to=x+1",), 2, "use --yes"),
        (("--yes",), 2, "one of the arguments --to --rollback is required"),
        (("--to=x", "--rollback", "--yes"), 2, "not allowed with"),
        (("--to=x", "--pause-after=0", "--yes"), 2, "not a number from 1"),
    ):
        done = up.run("upgrade", *words)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_release_file_is_remembered_by_content(tmp_path: Path) -> None:
    """An edited, then removed release file changes no server that is started again: neither one
    that was killed, nor all of them. The new content is rolled out as another release, and back."""
    data_dir, file = tmp_path / "d", tmp_path / "mine.yaml"
    folder = resources.files("restow.kinds") / "releases"
    first, second = ((folder / f"{name}.yaml").read_bytes() for name in ("x", "x+1"))
    kept = str(data_dir / "releases" / f"{hashlib.sha256(first).hexdigest()}.yaml")
    file.write_bytes(first)
    words = ("--port=0", "--servers=1", "--no-controllers")
    with Up(data_dir, *words, f"--release={file}") as up:
        up.ready()
        assert releases(up) == [kept]
        nothing = up.run("upgrade", f"--to={file}", "--yes")
        assert (nothing.returncode, "nothing to do" in nothing.stdout) == (0, True)

        file.write_bytes(second)
        os.kill(up.pids()["server-0"], signal.SIGKILL)
        wait_for(
            lambda: up.output.count("server-0: ready") == 2,
            "the server is ready again",
            log=lambda: up.output,
        )
        assert f"release file {file} has changed" in up.output
        assert releases(up) == [kept]

        done = up.run("upgrade", f"--to={file}", "--yes")
        assert done.returncode == 0, done.stderr
        assert "server 0: mine.yaml (sha256 " in done.stdout
        assert Path(releases(up)[0]).read_bytes() == second
        back = up.run("upgrade", "--rollback", "--yes")
        assert back.returncode == 0, back.stderr
        assert releases(up) == [kept]
        Path(kept).unlink()  # written again before the server is started
        os.kill(up.pids()["server-0"], signal.SIGKILL)
        wait_for(Path(kept).exists, "the copy is there again", log=lambda: up.output)
        assert up.stop() == 0
    file.unlink()
    with Up(data_dir, "--no-controllers") as up:
        up.ready()
        assert f"release file {file} cannot be read" in up.output
        assert Path(releases(up)[0]).read_bytes() == first


def test_a_paused_server_stops_the_next_step(tmp_path: Path) -> None:
    """A server that was just resumed counts as ready for the supervisor, but not for the step of
    another server. Named explicitly it is upgraded itself."""
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--servers=2", "--release=x", "--no-controllers") as up:
        up.ready()
        pid = up.pids()["server-1"]
        os.kill(pid, signal.SIGSTOP)
        try:
            refused = up.run("upgrade", "--to=x+1", "--server=0", "--yes")
        finally:
            os.kill(pid, signal.SIGCONT)
        assert refused.returncode == 3, refused.stderr
        assert "server 1 is not ready (not ready: no response within 3 s" in refused.stderr
        assert f"kill -CONT {pid}" in refused.stderr
        assert releases(up) == ["x", "x"]
        # The supervisor may have noticed in the meantime.
        wait_for(
            lambda: up.run("upgrade", "--to=x+1", "--server=0", "--yes").returncode == 0,
            "the step is taken",
            log=lambda: up.output,
        )
        assert releases(up) == ["x+1", "x"]
        os.kill(up.pids()["server-1"], signal.SIGSTOP)
        named = up.run("upgrade", "--to=x+1", "--server=1", "--yes")
        assert named.returncode == 0, named.stderr
        assert releases(up) == ["x+1", "x+1"]
