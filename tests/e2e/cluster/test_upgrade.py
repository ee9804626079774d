"""`restow upgrade` on a real cluster, while others use it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster.running import Up, Users

WIDGET = """\
apiVersion: example.com/v1
kind: Widget
metadata: {name: one}
"""


def releases(up: Up) -> list[str]:
    return [server["release"] for server in up.state()["servers"]]


def test_an_upgrade_and_back_without_a_failed_request(tmp_path: Path) -> None:
    """Through pause, end and rollback, nobody who uses the front port sees anything fail."""
    data_dir = tmp_path / "d"
    with Up(data_dir, "--port=0", "--servers=2", "--release=x", "--no-controllers") as up:
        up.ready()
        manifest = tmp_path / "widget.yaml"
        manifest.write_text(WIDGET)
        up.kubectl("create", f"--filename={manifest}")
        with Users(data_dir / "kubeconfig") as users:
            paused = up.run("upgrade", "--to=x+1", "--pause-after=1", "--yes")
            assert paused.returncode == 0, paused.stderr
            assert (
                "go on: restow upgrade --to x+1    back: restow upgrade --rollback" in paused.stdout
            )
            assert releases(up) == ["x+1", "x"]

            done = up.run("upgrade", "--to=x+1", "--yes")
            assert done.returncode == 0, done.stderr
            assert "server 0:" not in done.stdout
            assert "server 1 is ready as x+1" in done.stdout
            assert releases(up) == ["x+1"] * 2

            back = up.run("upgrade", "--rollback", "--yes")
            assert back.returncode == 0, back.stderr
            assert releases(up) == ["x"] * 2
        assert users.failures == []
        assert all(users.answers.values())

        # What is not safe is not done.
        refused = up.run("upgrade", "--to=x+3", "--yes")
        assert refused.returncode == 3
        assert "widgets.example.com: objects may be stored as example.com/v1" in refused.stderr
        nothing = up.run("upgrade", "--rollback", "--yes")
        assert (nothing.returncode, "nothing to roll back" in nothing.stderr) == (1, True)
        assert releases(up) == ["x"] * 2


def test_a_release_is_remembered(tmp_path: Path) -> None:
    """A cluster that was upgraded starts as it was, and another release must be rolled to."""
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
    """Each mistake has its own words and exit code."""
    up = Up(tmp_path)
    for words, code, said in (
        (("--to=x+1", "--yes"), 1, "no cluster runs in"),
        (("--to=x+1",), 2, "give --yes"),
        (("--yes",), 2, "one of the arguments --to --rollback is required"),
        (("--to=x", "--rollback", "--yes"), 2, "not allowed with"),
        (("--to=x", "--pause-after=0", "--yes"), 2, "no number from 1"),
    ):
        done = up.run("upgrade", *words)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
