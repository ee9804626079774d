"""The three certificate files for etcd become part of the store address."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from restow.cli.etcd_files import add_etcd_files, with_etcd_files
from restow.cli.main import main
from restow.storage.errors import OpenRefused
from restow.storage.etcd import parse_address

ADDRESS = "etcds://10.0.0.1:2379,10.0.0.2:2379"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_etcd_files(parser)
    return parser.parse_args(words)


def test_files_reach_the_driver(tmp_path: Path) -> None:
    """With any characters in their names, and together with options in the address."""
    names = [tmp_path / name for name in ("c&a=1.pem", "c+ert?.pem", "k%20ey#.pem")]
    ca, cert, key = map(str, names)
    arguments = parsed("--etcd-cafile", ca, "--etcd-certfile", cert, "--etcd-keyfile", key)
    options = parse_address(with_etcd_files(ADDRESS, arguments))
    assert options.endpoints == ("10.0.0.1:2379", "10.0.0.2:2379")
    assert [options.ca_file, options.cert_file, options.key_file] == names
    beside = with_etcd_files(f"{ADDRESS}?ca=/ca", parsed("--etcd-certfile=c", "--etcd-keyfile=k"))
    assert parse_address(beside).ca_file == Path("/ca")
    assert parse_address(beside).key_file == Path("k").absolute()


def test_without_files_nothing_changes() -> None:
    """Every address stays unchanged."""
    for address in ("", "memory:", "sqlite:a.db", "etcd://127.0.0.1:1", ADDRESS):
        assert with_etcd_files(address, parsed()) == address


@pytest.mark.parametrize(
    ("address", "words", "text"),
    [
        ("etcd://h:1", ["--etcd-cafile=a"], "--etcd-cafile: only for a store at etcds://"),
        ("etcd://h:1", [], "or accept the risk with --etcd-insecure"),
        ("etcds://h:1", ["--etcd-insecure"], "--etcd-insecure: only for a store at etcd://"),
        ("sqlite:a", ["--etcd-insecure"], "--etcd-insecure: only for a store at etcd://"),
        ("", ["--etcd-cafile=a"], "not for the store in the data directory"),
        (ADDRESS, ["--etcd-certfile=a"], "must be given together"),
        (f"{ADDRESS}?ca=x", ["--etcd-cafile=a"], "already contains this file"),
    ],
)
def test_files_that_do_not_fit(address: str, words: list[str], text: str) -> None:
    """They are refused, not ignored."""
    with pytest.raises(OpenRefused, match=text):
        with_etcd_files(address, parsed(*words))


def test_acceptance_reaches_the_driver() -> None:
    """--etcd-insecure becomes an option of the address, once."""
    once = with_etcd_files("etcd://h:1?user=u", parsed("--etcd-insecure"))
    assert once == with_etcd_files(once, parsed("--etcd-insecure"))
    assert once == with_etcd_files(once, parsed()) == "etcd://h:1?user=u&insecure=true"


REMOTE = "etcd://192.0.2.1:2379"


@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--port", "0", "--data-dir", "d", "--store", REMOTE],
        ["up", "--data-dir", "d", "--store", REMOTE],
        ["backup", "a", "--store", REMOTE],
        ["restore", "a", "--store", REMOTE],
        ["census", "--store", REMOTE],
        ["doctor", "--store", REMOTE],
        ["preflight", "--to", "kubernetes-1.36", "--store", REMOTE],
        ["store", "get", "/a", "--store", REMOTE],
        ["controllers", "--kubeconfig", "config", "--census-store", REMOTE],
    ],
    ids=lambda words: words[0],
)
def test_every_command_refuses_plain_text_to_other_machines(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without --etcd-insecure a command ends before it connects, and names the flags."""
    monkeypatch.chdir(tmp_path)
    Path("a").write_bytes(b"x")
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    parts = {"clusters": [cluster], "users": [user], "contexts": [context]}
    Path("config").write_text(json.dumps({"kind": "Config", "current-context": "x", **parts}))
    assert main(words) in (1, 2)
    shown = capsys.readouterr()
    text = " ".join((shown.out + shown.err).split())
    assert "192.0.2.1 is not this machine: use etcds://" in text
    assert "--etcd-insecure" in text
