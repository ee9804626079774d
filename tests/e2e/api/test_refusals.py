"""Start-ups that fail: one clear line with the reason, and an exit code."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from restow.kinds import releases
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess

REFUSED, USAGE = 1, 2


def refused(directory: Path, *arguments: str, store: str = "memory:", code: int = REFUSED) -> str:
    """Starts a server that must refuse; returns its line of output."""
    command = ServerProcess(directory, store=store, arguments=arguments).command()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("20")]  # no logs
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("restow serve: ")
    return lines[0]


def test_store_address(tmp_path: Path) -> None:
    """An invalid address is refused with the valid forms."""
    line = refused(tmp_path / "d", store="mysql://localhost")
    assert "invalid store address 'mysql://localhost': must be memory: | sqlite:FILE" in line


def test_store_is_no_database(tmp_path: Path) -> None:
    """A file that is not a store is not changed."""
    file = tmp_path / "notes.txt"
    file.write_text("something else\n" * 100)
    assert str(file) in refused(tmp_path / "d", store=f"sqlite:{file}")
    assert file.read_text().startswith("something else")


def test_no_etcd(tmp_path: Path) -> None:
    """The message names an etcd that cannot be reached."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in refused(tmp_path / "d", store=f"etcd://{address}")


def test_busy_port(tmp_path: Path) -> None:
    """The message names a port that is in use."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refused(tmp_path / "d", "--port", port)
        assert port in line
        assert "address already in use" in line.lower()


def test_address_of_another_machine(tmp_path: Path) -> None:
    """The message names an address that this machine does not have."""
    assert "192.0.2.1" in refused(tmp_path / "d", "--bind", "192.0.2.1")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("storage: v1", "storage: v7", "10: the storage version v7 is not among the versions"),
        ("kind: Widget", "kindd: Widget", "6: unknown key `kindd`"),
        ("versions: [{name: v1}]", "versions: [{name: v1", "10: is not YAML: "),
    ],
    ids=["storage", "key", "syntax"],
)
def test_release_file(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """An invalid release file is refused with its name, the line and the error."""
    shipped = Path(releases.__file__).with_name("releases") / "x.yaml"
    text = shipped.read_text()
    assert old in text
    file = tmp_path / "mine.yaml"
    file.write_text(text.replace(old, new))
    line = refused(tmp_path / "d", "--release", str(file))
    assert f"{file}:{problem}" in line


@pytest.mark.parametrize("option", ["--release", "--token-auth-file", "--client-ca-file"])
def test_missing_files(tmp_path: Path, option: str) -> None:
    """The message names a missing file."""
    assert str(tmp_path / "none") in refused(tmp_path / "d", option, str(tmp_path / "none"))


def test_tls_files(tmp_path: Path) -> None:
    """Unusable certificates are refused: missing, not PEM, or with the key of another."""
    mine, others = (make_certificate(tmp_path / name, name=name) for name in ("mine", "others"))
    cert, key = str(mine.cert_file), str(mine.key_file)
    words = ("--tls-cert-file", cert, "--tls-private-key-file")
    line = refused(tmp_path / "d", *words, str(others.key_file))
    assert cert in line
    assert "KEY_VALUES_MISMATCH" in line or "match" in line.lower()
    assert "none.key" in refused(tmp_path / "d", *words, str(tmp_path / "none.key"))
    words = ("--tls-private-key-file", key, "--tls-cert-file")
    assert "PEM" in refused(tmp_path / "d", *words, key)
    line = refused(tmp_path / "d", "--tls-cert-file", cert, code=USAGE)
    assert "--tls-cert-file" in line
    assert "--tls-private-key-file" in line


def test_token_file(tmp_path: Path) -> None:
    """A token file with an invalid line is refused, with the line number and without the token."""
    file = tmp_path / "tokens.csv"
    file.touch(mode=0o600)
    file.write_text("secret-one,alice,1\nsecret-two,bob\n")
    line = refused(tmp_path / "d", "--token-auth-file", str(file))
    assert f"{file}, line 2: " in line
    assert "secret" not in line


def test_open_keys(tmp_path: Path) -> None:
    """Private keys that other users can read are refused."""
    with ServerProcess(tmp_path / "d", store="memory:") as server:
        server.stop()
    copy = tmp_path / "copy"
    copy.mkdir(mode=0o700)
    shutil.copytree(server.pki_dir, copy / "pki")
    key = copy / "pki" / "ca.key"
    key.chmod(0o644)
    line = refused(copy)
    assert f"chmod 600 {key}" in line


def test_values_of_options(tmp_path: Path) -> None:
    """Options with invalid values are refused by name."""
    for words, text in (
        (("--port", "70000"), "--port: '70000' is not a port number (0 to 65535)"),
        (("--port", "http"), "--port: 'http' is not a port number (0 to 65535)"),
        (("--compaction-interval", "soon"), "--compaction-interval"),
        (("--event-ttl", "-1"), "--event-ttl"),
    ):
        command = ServerProcess(tmp_path / "d", arguments=words).command()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == USAGE
        assert text in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
