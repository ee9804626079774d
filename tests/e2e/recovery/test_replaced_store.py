"""A store is replaced under real servers: no acknowledged write is lost silently."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from restow.cli.main import main
from tests.support.child_process import ProcessFailed
from tests.support.etcd_process import EtcdMember, start_etcd
from tests.support.fire.objects import GADGETS, crd_of
from tests.support.server_process import ServerProcess

LEASE: Final = (
    *("--identity-lease-duration-seconds", "3"),
    *("--identity-lease-renew-interval-seconds", "0.5"),
)
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONFIG_MAPS: Final = "/api/v1/namespaces/default/configmaps"
WAIT_SECONDS_MAX: Final = 40.0
DOCTOR_SECONDS_MAX: Final = 15.0


def create(server: ServerProcess, name: str) -> tuple[int, str]:
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}}
    return server.request("POST", CONFIG_MAPS, body)


def names(server: ServerProcess, query: str = "") -> set[str] | int:
    """Returns the config maps that a server lists, or its status."""
    status, answer = server.get(CONFIG_MAPS + query)
    if status != 200:
        return status
    return {each["metadata"]["name"] for each in json.loads(answer)["items"]} - {"kube-root-ca.crt"}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"it does not come that {what}"
        time.sleep(0.1)


def refusal(server: ServerProcess) -> str:
    """Returns the message of a refused start."""
    with pytest.raises(ProcessFailed):
        server.start()
    server.kill()
    return server.log_file.read_text()


def findings(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    began = time.monotonic()
    main(["doctor", "--data-dir", str(data_dir), "-o", "json"])
    assert time.monotonic() - began < DOCTOR_SECONDS_MAX
    told = json.loads(capsys.readouterr().out)["findings"]
    return {each["check"]: each["level"] for each in told}


def test_a_file_that_is_replaced_under_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writes fail at once, reads and probes report it, and a restart does not damage the file."""
    server = ServerProcess(tmp_path / "one", arguments=LEASE)
    store = server.data_dir / "store.db"
    with server:
        assert create(server, "before")[0] == 201
        assert main(["backup", str(tmp_path / "b"), "--data-dir", str(server.data_dir)]) == 0
        shutil.copy(tmp_path / "b", store.with_name("new"))
        store.with_name("new").rename(store)
        status, answer = create(server, "after")
        assert status in (500, 503, 504), answer
        status, answer = create(server, "after-2")
        assert (status, "the store was replaced" in answer) == (503, True)
        assert names(server) == 503
        wait_for(lambda: server.get("/readyz")[0] == 500, "it is not ready")
        assert "was replaced by another file" in server.get("/readyz/store-identity")[1]
        capsys.readouterr()
        assert findings(server.data_dir, capsys)["store identity"] == "error"
        server.kill()
    assert findings(server.data_dir, capsys)["store identity"] == "error"
    text = refusal(server)
    assert "belongs to the earlier file" in text
    assert store.read_bytes() == (tmp_path / "b").read_bytes()


def test_a_file_with_two_names(tmp_path: Path) -> None:
    """No second server starts on the other name, and the first stops until that name is removed."""
    server = ServerProcess(tmp_path / "one", arguments=LEASE)
    with server:
        assert create(server, "before")[0] == 201
        other = tmp_path / "two"
        second = server.sibling(other, store=f"sqlite:{other / 'store.db'}", arguments=LEASE)
        (other / "store.db").hardlink_to(server.data_dir / "store.db")
        assert "2 hard links" in refusal(second)
        assert create(server, "between")[0] != 201
        (other / "store.db").unlink()
        wait_for(lambda: create(server, "after")[0] in (201, 409), "it writes again")


def test_a_store_that_lost_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A killed server's log is deleted: it starts again only after an operator has accepted it."""
    server = ServerProcess(tmp_path / "one", arguments=LEASE)
    with server:
        for number in range(15):
            assert create(server, f"a{number}")[0] == 201
        time.sleep(1.5)  # for a renewal
        server.kill()
    (server.data_dir / "store.db-wal").unlink()
    assert "is not the one that acknowledged this server's writes" in refusal(server)
    assert findings(server.data_dir, capsys)["store identity"] == "error"
    words = ["store", "accept", "--data-dir", str(server.data_dir)]
    assert main(words) == 2
    assert "confirm with --yes" in capsys.readouterr().err
    assert main([*words, "--yes"]) == 0
    with server:
        assert names(server) == set()
        assert create(server, "new")[0] == 201


