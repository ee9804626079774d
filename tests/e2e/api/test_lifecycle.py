"""How a server stops and comes back: nothing acknowledged is lost, and clients can go on."""

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
def phoenix(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server beside the shared one."""
    with server.sibling(tmp_path_factory.mktemp("phoenix")) as sibling:
        yield sibling


@pytest.fixture
def mortal(phoenix: ServerProcess) -> ServerProcess:
    """A server on the shared store that the test may end; the next one gets it running again."""
    if phoenix.process is None:
        phoenix.log_file.unlink()
        phoenix.start()
    return phoenix


def config(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def make(server: ServerProcess, path: str, name: str) -> str:
    """Create an object; its resource version."""
    code, answer = server.request("POST", path, {"metadata": {"name": name}})
    assert code == 201, answer
    return str(json.loads(answer)["metadata"]["resourceVersion"])


def test_graceful_stop(mortal: ServerProcess, namespace: str) -> None:
    """On SIGTERM it is first not ready, then ends open watches cleanly, then exits with 0."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    make(mortal, path, "one")
    said: list[tuple[int, str]] = []
    for _ in range(STOPS_MAX):
        with RawWatch(mortal, path) as watching:
            while watching.event()[1]["metadata"]["name"] != "one":
                pass
            said += stop_and_ask(mortal)
            assert watching.end() == "cleanly"
        assert mortal.wait_stopped() == 0
        if said:
            break
        mortal.start()  # it was not ready for a moment only, and we were late
    assert said[-1][0] == 500
    assert "[-]shutdown failed: reason withheld" in said[-1][1]
    assert mortal.log_tail().rstrip().endswith("stopped")
    assert "Traceback" not in mortal.log_tail()


def stop_and_ask(server: ServerProcess) -> list[tuple[int, str]]:
    """Tell a server to stop; what it says about being ready until it hangs up."""
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


def test_write_in_flight(mortal: ServerProcess, server: ServerProcess, namespace: str) -> None:
    """A write whose body is still on its way when the server is told to stop is finished."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = json.dumps(config("late")).encode()
    connection = connection_to(mortal)
    connection.putrequest("POST", path)
    for name, value in (
        ("Authorization", f"Bearer {mortal.token}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ):
        connection.putheader(name, value)
    connection.endheaders(body[:20])
    time.sleep(0.05)  # let it arrive
    mortal.send_stop_signal()
    time.sleep(0.4)  # it drains by now
    connection.send(body[20:])
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    connection.close()
    assert mortal.wait_stopped() == 0
    assert server.get(f"{path}/late")[0] == 200


@pytest.mark.parametrize("manner", ["stop", "kill"])
def test_acknowledged_writes_stay(
    mortal: ServerProcess, server: ServerProcess, namespace: str, manner: str
) -> None:
    """Of the writes that were under way when a server ends, those acknowledged are there."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    acknowledged: list[str] = []

    def write(writer: int) -> None:
        connection = connection_to(mortal)
        headers = {"Authorization": f"Bearer {mortal.token}", "Content-Type": "application/json"}
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
        assert mortal.stop() == 0
    else:
        mortal.kill()
    for writer in writers:
        writer.join()
    items = json.loads(server.get(path)[1])["items"]
    assert set(acknowledged) <= {item["metadata"]["name"] for item in items}


def test_restart(mortal: ServerProcess, namespace: str) -> None:
    """After a restart the objects are there, and watches go on from a version of before."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    make(mortal, path, "one")
    version = make(mortal, path, "two")
    with client_of(mortal.kubeconfig) as client:
        core = k8s.CoreV1Api(client)
        watching = watch.Watch()
        # The client comes back by itself when a stream has ended.
        stream = watching.stream(core.list_namespaced_secret, namespace, resource_version=version)
        make(mortal, path, "three")
        assert next(stream)["object"].metadata.name == "three"
        mortal.restart()
        assert mortal.get(f"{path}/one")[0] == 200
        with RawWatch(mortal, f"{path}?resourceVersion={version}") as raw:
            make(mortal, path, "four")
            assert raw.events(2) == [("ADDED", "three"), ("ADDED", "four")]
        assert next(stream)["object"].metadata.name == "four"
        watching.stop()
        stream.close()


def test_forgotten_history(tmp_path: Path) -> None:
    """What compaction has forgotten is refused with 410, and a list can be gone on with."""
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
        client.rest_client.pool_manager.clear()  # or the server waits for us to hang up
        server.restart()
        core.list_namespaced_config_map("default")
        with pytest.raises(k8s.ApiException) as refused:
            events_until(
                watch.Watch(), 1, core.list_namespaced_config_map, "default", resource_version="3"
            )
        assert refused.value.status == 410
        assert str(refused.value.reason).startswith("Expired: too old resource version: 3 (")


def wait_for_expiry(core: Any, token: str) -> dict[str, Any]:
    """The Status by which a continued list is refused, after some writes and some time."""
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
