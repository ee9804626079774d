"""Two servers and one CRD: both serve it, apply its changes, and stop serving it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.crds import certificates, small, workflows
from tests.crds.building import AGGREGATED, CRDS, Family, Json, Maker, integer
from tests.support.server_process import ServerProcess

SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.01
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
ROUNDS: Final = 5


def call(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    """Returns the response to a request that must succeed."""
    headers = MERGE if method == "PATCH" else None
    code, answer = server.request(method, path, body, headers=headers)
    assert code in (200, 201), (path, answer)
    return json.loads(answer)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(POLL_SECONDS)


def define(server: ServerProcess, family: Family) -> None:
    """Creates a CRD and waits until it is established, no longer."""
    call(server, "POST", CRDS, family.definition)
    until(lambda: is_established(server, family), f"{family.name} established")


def is_established(server: ServerProcess, family: Family) -> bool:
    status = call(server, "GET", f"{CRDS}/{family.name}").get("status", {})
    return any(
        (each["type"], each["status"]) == ("Established", "True")
        for each in status.get("conditions") or []
    )


def test_served_by_both(server: ServerProcess, other: ServerProcess, group: str) -> None:
    """Once a CRD is established, each server serves it and lists it in discovery, without delay."""
    for number in range(ROUNDS):
        family = small.widget(f"r{number}.{group}")
        one, two = (server, other) if number % 2 else (other, server)
        define(one, family)
        for each in (two, one):
            names = [found["name"] for found in call(each, "GET", "/apis")["groups"]]
            assert family.group in names
            resources = call(each, "GET", f"/apis/{family.group}/v1")["resources"]
            assert [found["name"] for found in resources] == ["widgets"]
            assert f"apis/{family.group}/v1" in call(each, "GET", "/openapi/v3")["paths"]
            code, answer = each.request("GET", "/apis", headers={"Accept": AGGREGATED})
            groups = {found["metadata"]["name"] for found in json.loads(answer)["items"]}
            assert (code, family.group in groups) == (200, True)
            paths = call(each, "GET", "/openapi/v2")["paths"]
            assert f"/apis/{family.group}/v1/namespaces/{{namespace}}/widgets" in paths
        made = call(two, "POST", family.path(), family.good[0])
        assert call(one, "GET", family.path("a")) == made


def test_objects_of_both(server: ServerProcess, other: ServerProcess, group: str) -> None:
    """An object that one server writes can be read from the other at once, with the same
    defaults."""
    family = certificates.certificate(group)
    define(server, family)
    for number, (one, two) in enumerate([(server, other), (other, server)] * ROUNDS):
        obj = family.good[0] | {"metadata": {"name": f"c{number}"}}
        made = call(one, "POST", family.path(), obj)
        assert call(two, "GET", family.path(f"c{number}")) == made
        changed = call(two, "PATCH", family.path(f"c{number}"), {"spec": {"isCA": True}})
        assert call(one, "GET", family.path(f"c{number}")) == changed
    assert len(call(other, "GET", family.path())["items"]) == 2 * ROUNDS


def test_change_reaches_both(server: ServerProcess, other: ServerProcess, group: str) -> None:
    """A schema that is changed through one server is soon the schema of both."""
    family = small.widget(group)
    define(server, family)
    call(server, "POST", family.path(), family.good[0])

    found = call(server, "GET", f"{CRDS}/{family.name}")
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["weight"] = integer(default=9)
    call(server, "PUT", f"{CRDS}/{family.name}", found)
    for each in (server, other):
        until(
            lambda each=each: (  # type: ignore[misc]
                call(each, "GET", family.path("a"))["spec"].get("weight") == 9
            ),
            "the new default",
        )


def test_deletion_reaches_both(server: ServerProcess, other: ServerProcess, group: str) -> None:
    """A deleted CRD is soon removed from both, with its group."""
    family = small.widget(group)
    define(server, family)
    for number, each in enumerate((server, other)):
        call(each, "POST", family.path(), Maker(group, "v1", "Widget").good(f"w{number}"))
    assert other.request("DELETE", f"{CRDS}/{family.name}")[0] == 200
    for each in (server, other):
        for path in (f"{CRDS}/{family.name}", family.path(), f"/apis/{group}"):
            until(lambda each=each, path=path: each.get(path)[0] == 404, path)  # type: ignore[misc]
    define(other, family)
    for each in (server, other):
        assert call(each, "GET", family.path())["items"] == []


def test_storage_versions(server: ServerProcess, other: ServerProcess, group: str) -> None:
    """Both servers report how they encode a custom resource; the report is deleted with it."""
    family = workflows.workflow_template(group)
    define(server, family)
    path = f"/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.{family.plural}"
    found = call(other, "GET", path)
    entries: list[Json] = found["status"]["storageVersions"]
    assert len(entries) == 2
    assert {each["encodingVersion"] for each in entries} == {f"{group}/v1alpha1"}
    assert found["status"]["commonEncodingVersion"] == f"{group}/v1alpha1"
    assert server.request("DELETE", f"{CRDS}/{family.name}")[0] == 200
    until(lambda: server.get(path)[0] == 404, "the report is gone")


def test_third_server(server: ServerProcess, group: str, tmp_path_factory: Any) -> None:
    """A server that starts later serves all CRDs when it becomes ready."""
    family = small.widget(group)
    define(server, family)
    made = call(server, "POST", family.path(), family.good[0])
    with server.sibling(tmp_path_factory.mktemp("third")) as third:
        assert call(third, "GET", family.path("a")) == made
        call(third, "PATCH", family.path("a"), {"spec": {"size": 2}})
        late = small.scalable(f"late.{group}")
        define(server, late)
        assert call(third, "GET", late.path())["items"] == []
        assert third.stop() == 0
    after = small.cluster_wide(f"after.{group}")
    define(server, after)
