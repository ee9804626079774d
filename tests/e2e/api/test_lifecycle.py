"""Stop and restart of a server: no acknowledged write is lost, and clients can continue."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api.raw_watch import RawWatch, connection_to
from tests.e2e.clients.python_client import client_of, events_until, k8s, watch
from tests.support.server_process import ServerProcess

STOPS_MAX = 3


@pytest.fixture(scope="module")
def restartable(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server beside the shared one."""
    with server.sibling(tmp_path_factory.mktemp("phoenix")) as sibling:
        yield sibling


@pytest.fixture
def running(restartable: ServerProcess) -> ServerProcess:
    """A server on the shared store that the test may stop; the next test restarts it."""
    if restartable.process is None:
        restartable.log_file.unlink()
        restartable.start()
    return restartable


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def make(server: ServerProcess, path: str, name: str) -> str:
    """Creates an object; returns its resource version."""
    code, answer = server.request("POST", path, {"metadata": {"name": name}})
    assert code == 201, answer
    return str(json.loads(answer)["metadata"]["resourceVersion"])


def test_graceful_stop(running: ServerProcess, namespace: str) -> None:
    """On SIGTERM the server first is not ready, then ends open watches cleanly, then exits with
    0."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    make(running, path, "one")
    said: list[tuple[int, str]] = []
    for _ in range(STOPS_MAX):
        with RawWatch(running, path) as watching:
            while watching.event()[1]["metadata"]["name"] != "one":
                pass
            said += stop_and_ask(running)
            assert watching.end() == "cleanly"
        assert running.wait_stopped() == 0
        if said:
            break
        running.start()  # it was not ready only briefly, and the poll was too late
    assert said[-1][0] == 500
    assert "[-]shutdown failed: reason withheld" in said[-1][1]
    assert running.log_tail().rstrip().endswith("stopped")
    assert "Traceback" not in running.log_tail()


def stop_and_ask(server: ServerProcess) -> list[tuple[int, str]]:
    """Stops a server; returns its readiness responses until it closes the connection."""
    probe = connection_to(server)
    said = []
    server.send_stop_signal()
    with suppress(OSError, http.client.HTTPException):
        while True:
            probe.request("GET", "/readyz?verbose")
            answer = probe.getresponse()
            said.append((answer.status, answer.read().decode()))
    probe.close()
    return said


def test_write_in_flight(running: ServerProcess, server: ServerProcess, namespace: str) -> None:
    """A write whose body is not complete when the server is stopped is finished."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = json.dumps(config("late")).encode()
    connection = connection_to(running)
    connection.putrequest("POST", path)
    for name, value in (
        ("Authorization", f"Bearer {running.token}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ):
        connection.putheader(name, value)
    connection.endheaders(body[:20])
    time.sleep(0.05)  # let it arrive
    running.send_stop_signal()
    time.sleep(0.4)  # by now it is draining
    connection.send(body[20:])
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    connection.close()
    assert running.wait_stopped() == 0
    assert server.get(f"{path}/late")[0] == 200


@pytest.mark.parametrize("manner", ["stop", "kill"])
def test_acknowledged_writes_stay(
    running: ServerProcess, server: ServerProcess, namespace: str, manner: str
) -> None:
    """Of the writes in flight when a server ends, those acknowledged are stored."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    acknowledged: list[str] = []

    def write(writer: int) -> None:
        connection = connection_to(running)
        headers = {"Authorization": f"Bearer {running.token}", "Content-Type": "application/json"}
        with suppress(OSError, http.client.HTTPException):
            for number in range(10_000):
                name = f"w{writer}-{number}"
                body = json.dumps({"metadata": {"name": name}})
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status == 201:
                    acknowledged.append(name)
        connection.close()

    writers = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for writer in writers:
        writer.start()
    while len(acknowledged) < 40:
        time.sleep(0.01)
    if manner == "stop":
        assert running.stop() == 0
    else:
        running.kill()
    for writer in writers:
        writer.join()
    items = json.loads(server.get(path)[1])["items"]
    assert set(acknowledged) <= {item["metadata"]["name"] for item in items}


def test_restart(running: ServerProcess, namespace: str) -> None:
    """After a restart the objects are there, and watches resume from an earlier version."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    make(running, path, "one")
    version = make(running, path, "two")
    with client_of(running.kubeconfig) as client:
        core = k8s.CoreV1Api(client)
        watching = watch.Watch()
        # The client reconnects by itself when a stream has ended.
        stream = watching.stream(core.list_namespaced_secret, namespace, resource_version=version)
        make(running, path, "three")
        assert next(stream)["object"].metadata.name == "three"
        running.restart()
        assert running.get(f"{path}/one")[0] == 200
        with RawWatch(running, f"{path}?resourceVersion={version}") as raw:
            make(running, path, "four")
            assert raw.events(2) == [("ADDED", "three"), ("ADDED", "four")]
        assert next(stream)["object"].metadata.name == "four"
        watching.stop()
        stream.close()


def test_compacted_history(tmp_path: Path) -> None:
    """A compacted version is refused with 410, and a list can be continued at the current one."""
    forgetful = ServerProcess(tmp_path / "forgetful", arguments=["--compaction-interval", "0.2"])
    with forgetful as server, client_of(server.kubeconfig) as client:
        core = k8s.CoreV1Api(client)
        for number in range(4):
            core.create_namespaced_config_map("default", config(f"c{number}"))
        page = core.list_namespaced_config_map("default", limit=2)
        core.delete_namespaced_config_map("c3", "default")
        token = page.metadata._continue
        expired = wait_for_expiry(core, token)
        assert expired["reason"] == "Expired"
        rest = core.list_namespaced_config_map(
            "default", limit=5, _continue=expired["metadata"]["continue"]
        )
        names = [each.metadata.name for each in [*page.items, *rest.items]]
        assert [name for name in names if name.startswith("c")] == ["c0", "c1", "c2"]
        client.rest_client.pool_manager.clear()  # or the server waits for the client to close
        server.restart()
        core.list_namespaced_config_map("default")
        with pytest.raises(k8s.ApiException) as refused:
            events_until(
                watch.Watch(), 1, core.list_namespaced_config_map, "default", resource_version="3"
            )
        assert refused.value.status == 410
        assert str(refused.value.reason).startswith("Expired: too old resource version: 3 (")


def wait_for_expiry(core: Any, token: str) -> dict[str, Any]:
    """Returns the Status that refuses a continued list, after some writes and some time."""
    for number in range(200):
        core.patch_namespaced_config_map("c0", "default", {"data": {"n": str(number)}})
        try:
            core.list_namespaced_config_map("default", limit=2, _continue=token)
        except k8s.ApiException as error:
            if error.status != 410:
                raise
            found: dict[str, Any] = json.loads(error.body)
            return found
        time.sleep(0.05)
    raise AssertionError("nothing is ever forgotten")
