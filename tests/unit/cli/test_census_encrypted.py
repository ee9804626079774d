"""`restow census` of a store in which a real server encrypts all resources that can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from restow.cli.main import main
from tests.support.encryption_files import write_encryption_file
from tests.support.server_process import ServerProcess
from tests.unit.census.stores import as_json, fill

FLAG: Final = "--encryption-provider-config"
SECRETS: Final = "/api/v1/namespaces/default/secrets"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encryption_file(tmp_path_factory.mktemp("keys") / "keys", "aesgcm:a", "identity")


@pytest.fixture(scope="module")
def server(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("server") / "data"
    with ServerProcess(directory, arguments=(FLAG, str(keys))) as found:
        assert found.request("POST", SECRETS, {"metadata": {"name": "one"}})[0] == 201
        yield found


def count(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, dict[str, Any]]:
    code = main(["census", "--data-dir", str(server.data_dir), "-o", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_versions_are_proven_with_the_keys(
    server: ServerProcess, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the servers' file the verdict is undecided, with a hint; with it all versions are
    known, and with another file the hint appears again."""
    code, found = count(server, capsys, "secrets")
    assert (code, found["verdict"], found["unopened"]) == (4, "undecided", found["objects"])
    words = ["census", "secrets", "--data-dir", str(server.data_dir)]
    assert main(words) == 4
    text = f"not decrypted: 1 objects; pass the servers' file with {FLAG} to see their versions"
    assert text in capsys.readouterr().out
    code, found = count(server, capsys, "secrets", FLAG, str(keys))
    assert (code, found["verdict"], found["unopened"]) == (0, "right", 0)
    [row] = found["resources"][0]["stored"]
    assert (row["form"], row["apiVersion"], row["kind"]) == ("encrypted", "v1", "Secret")
    assert row["encryption"]["key"] == "a"
    code, found = count(server, capsys, FLAG, str(keys))
    assert (code, found["unopened"], found["undecided"]) == (0, 0, 0)
    assert main([*words, FLAG, str(keys), "--target", "secrets=example.com/v9"]) == 3
    assert "in an old version: 1 objects" in capsys.readouterr().out
    other = write_encryption_file(keys.with_name("other"), "aesgcm:b")
    assert main([*words, FLAG, str(other)]) == 4
    assert f"not decrypted: 1 objects; no key of {other} decrypts them" in capsys.readouterr().out


def test_the_file_is_refused_as_by_a_server(
    server: ServerProcess, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, one that others can read, and another prefix are refused."""
    words = ["census", "--data-dir", str(server.data_dir), FLAG]
    assert main([*words, str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    loose = write_encryption_file(tmp_path / "loose", "aesgcm:a")
    loose.chmod(0o644)
    assert main([*words, str(loose)]) == 2
    assert f"chmod 600 {loose}" in capsys.readouterr().err
    assert main([*words, str(keys), "--prefix", "/other"]) == 2
    assert "cannot be used with --prefix" in capsys.readouterr().err


def test_plain_values_are_counted_as_preflight_does(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """If everything is encrypted that can be, no value uses identity: resources that are never
    encrypted are counted separately. They count if named, and so does any other plain value."""
    code, found = count(server, capsys, "--key", "identity")
    assert (code, found["verdict"], found["left"]) == (0, "none", 0)
    assert found["apart"] > 0
    assert main(["census", "--data-dir", str(server.data_dir), "--key", "identity"]) == 0
    assert "leases.coordination.k8s.io" in capsys.readouterr().out
    words = ["preflight", "--kubeconfig", str(server.kubeconfig), "-o", "json"]
    main([*words, "--drop-key", "identity", "--data-dir", str(server.data_dir)])
    said = json.loads(capsys.readouterr().out)
    assert not [each for each in said["blockers"] if each["reason"] == "key-found"], said
    assert count(server, capsys, "leases.coordination.k8s.io", "--key", "identity")[0] == 3
    server.stop()
    uvloop.run(fill(server.store, {"/registry/secrets/default/x": as_json("v1", "Secret")}))
    code, found = count(server, capsys, "--key", "identity")
    assert (code, found["left"]) == (3, 1)