@pytest.mark.parametrize("suffixes", [["-wal"], ["-wal", "-shm"]])
def test_a_log_that_is_deleted_under_a_server(
    suffixes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands refuse to read the file; a normal stop writes the log back, and nothing is lost."""
    server = ServerProcess(tmp_path / "one", arguments=LEASE)
    wanted = {f"a{number}" for number in range(15)}
    place = ["--data-dir", str(server.data_dir)]
    with server:
        assert {create(server, name)[0] for name in wanted} == {201}
        for suffix in suffixes:
            (server.data_dir / f"store.db{suffix}").unlink()
        assert create(server, "after")[0] != 201
        for words in (["store", "info"], ["store", "put", "/a", "1", "--yes"], ["census"]):
            assert main([*words, *place]) == 2
            assert "store.db-wal was deleted while it was in use" in capsys.readouterr().err
        assert main(["backup", str(tmp_path / "backup"), *place]) == 2
        capsys.readouterr()
        found = findings(server.data_dir, capsys)
        assert (found["store identity"], found["store"]) == ("error", "not seen")
        assert not (server.data_dir / "store.db-wal").exists()
        server.stop()
    with server:
        listed = names(server)
        assert isinstance(listed, set)
        assert listed >= wanted


def test_a_log_that_is_truncated_under_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor finishes within seconds, although every request to the server fails."""
    server = ServerProcess(tmp_path / "one", arguments=LEASE)
    with server:
        assert create(server, "before")[0] == 201
        os.truncate(server.data_dir / "store.db-wal", 0)
        assert create(server, "after")[0] != 201
        assert findings(server.data_dir, capsys)["store"] == "error"
        server.kill()


def restore_copy(member: EtcdMember, copy: Path) -> None:
    """Replaces the data of a stopped etcd by an earlier copy."""
    member.stop()
    data = data_of(member)
    shutil.rmtree(data)
    if copy.exists():
        shutil.copytree(copy, data)
    member.start()
    member.wait_healthy()


def data_of(member: EtcdMember) -> Path:
    (found,) = [word for word in member.arguments if word.startswith("--data-dir")]
    return Path(found.removeprefix("--data-dir="))


@pytest.mark.parametrize("is_emptied", [False, True])
def test_an_etcd_restored_from_an_older_copy(
    is_emptied: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No request is served from caches; after an operator has accepted it, all continues by
    itself."""
    with start_etcd(tmp_path / "etcd") as etcd:
        (member,) = etcd.members
        server = ServerProcess(tmp_path / "one", store=etcd.url, arguments=LEASE)
        with server:
            assert create(server, "old")[0] == 201
            member.stop()
            if not is_emptied:
                shutil.copytree(data_of(member), tmp_path / "copy")
            member.start()
            member.wait_healthy()
            wait_for(lambda: create(server, "new")[0] in (201, 409), "etcd answers again")
            for number in range(50):
                assert create(server, f"new-{number}")[0] == 201
            version = json.loads(create(server, "last")[1])["metadata"]["resourceVersion"]
            restore_copy(member, tmp_path / "copy")
            wait_for(lambda: names(server) == 503, "reads are refused")
            assert names(server, "?resourceVersion=0") == 503
            assert create(server, "lost")[0] != 201
            wait_for(lambda: server.get("/readyz")[0] == 500, "it is not ready")
            time.sleep(2)  # and it stays so
            assert names(server, "?resourceVersion=0") == 503
            assert "restow store accept" in server.get("/readyz/store-identity")[1]
            assert main(["store", "accept", "--store", etcd.url, "--yes"]) == 0
            capsys.readouterr()
            wait_for(lambda: create(server, "after")[0] in (201, 409), "it writes again")
            wait_for(lambda: server.get("/readyz")[0] == 200, "it is ready")
            assert names(server) == ({"after"} if is_emptied else {"old", "after"})
            assert names(server, "?resourceVersion=0") == names(server)
            _, answer = server.get(f"{CONFIG_MAPS}?watch=true&resourceVersion={version}")
            assert json.loads(answer.splitlines()[0])["object"]["code"] == 410


def test_etcd_keys_deleted_under_running_servers(tmp_path: Path) -> None:
    """It has no identity any more. No server joins it again, so that no write is acknowledged
    and no key is written to it, also between two renewals of the lease."""
    renewals = ("--identity-lease-renew-interval-seconds", "5")
    with start_etcd(tmp_path / "etcd") as etcd:
        server = ServerProcess(tmp_path / "one", store=etcd.url, arguments=renewals)
        with server:
            assert create(server, "old")[0] == 201
            assert server.request("POST", CRDS, crd_of(GADGETS, storage="v1"))[0] == 201
            custom = GADGETS.path_of("v1")
            wait_for(lambda: server.get(custom)[0] == 200, "the CRD is served")
            etcd.etcdctl("del", "/", "--prefix")
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            answers: list[int] = []
            while server.get("/readyz/store-identity")[0] == 200:
                body = {"metadata": {"name": f"late-{len(answers)}"}}
                answers.append(server.request("POST", "/api/v1/namespaces", body)[0])
                assert time.monotonic() < deadline, "it does not come that the store is refused"
            assert 201 not in answers
            reason = server.get("/readyz/store-identity")[1]
            # Found by the periodic check, or by the guard of a write, whichever comes first.
            found = ("it has no identity", "the identity of the store is missing")
            assert any(each in reason for each in found), reason
            left = etcd.etcdctl("get", "/", "--prefix", "--keys-only")
            assert "/registry/" not in left
            # Not 404, which would mean that the resource does not exist.
            assert server.get(custom)[0] == 503
