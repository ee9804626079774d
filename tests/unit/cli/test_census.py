"""`restow census` on the command line: arguments, output and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest
import uvloop

from restow.cli.main import main
from tests.support.server_process import ServerProcess
from tests.unit.census.stores import as_json, as_protobuf, fill

NO_TARGET = "no target version is known for these objects: set one with --target"
WIDGETS = "/apis/example.com/{}/namespaces/default/widgets"

OBJECTS = {
    "/registry/deployments/default/a": as_protobuf("apps/v1", "Deployment"),
    "/registry/deployments/default/b": as_protobuf("apps/v1beta1", "Deployment"),
    "/registry/deployments/default/c": as_json("apps/v1beta1", "Deployment"),
    "/registry/secrets/default/a": b"k8s:enc:aescbc:v1:key1:?",
    "/registry/secrets/default/b": b"k8s:enc:kms:v2:vault:\x12\x02k7",
    "/registry/pods/default/a": as_json("v1", "Pod"),
    "/registry/pods/default/bad\nkey": b"garbage",
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store with some objects, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:{tmp_path / 'store.db'}"
    uvloop.run(fill(address, OBJECTS))
    return address


def run(store: str, *words: str) -> int:
    return main(["census", "--store", store, *words])


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_table(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each stored form, the unreadable keys, and exit code 0 without a target."""
    assert run(store) == 0
    assert lines(capsys) == [
        ["RESOURCE", "STORED", "VERSION", "FORM", "ENCRYPTION", "OBJECTS", "TARGET"],
        ["deployments.apps", "apps/v1", "protobuf", "–", "1", "–"],
        ["apps/v1beta1", "json", "–", "1"],
        ["apps/v1beta1", "protobuf", "–", "1"],
        ["pods", "v1", "json", "–", "1", "–"],
        ["?", "unreadable", "–", "1"],
        ["secrets", "?", "encrypted", "aescbc", "key1", "1", "–"],
        ["?", "encrypted", "kms", "v2", "vault", "key", "k7", "1"],
        ["7", "objects", "of", "3", "resources", "at", "revision", "8", "of", store],
        [
            "no",
            "target",
            "version",
            "is",
            "known",
            "for",
            "these",
            "objects:",
            "set",
            "one",
            "with",
            "--target",
        ],
        [
            *("not", "decrypted:", "2", "objects;", "pass", "the", "servers'", "file", "with"),
            *("--encryption-provider-config", "to", "see", "their", "versions"),
        ],
        ["unreadable,", "pods:", "1"],
        ["/registry/pods/default/bad·key"],
    ]


def test_stale_objects(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects in another version than the target give exit code 3, and are listed on request."""
    words = ("deployments", "--target", "deployments.apps=v1")
    assert run(store, *words) == 3
    assert "--list-stale" in capsys.readouterr().out
    assert run(store, *words, "--list-stale") == 3
    assert lines(capsys)[1:] == [
        ["deployments.apps", "apps/v1", "protobuf", "–", "1", "apps/v1", "ok"],
        ["apps/v1beta1", "json", "–", "1", "old", "version"],
        ["apps/v1beta1", "protobuf", "–", "1", "old", "version"],
        ["3", "objects", "of", "1", "resource", "at", "revision", "8", "of", store],
        ["in", "an", "old", "version:", "2", "objects"],
        ["old", "version,", "deployments.apps", "in", "apps/v1beta1:", "1"],
        ["/registry/deployments/default/c"],
        ["old", "version,", "deployments.apps", "in", "apps/v1beta1:", "1"],
        ["/registry/deployments/default/b"],
    ]


def test_undecided(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 4 if the stored version cannot be determined."""
    assert run(store, "secrets", "--target", "secrets=v1") == 4
    shown = capsys.readouterr().out
    assert "in the target version: 0 of 2 objects" in shown
    assert "undecided: 2 objects" in shown
    assert "checked" not in shown


def test_clean(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 if all selected objects are in their target version."""
    uvloop.run(fill(store, {"/registry/pods/default/bad\nkey": as_json("v1", "Pod")}))
    assert run(store, "pods", "--target", "pods=v1") == 0
    assert "2 objects checked, all in the target version" in capsys.readouterr().out


def test_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With -o json the output is one object, as in the reference."""
    assert run(store, "deployments.apps", "-o", "json", "--target", "deployments=v1") == 3
    assert json.loads(capsys.readouterr().out) == {
        "store": store,
        "prefix": "/registry/",
        "revision": 8,
        "verdict": "stale",
        "objects": 3,
        "stale": 2,
        "undecided": 0,
        "unreadable": 0,
        "unopened": 0,
        "resources": [
            {
                "resource": "deployments.apps",
                "objects": 3,
                "stale": 2,
                "undecided": 0,
                "target": {
                    "source": "argument",
                    "version": "apps/v1",
                    "hash": "",
                    "problem": "",
                },
                "stored": [
                    stored("protobuf", "apps/v1", "right"),
                    stored("json", "apps/v1beta1", "stale", "c"),
                    stored("protobuf", "apps/v1beta1", "stale", "b"),
                ],
            }
        ],
    }


def stored(form: str, version: str, verdict: str, *names: str) -> dict[str, Any]:
    return {
        "form": form,
        "apiVersion": version,
        "kind": "Deployment",
        "encryption": {"provider": "identity", "scheme": "", "key": "", "keyID": ""},
        "objects": 1,
        "verdict": verdict,
        "keys": [f"/registry/deployments/default/{name}" for name in names],
    }


def test_list_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At most N keys are listed, and the rest is counted."""
    address = f"sqlite:{tmp_path / 'store.db'}"
    pods = {f"/registry/pods/default/{number:03}": as_json("v1", "Pod") for number in range(50)}
    uvloop.run(fill(address, pods))
    assert run(address, "--target", "pods=v2", "--list-stale", "30") == 3
    out = capsys.readouterr().out
    assert out.count("/registry/pods/default/") == 30
    assert "… and 20 more" in out


def test_snapshot_and_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--snapshot names a file, and --prefix the key prefix of its objects."""
    uvloop.run(
        fill(f"sqlite:{tmp_path / 'a.db'}", {"/kubernetes.io/pods/a/b": as_json("v1", "Pod")})
    )
    assert main(["census", "--snapshot", str(tmp_path / "a.db"), "--prefix", "/kubernetes.io"]) == 0
    assert lines(capsys)[1][:2] == ["pods", "v1"]
    assert main(["census", "--snapshot", str(tmp_path / "a.db")]) == 0
    assert "no objects under /registry/" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["gadgets"], "gadgets: unknown resource"),
        (["--target", "gadgets.example.com=v1"], "gadgets.example.com: unknown resource"),
        (["/registry/nothing/"], "/registry/nothing/: unknown resource"),
    ],
)
def test_unknown_names(
    store: str, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    """A resource that neither the store nor restow knows is an error, not an empty result."""
    assert run(store, *words) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--target", "pods"],
        ["--target", "=v1"],
        ["--list-stale", "pods"],
        ["--list-stale", "0"],
        ["--snapshot", "x"],
        ["-o", "yaml"],
    ],
)
def test_wrong_usage(store: str, words: list[str]) -> None:
    """Invalid arguments give exit code 2."""
    with pytest.raises(SystemExit) as ended:
        run(store, *words)
    assert ended.value.code == 2


