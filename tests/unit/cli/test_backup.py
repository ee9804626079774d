"""`restow backup` and `restow restore` on the command line: arguments, output and exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from restow.apimachinery.names import GroupResource
from restow.cli.main import main
from restow.cli.store_arguments import size_text, store_of
from restow.localcluster.state import ClusterState, EtcdState, ServerState, write_state
from restow.storage.identity import IDENTITY_KEY
from restow.storage.interface import Key
from tests.support.encryption_files import write_encryption_file
from tests.unit.census.stores import as_json, fill, read_all
from tests.unit.encryption.keys_for_tests import keyring, local

OBJECTS = {f"/registry/pods/default/{number}": as_json("v1", "Pod") for number in range(20)}


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a store, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / ".restow"
    directory.mkdir()
    uvloop.run(fill(f"sqlite:{directory / 'store.db'}", OBJECTS))
    return directory


def restored(address: str) -> dict[str, bytes]:
    """The content of a restored store, without its identity."""
    found = uvloop.run(read_all(address))
    assert found.pop(IDENTITY_KEY)
    return found


def test_there_and_back(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default source is the cluster in this directory; the target directory is created."""
    assert main(["backup", "a.backup"]) == 0
    assert capsys.readouterr().out.startswith("a.backup: a copy of SQLite at revision 21, ")
    assert main(["restore", "a.backup", "--data-dir", "deep/new"]) == 0
    done, readable, keys, start = capsys.readouterr().out.splitlines()
    assert done == "sqlite:deep/new/store.db: 20 keys of revision 21, now at revision 1000000042"
    assert readable == "release builtin can read the backup"
    assert keys.startswith("next: copy the directory pki of the cluster to deep/new/pki")
    assert start == "next: restow up --data-dir deep/new"
    assert restored("sqlite:deep/new/store.db") == OBJECTS
    assert Path("deep/new").stat().st_mode & 0o777 == 0o700


