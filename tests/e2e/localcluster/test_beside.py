"""Other commands on the data directory of a running `restow up`, and after it has stopped."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path

from tests.e2e.localcluster.running import RESTOW, WAIT_SECONDS_MAX, Up

ONE = ("--port=0", "--servers=1", "--no-controllers")


def test_serve_does_not_overwrite_the_kubeconfig(tmp_path: Path) -> None:
    """`restow serve` beside `restow up` is refused; with a kubeconfig of its own it joins."""
    data_dir = tmp_path / "d"
    with Up(data_dir, *ONE) as up:
        up.ready()
        before = (data_dir / "kubeconfig").read_bytes()
        assert up.process is not None
        for words in ((), (f"--kubeconfig={data_dir / 'kubeconfig'}",), ("--workers=2",)):
            refused = up.run("serve", "--port=0", *words)
            assert refused.returncode == 1
            assert f"process {up.process.pid}" in refused.stderr
            assert "--kubeconfig FILE" in refused.stderr
            assert (data_dir / "kubeconfig").read_bytes() == before

        own = tmp_path / "own"
        joining = [f"--data-dir={data_dir}", "--port=0", f"--kubeconfig={own}"]
        with subprocess.Popen([*RESTOW, "serve", *joining], stdout=subprocess.PIPE) as second:
            assert second.stdout is not None
            assert second.stdout.readline().startswith(b"ready: ")
            assert own.exists()
            second.send_signal(signal.SIGTERM)
            assert second.wait(WAIT_SECONDS_MAX) == 0
        assert (data_dir / "kubeconfig").read_bytes() == before
        up.kubectl("get", "namespaces")

        assert up.stop() == 0
        stopped = up.run("doctor")
        assert stopped.returncode == 2
        assert "restow serve" not in stopped.stdout
        assert "restow up --data-dir" in stopped.stdout


def test_a_value_that_no_server_can_read(tmp_path: Path) -> None:
    """Writing it past the servers needs a confirmation; it is found, and the advice repairs it."""
    data_dir = tmp_path / "d"
    key = "/registry/configmaps/default/bad"
    with Up(data_dir, "--port=0", "--servers=1") as up:
        up.ready()
        refused = run("store", "put", f"--data-dir={data_dir}", key, "value")
        assert refused.returncode == 2
        assert "in use by `restow up`" in refused.stderr
        assert "--yes" in refused.stderr
        assert run("store", "get", f"--data-dir={data_dir}", key).returncode == 1
        assert run("store", "put", "--yes", f"--data-dir={data_dir}", key, "value").returncode == 0

        kubeconfig = f"--kubeconfig={data_dir / 'kubeconfig'}"
        found = finding(up, "objects")
        assert found["level"] == "error"
        assert "default/bad" in found["text"]
        assert "configmaps" in unhealthy(run("status", kubeconfig, "-o=json").stdout)

        failed = run("migrate", kubeconfig, "--force", "configmaps")
        assert failed.returncode == 3
        census = run(*printed_command(found["advice"], "census"))
        assert key in census.stdout
        delete = printed_command(found["advice"], "store delete")
        assert run(*delete[:-1], key, "--yes").returncode == 0

        assert finding(up, "objects")["level"] == "ok"
        again = finding(up, "migrations")
        assert again["level"] == "warning"
        done = run(*printed_command(again["advice"], "migrate"))
        assert done.returncode == 0, done.stderr
        assert finding(up, "migrations")["level"] == "ok"
        assert "configmaps" not in unhealthy(run("status", kubeconfig, "-o=json").stdout)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RESTOW, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
    )


def finding(up: Up, check: str) -> dict[str, str]:
    """Returns the result of one check of doctor."""
    findings = json.loads(up.run("doctor", "-o=json").stdout)["findings"]
    found: dict[str, str] = next(each for each in findings if each["check"] == check)
    return found


def printed_command(advice: str, name: str) -> list[str]:
    """Returns the arguments of a command in an advice, as a user would copy them."""
    line = advice[advice.index(f"restow {name}") :]
    return shlex.split(line.partition(";")[0])[1:]


def unhealthy(status: str) -> set[str]:
    return {each["resource"] for each in json.loads(status)["resources"] if each["verdict"] != "ok"}


def test_a_damaged_store(tmp_path: Path) -> None:
    """`restow up` and `restow serve` end with the error and what to do, and no traceback."""
    data_dir = tmp_path / "d"
    with Up(data_dir, *ONE) as up:
        up.ready()
        assert up.stop() == 0
        store = data_dir / "store.db"
        data = bytearray(store.read_bytes())
        for offset in range(4096, len(data), 4096):
            data[offset : offset + 500] = b"\xff" * 500
        store.write_bytes(data)
        for words in (("serve", "--port=0"), ("up", *ONE), ("doctor", "-o=json")):
            ended = up.run(*words)
            assert ended.returncode in (1, 2)
            said = ended.stdout + ended.stderr
            assert "Traceback" not in said
            assert "damaged" in said
            assert "restow restore" in said