def test_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing store is one error line, and no store is created."""
    monkeypatch.chdir(tmp_path)
    assert main(["census"]) == 2
    assert capsys.readouterr().err == (
        "restow census: .restow/store.db does not exist, or is not a file\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert main(["census", "--store", "etcd://127.0.0.1:1"]) == 1


def test_servers_of_two_releases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After an upgrade, the objects of the old release are in an old version, and the census of the
    file of a running server finds exactly these."""
    server = ServerProcess(tmp_path / "data", arguments=("--release", "x+1"))
    with server:
        for name in ("a", "b", "c"):
            create_widget(server, name)
        assert census_of_widgets(server, capsys)[0] == 0
        server.stop()
        server.arguments = ("--release", "x+2")
        server.start()
        create_widget(server, "d")
        code, found = census_of_widgets(server, capsys)
    assert code == 3
    assert found["target"]["source"] == "StorageVersion"
    assert found["target"]["version"] == "example.com/v2"
    assert [(row["apiVersion"], row["objects"], row["verdict"]) for row in found["stored"]] == [
        ("example.com/v1", 3, "stale"),
        ("example.com/v2", 1, "right"),
    ]


def create_widget(server: ServerProcess, name: str) -> None:
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
    status, body = server.request("POST", WIDGETS.format("v1"), widget)
    assert status == 201, body


def census_of_widgets(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    code = run(server.store, "widgets.example.com", "-o", "json")
    (found,) = json.loads(capsys.readouterr().out)["resources"]
    return code, found


def test_values_under_a_key(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A key in use gives exit code 3, with the keys on request; an unused one exit code 0."""
    assert run(store, "--key", "aescbc:key1", "--list-stale") == 3
    out = capsys.readouterr().out
    assert "aescbc:key1 is still in use: 1 of 7 objects" in out
    assert "/registry/secrets/default/a" in out
    assert run(store, "--key", "aescbc:key2") == 0
    out = capsys.readouterr().out
    assert "no value uses aescbc:key2: 7 objects of 3 resources" in out
    assert "until they are compacted" in out
    assert "a misspelt name has the same result" in out
    assert run(store, "--key", "kms:vault:k7", "-o", "json") == 3
    fields = json.loads(capsys.readouterr().out)
    assert (fields["verdict"], fields["left"], fields["key"]) == ("left", 1, "kms:vault:k7")
    assert fields["resources"][0]["keys"] == ["/registry/secrets/default/b"]
    assert run(store, "pods", "--key", "aescbc:key1", "-o", "json") == 0


def test_a_seal_without_a_key_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An encrypted value without a key name may use any key: exit code 4."""
    address = f"sqlite:{tmp_path / 'odd.db'}"
    uvloop.run(fill(address, {"/registry/secrets/default/a": b"k8s:enc:aesgcm:"}))
    assert run(address, "--key", "aesgcm:key1") == 4
    assert "undecided" in capsys.readouterr().out


def test_wrong_words_with_a_key(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--target cannot be used with --key, and the key name must be valid."""
    assert run(store, "--key", "key1", "--target", "pods=v1") == 2
    assert "--key" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(store, "--key", "aesgcm:")
