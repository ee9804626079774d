"""`restow store` on the command line: arguments, output and exit codes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.apiserver.store_guard import open_guarded
from restow.cli.main import main
from restow.client.lease_record import micro_time
from restow.localcluster.layout import Layout
from restow.localcluster.lock import locked
from restow.storage.interface import Key, Put, Transaction
from restow.storageversion.identity import SERVERS_PREFIX
from restow.storageversion.object_codec import LEASES_PREFIX


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new SQLite store, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return f"sqlite:{tmp_path / 'store.db'}"


def run(store: str, *words: str) -> int:
    return main(["store", words[0], "--store", store, *words[1:]])


def test_put_get_list(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stored value can be read, listed, and read at an earlier revision."""
    assert run(store, "put", "/a/1", "one") == 0
    assert run(store, "put", "/a/1", "two") == 0
    assert run(store, "put", "/b", "three") == 0
    capsys.readouterr()
    assert run(store, "get", "/a/1") == 0
    assert capsys.readouterr().out == "two\n"
    assert run(store, "get", "/a/1", "--at", "2") == 0
    assert capsys.readouterr().out == "one\n"
    assert run(store, "list", "/a/") == 0
    assert capsys.readouterr().out.splitlines() == ["       3  /a/1  two", "1 of 1 at revision 4"]


def test_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With -o json each line is a JSON object."""
    run(store, "put", "/a", "one")
    capsys.readouterr()
    run(store, "list", "-o", "json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"key": "/a", "revision": 2, "created": 2, "value": "one"}]


def test_guards(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A guard that does not hold gives exit code 1, and prints the current state."""
    assert run(store, "put", "/a", "one", "--if-absent") == 0
    assert run(store, "put", "/a", "two", "--if-absent") == 1
    assert "it is at revision 2" in capsys.readouterr().err
    assert run(store, "delete", "/a", "--if-revision", "7") == 1
    assert run(store, "delete", "/a", "--if-revision", "2") == 0
    assert run(store, "get", "/a") == 1
    assert "/a does not exist" in capsys.readouterr().err


def lease(age_seconds: int, duration_seconds: int) -> str:
    renewed = datetime.now(UTC) - timedelta(seconds=age_seconds)
    spec = {"renewTime": micro_time(renewed), "leaseDurationSeconds": duration_seconds}
    return json.dumps({"kind": "Lease", "spec": spec})


def put_server(store: str, name: str, value: str | None) -> None:
    """Register a server as a member of the cluster on this store, with this lease."""
    assert run(store, "put", f"{SERVERS_PREFIX}{name}", "{}", "--yes") == 0
    if value is not None:
        assert run(store, "put", f"{LEASES_PREFIX}{name}", value, "--yes") == 0


@pytest.mark.parametrize(
    ("value", "is_live"),
    [
        ((0, 15), True),
        ((300, 15), False),
        ((300, 3600), True),
        ("no JSON", True),
        ("[]", True),
        (None, True),
    ],
    ids=["fresh", "expired", "long", "garbage", "no object", "without a lease"],
)
def test_writes_past_servers_are_confirmed(
    store: str,
    capsys: pytest.CaptureFixture[str],
    value: tuple[int, int] | str | None,
    is_live: bool,
) -> None:
    """While a server uses the store, put and delete need a confirmation; reads do not."""
    put_server(store, "apiserver-a", lease(*value) if isinstance(value, tuple) else value)
    capsys.readouterr()
    for words in (["put", "/a", "b"], ["delete", "/a"]):
        assert run(store, *words) == (2 if is_live else 0)
        err = capsys.readouterr().err
        assert ("in use by apiserver-a" in err) is is_live
        assert ("--yes" in err) is is_live
        assert run(store, *words, "--yes") == 0
    for words in (["get", f"{SERVERS_PREFIX}apiserver-a"], ["list"], ["info"]):
        assert run(store, *words) == 0


