"""`restow migrate` on the command line: arguments, output and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from restow.cli.main import main
from tests.support.server_process import ServerProcess

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
KEY = "/registry/example.com/widgets/default/bad"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that writes v2, with objects that the previous release stored in v1."""
    server = ServerProcess(tmp_path / "data", arguments=("--release", "x+1"))
    with server:
        for name in ("a", "b", "c"):
            widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
            code, body = server.request("POST", WIDGETS, widget)
            assert code == 201, body
        server.stop()
        server.arguments = ("--release", "x+2")
        server.start()
        yield server


def migrate(server: ServerProcess, *words: str) -> int:
    return main(["migrate", "--kubeconfig", str(server.kubeconfig), *words])


def test_a_whole_run(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Afterwards the census finds no object in an old version, and the next run skips it."""
    assert migrate(server, "widgets") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[:2] == ["done", "widgets.example.com:"]
    assert said[-1] == "1 succeeded; 3 objects rewritten"
    assert main(["census", "--store", server.store, "widgets.example.com"]) == 0
    capsys.readouterr()
    assert migrate(server, "widgets.example.com", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["rewritten"]) == ("skipped", 0)
    assert migrate(server, "--force", "widgets", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["objects"], found["rewritten"]) == ("succeeded", 3, 0)


def test_an_object_that_cannot_be_rewritten(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is printed and written to the file, the others are rewritten, and the exit code is 3."""
    assert main(["store", "put", KEY, "no object", "--yes", "--store", server.store]) == 0
    capsys.readouterr()
    failures = tmp_path / "failures"
    assert migrate(server, "widgets", "--failures", str(failures)) == 3
    said = capsys.readouterr().out
    assert "FAILED  widgets.example.com" in said
    assert "default/bad: " in said
    (line,) = failures.read_text().splitlines()
    found = json.loads(line)
    assert (found["resource"], found["namespace"], found["name"]) == (
        "widgets.example.com",
        "default",
        "bad",
    )
    assert main(["census", "--store", server.store, "widgets.example.com", "-o", "json"]) == 4
    (found,) = json.loads(capsys.readouterr().out)["resources"]
    assert {row.get("apiVersion") for row in found["stored"]} == {"example.com/v2", ""}


def test_dry_run(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """It checks every object, and writes none."""
    assert migrate(server, "--dry-run", "widgets") == 0
    said = capsys.readouterr().out
    assert said == "widgets.example.com: 3 objects checked, 0 would be rejected\n"
    assert main(["census", "--store", server.store, "widgets.example.com"]) == 3


def test_pause_without_a_running_migration(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a running migration there is a message, and no error."""
    for word in ("--pause", "--resume", "--cancel"):
        assert migrate(server, word, "widgets") == 0
        assert capsys.readouterr().out == "no migration is running\n"


def test_wrong_words(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid arguments give one error line and exit code 2."""
    for words, said in (
        ((), "name resources, or use --all"),
        (("--all", "widgets"), "name resources, or use --all"),
        (("gadgets",), "no resource 'gadgets'; did you mean"),
        (("tokenreviews",), "tokenreviews cannot be migrated: it does not support list, update"),
    ):
        assert migrate(server, *words) == 2
        assert said in capsys.readouterr().err


def test_an_unreachable_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unreachable server is reported with its address and exit code 1."""
    server = ServerProcess(tmp_path / "data")
    with server:
        url = server.url
    assert migrate(server, "configmaps") == 1
    assert url in capsys.readouterr().err