def test_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-o json` prints the same as one JSON object."""
    store = f"sqlite:{data_dir / 'store.db'}"
    assert main(["backup", "a.backup", "--store", store, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    size = Path("a.backup").stat().st_size
    assert found == {"file": "a.backup", "form": "sqlite", "revision": 21, "bytes": size}
    words = ["restore", "a.backup", "--store", "sqlite:new.db", "--ahead", "9", "-o", "json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"builtin", "x", "x+3"} <= set(found.pop("readableReleases"))
    assert found == {
        "store": "sqlite:new.db",
        "keys": 20,
        "leftOut": 0,
        "backupRevision": 21,
        "revision": 51,  # and its new identity
        "release": "builtin",
        "notDecrypted": 0,
        "missingKeys": [],
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["backup", "a", "--data-dir", "nothing"], 2, "does not exist"),
        (["backup", "a", "--store", "nonsense"], 2, "cannot back up"),
        (["backup", "a", "--store", "etcd://127.0.0.1:1"], 1, "failed to connect"),
        (["backup", ".restow"], 2, "is a directory"),
        (["backup", "text"], 2, "--overwrite"),
        (["restore", "nothing", "--store", "sqlite:b"], 2, "cannot be read"),
        (["restore", "text", "--store", "sqlite:b"], 2, "is neither a copy of a restow store"),
        (["restore", ".restow/store.db"], 2, "already"),
        (["restore", ".restow/store.db", "--store", "sqlite:no/b"], 2, "is not a directory"),
    ],
)
def test_refusals(
    data_dir: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
) -> None:
    """Every error has the name of the command, the reason and an exit code."""
    Path("text").write_text("text" * 1000)
    assert main(words) == code
    err = capsys.readouterr().err
    assert err.startswith(f"restow {words[0]}: ")
    assert said in err


@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
def test_only_regular_files_are_written(
    data_dir: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    """A path that is not a regular file is refused and not changed, even with --overwrite."""
    os.mkfifo("pipe")
    Path("there").write_text("kept")
    Path("link").symlink_to("there")
    Path("dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        places = {
            "pipe": "not a regular file",
            "socket": "not a regular file",
            "/dev/null": "not a regular file",
            "link": "a symbolic link",
            "dangling": "a symbolic link",
            "/dev/stdout": "a symbolic link",
            ".restow": "a directory",
        }
        for name, said in places.items():
            before = os.lstat(name)
            assert main(["backup", name, *flags]) == 2
            assert f"restow backup: {name} is {said}" in capsys.readouterr().err
            assert os.lstat(name)[:3] == before[:3]
    assert Path("there").read_text() == "kept"


def test_a_backup_on_standard_output(data_dir: Path, tmp_path: Path) -> None:
    """`-` sends the verified backup to standard output, and all messages to standard error."""
    command = [sys.executable, "-m", "restow", "backup", "-"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    (tmp_path / "sent").write_bytes(done.stdout)
    assert done.stderr.startswith(b"-: a copy of SQLite at revision 21, ")
    assert not (tmp_path / "-").exists()
    assert main(["restore", "sent", "--store", "sqlite:new.db"]) == 0
    assert restored("sqlite:new.db") == OBJECTS
    failed = subprocess.run(
        [*command, "--data-dir", "nothing"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (failed.returncode, failed.stdout) == (2, b"")


def test_a_terminal_is_no_place_for_a_backup(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store, which contains Secrets, is not printed to a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["backup", "-"]) == 2
    out, err = capsys.readouterr()
    assert (out, "standard output is a terminal" in err) == ("", True)


@pytest.mark.parametrize("number", ["0", "-1", "many", "10000000000000000"])
def test_wrong_numbers(data_dir: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    """An invalid number of revisions is wrong usage."""
    with pytest.raises(SystemExit) as ended:
        main(["restore", ".restow/store.db", f"--ahead={number}"])
    assert ended.value.code == 2
    assert "is not a number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("inherited", ["default_int_handler", "SIG_IGN"])
def test_a_signal_leaves_nothing(
    data_dir: Path, tmp_path: Path, number: signal.Signals, inherited: str
) -> None:
    """A backup that is stopped leaves no file; one that is killed leaves no backup.

    Shells start background processes with SIGINT ignored; it works anyway.
    """
    # The copy waits until the command was cancelled.
    script = (
        "import signal, sys, threading, types\n"
        f"signal.signal(signal.SIGINT, signal.{inherited})\n"
        "from restow.storage import backup\n"
        "from restow.cli.main import main\n"
        "given_up = threading.Event()\n"
        "backup.threading = types.SimpleNamespace(Event=lambda: given_up)\n"
        "import restow.storage.sqlite.read_only as r\n"
        "whole = r.ReadOnlyFile.copy_into\n"
        "def copy(self, target, **rest):\n"
        "    print('begun', flush=True)\n"
        "    given_up.wait(60)\n"
        "    whole(self, target, **rest)\n"
        "r.ReadOnlyFile.copy_into = copy\n"
        "sys.exit(main(['backup', 'a.backup']))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode != 0
    assert not (tmp_path / "a.backup").exists()
    left = [each.name for each in tmp_path.iterdir() if each.name.endswith(".partial")]
    assert len(left) == (number is signal.SIGKILL)


def test_the_store_of_a_cluster(tmp_path: Path) -> None:
    """The store of `restow up` is found through its data directory."""
    assert store_of(tmp_path) == f"sqlite:{tmp_path / 'store.db'}"
    server = ServerState(port=1, release="x")
    member = EtcdState(client_port=2379, peer_port=1, health_port=1)
    for store, address in (
        ("sqlite", f"sqlite:{tmp_path / 'store.db'}"),
        ("etcd", "etcd://127.0.0.1:2379"),
        ("etcds://host:1?ca=x", "etcds://host:1?ca=x"),
    ):
        state = ClusterState(
            store=store, bind="127.0.0.1", front_port=1, servers=(server,), etcd=(member,)
        )
        write_state(tmp_path / "state.json", state)
        assert store_of(tmp_path) == address


def test_sizes() -> None:
    """Sizes have readable units."""
    assert size_text(1000) == "1,000 bytes"
    assert size_text(1536) == "1.5 KiB"
    assert size_text(5 * 1024**4) == "5,120.0 GiB"


SEALED = "/registry/secrets/default/a"


def encrypted_backup(data_dir: Path) -> None:
    """`a.backup`, with one value under the key `a`."""
    keys = keyring(("secrets", [local("aesgcm", "a")]))
    value = keys.seal(
        keys.write_key(GroupResource("", "secrets")), Key(SEALED), as_json("v1", "Secret")
    )
    store = f"sqlite:{data_dir / 'sealed.db'}"
    uvloop.run(fill(store, {**OBJECTS, SEALED: value}))
    assert main(["backup", "a.backup", "--store", store]) == 0


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("aesgcm:b", "1 value is encrypted with aesgcm key a, which keys.json does not contain"),
        ("aesgcm:a", "1 value is encrypted with aesgcm key a: keys.json has another secret for"),
        ("", "1 value is encrypted with aesgcm key a: pass the servers' file"),
    ],
)
def test_a_backup_with_values_that_no_key_opens(
    data_dir: Path, capsys: pytest.CaptureFixture[str], spec: str, told: str
) -> None:
    """The missing key is named as the next step, and no release is reported to read the backup."""
    encrypted_backup(data_dir)
    words = ["restore", "a.backup", "--data-dir", "new"]
    if spec:
        write_encryption_file(Path("keys.json"), spec)
        words += ["--encryption-provider-config", "keys.json"]
    capsys.readouterr()
    assert main(words) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[1].startswith(told)
    assert lines[2] == (
        "release builtin can read the other values; it is unknown which release can read the"
        " encrypted ones"
    )
    steps = [line for line in lines if line.startswith("next: ")]
    assert ("add aesgcm key a to keys.json" in steps[0]) is bool(spec)
    assert "can read the backup" not in out
    assert ("pass the servers' file" in out) is (not spec)


def test_missing_keys_in_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each missing key with its number of values, and whether its name has another secret."""
    encrypted_backup(data_dir)
    write_encryption_file(Path("keys.json"), "aesgcm:a")
    capsys.readouterr()
    words = ["--encryption-provider-config", "keys.json", "-o", "json"]
    assert main(["restore", "a.backup", "--data-dir", "new", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["notDecrypted"], found["missingKeys"]) == (
        1,
        [{"key": "aesgcm key a", "values": 1, "hasAnotherSecret": True}],
    )
