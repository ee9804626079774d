"""Two servers on one store: each sees the other's writes at once, and continues without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api.raw_watch import RawWatch
from tests.support.child_process import ProcessFailed
from tests.support.server_process import ServerProcess

ROUNDS = 20


@pytest.fixture(scope="module")
def other(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A second server beside the shared one."""
    with server.sibling(tmp_path_factory.mktemp("other")) as sibling:
        yield sibling


def call(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    """Returns the response to a request that must succeed."""
    code, answer = server.request(method, path, body)
    assert code in (200, 201), answer
    return json.loads(answer)


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def names(server: ServerProcess, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in call(server, "GET", path)["items"]]


def test_reads_see_writes_at_once(
    server: ServerProcess, other: ServerProcess, namespace: str
) -> None:
    """A write that one server acknowledged is in the other's next get and list."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(ROUNDS):
        one, two = (server, other) if number % 2 else (other, server)
        made = call(one, "POST", path, config(f"c{number}"))
        assert call(two, "GET", f"{path}/c{number}") == made
        changed = call(one, "PUT", f"{path}/c{number}", config(f"c{number}", n="1"))
        assert call(two, "GET", f"{path}/c{number}") == changed
        call(two, "DELETE", f"{path}/c{number}")
        assert f"c{number}" not in names(one, path)


def test_watches_see_writes(server: ServerProcess, other: ServerProcess, namespace: str) -> None:
    """A watch on either server has the writes of both, in one order."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    with RawWatch(server, path) as first, RawWatch(other, path) as second:
        for number in range(ROUNDS):
            call((server, other)[number % 2], "POST", path, {"metadata": {"name": f"s{number}"}})
        call(other, "DELETE", f"{path}/s0")
        expected = [("ADDED", f"s{number}") for number in range(ROUNDS)] + [("DELETED", "s0")]
        assert first.events(ROUNDS + 1) == expected
        assert second.events(ROUNDS + 1) == expected


def test_watch_continues_on_the_other_server(
    server: ServerProcess, other: ServerProcess, namespace: str
) -> None:
    """A watch started on one server continues on the other from the same version."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    version = call(server, "POST", path, {"metadata": {"name": "a"}})["metadata"]["resourceVersion"]
    call(server, "POST", path, {"metadata": {"name": "b"}})
    with RawWatch(other, f"{path}?resourceVersion={version}&labelSelector=!none") as watch:
        seen = watch.events(1)
        while seen[-1][1] != "b":  # the namespace's own account may be created in between
            seen += watch.events(1)
        assert ("ADDED", "a") not in seen


def test_continue_tokens(server: ServerProcess, other: ServerProcess, namespace: str) -> None:
    """A list started on one server continues on the other, at the same version."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for number in range(6):
        call(server, "POST", path, {"metadata": {"name": f"s{number}"}})
    page = call(server, "GET", f"{path}?limit=2")
    call(server, "DELETE", f"{path}/s5")
    found, turn = page["items"], 0
    while token := page["metadata"].get("continue"):
        turn += 1
        page = call((server, other)[turn % 2], "GET", f"{path}?limit=2&continue={token}")
        found += page["items"]
    assert [item["metadata"]["name"] for item in found] == [f"s{number}" for number in range(6)]


def test_no_update_is_lost(server: ServerProcess, other: ServerProcess, namespace: str) -> None:
    """Concurrent increments through both servers, with resource versions, add up."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    call(server, "POST", path, config("counter", n="0"))
    conflicts: list[int] = []

    def count_up(at: ServerProcess) -> None:
        for _ in range(ROUNDS):
            while True:
                found = call(at, "GET", f"{path}/counter")
                found["data"]["n"] = str(int(found["data"]["n"]) + 1)
                code, answer = at.request("PUT", f"{path}/counter", found)
                if code == 200:
                    break
                assert code == 409, answer
                conflicts.append(code)

    threads = [threading.Thread(target=count_up, args=[at]) for at in (server, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert call(other, "GET", f"{path}/counter")["data"]["n"] == str(2 * ROUNDS)


def test_killed_server(server: ServerProcess, namespace: str, tmp_path: Path) -> None:
    """When a server is killed, the others continue, with all writes that it acknowledged."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    with server.sibling(tmp_path / "doomed") as doomed, RawWatch(server, path) as watch:
        call(doomed, "POST", path, {"metadata": {"name": "last-will"}})
        with RawWatch(doomed, path) as cut_off:
            doomed.kill()
            assert cut_off.end() != "cleanly"
        assert call(server, "GET", f"{path}/last-will")
        call(server, "POST", path, {"metadata": {"name": "life-goes-on"}})
        assert watch.events(2) == [("ADDED", "last-will"), ("ADDED", "life-goes-on")]
        doomed.start()
        assert names(doomed, path) == ["last-will", "life-goes-on"]


def test_other_keys(server: ServerProcess, tmp_path: Path) -> None:
    """A server without the cluster's keys is refused by the store, and creates none of its own;
    so is one with keys of another cluster."""
    foreign = ServerProcess(tmp_path / "foreign", store=server.store)
    with pytest.raises(ProcessFailed) as refused:
        foreign.start()
    assert "restow serve: this store belongs to a cluster whose keys are not" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert not (foreign.data_dir / "pki").exists()
    with ServerProcess(tmp_path / "foreign"):
        pass  # it has created its keys, for a store of its own
    with pytest.raises(ProcessFailed) as refused:
        foreign.start()
    assert "restow serve: this store belongs to a cluster with other keys" in str(refused.value)
    assert "copy the directory 'pki'" in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_where_the_servers_are(server: ServerProcess, other: ServerProcess) -> None:
    """The endpoints of the service `kubernetes` are the addresses of both servers."""
    found = call(server, "GET", "/api/v1/namespaces/default/endpoints/kubernetes")
    ports = {port["port"] for subset in found["subsets"] for port in subset["ports"]}
    assert {server.port, other.port} <= ports