def test_a_server_of_kubernetes_on_the_same_store(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no membership record, but a lease, whose encoding is not decoded here."""
    assert run(store, "put", f"{LEASES_PREFIX}apiserver-k", "k8s\0proto", "--yes") == 0
    assert run(store, "put", "/a", "b") == 2
    assert "in use by apiserver-k" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("n", 1), (None, 1)])
def test_a_terminal_is_asked(
    store: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str | None,
    code: int,
) -> None:
    """Only a yes writes; Ctrl-D counts as no."""

    def reply(question: str) -> str:
        assert question == "put /a? [y/N] "
        if answer is None:
            raise EOFError
        return answer

    put_server(store, "apiserver-a", None)
    monkeypatch.setattr("builtins.input", reply)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert run(store, "put", "/a", "b") == code
    capsys.readouterr()
    assert run(store, "get", "/a") == (0 if code == 0 else 1)


def test_a_supervisor_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`restow up` counts as a user, also while none of its servers runs."""
    with locked(Layout(tmp_path)):
        for flags in (
            ["--data-dir", str(tmp_path)],
            ["--store", f"sqlite:{tmp_path / 'store.db'}"],
        ):
            assert main(["store", "put", *flags, "/a", "b"]) == 2
            assert f"in use by `restow up` (process {os.getpid()})" in capsys.readouterr().err
    assert main(["store", "put", "--data-dir", str(tmp_path), "/a", "b"]) == 0


def test_the_shell_asks_too(store: str) -> None:
    """A line of the shell is confirmed like a command of its own."""
    put_server(store, "apiserver-a", None)
    done = subprocess.run(
        [sys.executable, "-m", "restow", "store", "shell", "--store", store],
        input="put /a 1\nput --yes /b 2\nlist /b\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "in use by apiserver-a" in done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[1:2]] == ["/b"]


def test_watch(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A watch from a revision prints all later changes, and exits after N events."""
    for words in (["put", "/a", "1"], ["put", "/a", "2"], ["delete", "/a"]):
        run(store, *words)
    capsys.readouterr()
    assert run(store, "watch", "/", "--after", "1", "--events", "3") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "created",
        "changed",
        "deleted",
    ]


def test_compacted_watch(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A watch from before a compaction prints the first possible revision."""
    run(store, "put", "/a", "1")
    run(store, "put", "/a", "2")
    assert run(store, "compact", "3") == 0
    assert run(store, "watch", "/", "--after", "1", "--events", "1") == 1
    assert "--after 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["put", "a", "1"], 2, "must begin with '/'"),
        (["get", "/a", "--at", "99"], 2, "beyond the current revision"),
        (["compact", "99"], 2, "beyond the current revision"),
    ],
)
def test_wrong_usage(
    store: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    """Wrong usage gives exit code 2 and one line with the reason."""
    assert run(store, "put", "/b", "1") == 0
    assert run(store, *words) == code
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("address", "code", "text"),
    [
        ("nonsense", 2, "invalid store address"),
        ("etcd://nowhere", 2, "is not HOST:PORT"),
        ("sqlite:/no/such/directory/x.db", 2, "/no/such/directory/x.db does not exist"),
    ],
)
def test_wrong_address(
    capsys: pytest.CaptureFixture[str], address: str, code: int, text: str
) -> None:
    """An invalid address is refused with the reason."""
    assert run(address, "info") == code
    assert text in capsys.readouterr().err


READS = (
    ["get", "/a"],
    ["list"],
    ["info"],
    ["watch", "--after", "99", "--events", "1"],
    ["compact", "1"],
    ["delete", "/a", "--yes"],
    ["accept", "--yes"],
)


@pytest.mark.parametrize("words", READS, ids=lambda words: words[0])
def test_only_put_creates_a_store(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A mistyped path is named, and nothing is created there or in the default directory."""
    assert run(store, *words) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'store.db'} does not exist" in error
    assert ("cannot be accepted" in error) is (words[0] == "accept")
    assert main(["store", *words]) == 2
    assert ".restow/store.db does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


async def serve_once(data_dir: Path, *, between: Callable[[], object] = lambda: None) -> None:
    """Let a server use the store in a directory, so that it writes its mark; then stop it."""
    address = f"sqlite:{data_dir / 'store.db'}"
    async with AsyncExitStack() as undo:
        storage, guard = await open_guarded(address, Runtime.system(), undo, data_dir=data_dir)
        assert guard is not None
        for number in range(20):
            await storage.commit(Transaction((), (Put(Key(f"/{number}"), b"1"),)))
        assert await guard.step()
        between()


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir() if each.is_file()}


@pytest.mark.parametrize("flags", ["--data-dir", "--store"])
def test_a_replaced_file_beside_the_log_of_the_earlier_one_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    """SQLite would copy pages of the old log into it; the message is that of `restow serve`."""
    tmp_path.chmod(0o700)
    store, log = tmp_path / "store.db", tmp_path / "store.db-wal"
    asyncio.run(serve_once(tmp_path))
    other = Path(shutil.copy(store, tmp_path / "other"))
    asyncio.run(serve_once(tmp_path, between=lambda: other.rename(store)))
    before = contents(tmp_path)
    place = str(tmp_path) if flags == "--data-dir" else f"sqlite:{store}"
    for words in (*READS, ["put", "/a", "b", "--yes"], ["shell"]):
        assert main(["store", words[0], flags, place, *words[1:]]) == 2
        assert f"{log} belongs to the earlier file" in capsys.readouterr().err
        assert contents(tmp_path) == before
    log.unlink()
    assert main(["store", "accept", flags, place, "--yes"]) == 0


def test_no_empty_store_in_place_of_a_deleted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers remember the store, so put does not create another one either."""
    tmp_path.chmod(0o700)
    asyncio.run(serve_once(tmp_path))
    (tmp_path / "store.db").unlink()
    before = contents(tmp_path)
    for words, text in (
        (["accept", "--yes"], "cannot be accepted"),
        (["put", "/a", "b", "--yes"], "is not the one that acknowledged this server's writes"),
    ):
        assert main(["store", words[0], "--data-dir", str(tmp_path), *words[1:]]) == 2
        assert text in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_shell_on_memory() -> None:
    """The shell runs several verbs on one open store, and continues after an error."""
    lines = "put /a 1\nfrobnicate\nget /nope\nlist /\ninfo\n"
    done = subprocess.run(
        [sys.executable, "-m", "restow", "store", "shell", "--store", "memory:"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "revision 2",
        "       2  /a  1",
        "1 of 1 at revision 2",
        "revision 2, 1 keys",
    ]
    assert "invalid choice: 'frobnicate'" in done.stderr


def test_up_shows_changes(tmp_path: Path) -> None:
    """`store up` prints that it is ready, shows changes of other processes, and stops cleanly."""
    command = [sys.executable, "-m", "restow", "store"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "up", "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: sqlite:")
        address = f"sqlite:{tmp_path / 'data' / 'store.db'}"
        subprocess.run([*command, "put", "/a", "1", "--store", address], check=True, timeout=30)
        shown = [process.stdout.readline() for _ in range(3)]
        assert shown[-1].split() == ["2", "created", "/a", "1"]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith("stopped\n")
        assert process.wait(10) == 0


def test_bytes_come_back_as_they_were(tmp_path: Path) -> None:
    """With --raw a binary value is written byte for byte."""
    command = [sys.executable, "-m", "restow", "store"]
    address = f"sqlite:{tmp_path / 'store.db'}"
    value = bytes(range(256)) * 3
    put = [*command, "put", "/a", "-", "--store", address]
    subprocess.run(put, input=value, check=True, timeout=30, capture_output=True)
    got = subprocess.run(
        [*command, "get", "/a", "--raw", "--store", address],
        check=True,
        timeout=30,
        capture_output=True,
    )
    assert got.stdout == value


def test_up_with_a_bad_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A data directory that cannot be created is one error line, not a traceback."""
    assert main(["store", "up", "--data-dir", str(tmp_path / ("long" * 100))]) == 3
    assert capsys.readouterr().err.startswith("restow store: ")
