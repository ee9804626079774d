"""`restow preflight --drop-key` with a server and its store: the result and the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from restow.cli.main import main
from tests.support.server_process import ServerProcess
from tests.unit.census.stores import fill


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as found:
        yield found


def ask(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any]]:
    code = main(["preflight", "--kubeconfig", str(server.kubeconfig), "-o", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_a_key_that_is_unknown_is_not_called_safe(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name may be misspelt, so it is not safe; identity is always a known key."""
    code, found = ask(server, capsys, "--drop-key", "aesgcm:key1", "--store", server.store)
    assert (code, found["safe"]) == (1, False)
    assert [each["reason"] for each in found["blockers"]] == ["key-unknown"]
    assert found["target"] == "without the key aesgcm:key1"
    assert found["resources"] > 10
    words = ["preflight", "--kubeconfig", str(server.kubeconfig), "--drop-key"]
    assert main([*words, "key1", "--data-dir", str(server.data_dir)]) == 1
    assert "no value knows a key key1" in capsys.readouterr().out
    assert main([*words, "identity", "--data-dir", str(server.data_dir)]) == 0
    out = capsys.readouterr().out
    assert "safe: " in out
    assert "without the key identity" in out
    assert "backups" in out


def test_the_census_of_a_key_that_is_unknown_proves_nothing(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a store of restow, where servers report their keys: exit code 4."""
    words = ["census", "--store", server.store, "--key"]
    assert main([*words, "nosuch"]) == 4
    assert "key nosuch is unknown" in capsys.readouterr().out
    assert main([*words, "aesgcm:nosuch", "-o", "json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["isKnown"], found["left"]) == ("undecided", False, 0)
    assert main([*words, "identity"]) == 3


def test_the_store_must_be_that_of_the_cluster(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store without the leases of the servers is no evidence, nor is a missing one."""
    other = f"sqlite:{tmp_path / 'other.db'}"
    uvloop.run(fill(other, {"/registry/pods/default/a": b"{}"}))
    for address in (other, f"sqlite:{tmp_path / 'none.db'}"):
        code, found = ask(server, capsys, "--drop-key", "key1", "--store", address)
        assert code == 1
        assert [each["reason"] for each in found["blockers"]] == ["unseen"]
        assert "--store" in found["blockers"][0]["advice"]


def test_words_that_do_not_go_together(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """--to and --drop-key exclude each other, and --store is refused for restow servers."""
    words = ["preflight", "--kubeconfig", str(server.kubeconfig)]
    assert main([*words, "--to", "x", "--store", "sqlite:a"]) == 2
    assert "restow servers scan their own store" in capsys.readouterr().err
    for wrong in ([], ["--to", "x", "--drop-key", "key1"]):
        with pytest.raises(SystemExit):
            main([*words, *wrong])
