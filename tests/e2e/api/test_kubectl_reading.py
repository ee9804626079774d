"""kubectl's commands that read, with every kubectl, on SQLite and on etcd."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.e2e.api.conftest import EVE_TOKEN
from tests.e2e.api.kubectl import Kubectl
from tests.support.server_process import ServerProcess

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"tier": "front"}},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "nginx", "image": "nginx:1.25"}]},
        },
    },
}


def post(server: ServerProcess, path: str, body: object) -> Any:
    """Creates an object without kubectl; returns it."""
    code, answer = server.request("POST", path, body)
    assert code == 201, answer
    return json.loads(answer)


def make_config(kubectl: Kubectl, name: str, **metadata: object) -> Any:
    """A ConfigMap with two keys."""
    body = {"metadata": {"name": name, **metadata}, "data": {"a": "1", "b": "2"}}
    return post(kubectl.server, f"/api/v1/namespaces/{kubectl.namespace}/configmaps", body)


def make_deployment(kubectl: Kubectl) -> Any:
    path = f"/apis/apps/v1/namespaces/{kubectl.namespace}/deployments"
    return post(kubectl.server, path, DEPLOYMENT)


def make_event(kubectl: Kubectl, about: dict[str, Any]) -> None:
    """An Event about an object."""
    metadata = about["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    body = {
        "metadata": {"generateName": f"{name}-", "namespace": namespace},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": name,
            "namespace": namespace,
            "uid": metadata["uid"],
        },
        "reason": "Looked",
        "message": f"looked at {name}",
        "type": "Normal",
        "source": {"component": "e2e"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    post(kubectl.server, f"/api/v1/namespaces/{namespace}/events", body)


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_version_and_cluster(kubectl_in_default: Kubectl) -> None:
    """kubectl can parse the server's version, and shows its address."""
    found = kubectl_in_default.json("version", "-o", "json")["serverVersion"]
    assert found["gitVersion"].startswith("v1.36.")
    text = kubectl_in_default.run("cluster-info")
    assert f"is running at {kubectl_in_default.server.url}" in text


def test_get_tables(kubectl: Kubectl) -> None:
    """`get` prints the columns of the kind, more with -o wide, and label columns on request."""
    make_config(kubectl, "one", labels={"tier": "front"})
    make_config(kubectl, "two")
    head, one = table(kubectl.run("get", "configmaps", "-l", "tier=front"))
    assert head == ["NAME", "DATA", "AGE"]
    assert one[:2] == ["one", "2"]
    names = [row[0] for row in table(kubectl.run("get", "cm", "--no-headers"))]
    assert {"one", "two"} <= set(names)
    row = table(kubectl.run("get", "cm/one", "--show-labels", "--no-headers"))[0]
    assert row[-1] == "tier=front"
    make_deployment(kubectl)
    head, row = table(kubectl.run("get", "deploy", "-o", "wide"))
    assert head == [
        "NAME",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "AGE",
        "CONTAINERS",
        "IMAGES",
        "SELECTOR",
    ]
    assert [row[0], row[1], row[5], row[6], row[7]] == [
        "web",
        "0/3",
        "nginx",
        "nginx:1.25",
        "app=web",
    ]
    everywhere = table(kubectl.run("get", "deployments", "--all-namespaces"))
    assert everywhere[0][:2] == ["NAMESPACE", "NAME"]
    assert [kubectl.namespace, "web"] in [row[:2] for row in everywhere]


def test_get_documents(kubectl: Kubectl) -> None:
    """`get` prints whole objects as JSON and YAML, names, and JSON paths."""
    make_config(kubectl, "one")
    as_json = kubectl.json("get", "configmap", "one", "-o", "json")
    assert (as_json["kind"], as_json["data"]) == ("ConfigMap", {"a": "1", "b": "2"})
    as_yaml = yaml.safe_load(kubectl.run("get", "configmap", "one", "-o", "yaml"))
    assert as_yaml["metadata"]["uid"] == as_json["metadata"]["uid"]
    listed = kubectl.json("get", "configmaps,secrets", "-o", "json")
    assert "one" in [item["metadata"]["name"] for item in listed["items"]]
    assert "configmap/one" in kubectl.run("get", "configmaps", "-o", "name").split()
    assert kubectl.run("get", "cm", "one", "-o", "jsonpath={.data.b}") == "2"
    by_name = kubectl.run("get", "cm", "--field-selector", "metadata.name=one", "-o", "name")
    assert by_name.split() == ["configmap/one"]


def test_get_in_chunks(kubectl: Kubectl) -> None:
    """`get --chunk-size` follows the pages of a list to its end."""
    for number in range(5):
        make_config(kubectl, f"c{number}", labels={"paged": "yes"})
    words = ("get", "cm", "-l", "paged=yes", "--chunk-size=2", "-o", "name")
    assert kubectl.run(*words).split() == [f"configmap/c{number}" for number in range(5)]


def test_get_watch(kubectl: Kubectl) -> None:
    """`get -w` prints existing objects, then a row for each change, then the deletion."""
    path = f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    make_config(kubectl, "first", labels={"seen": "yes"})
    with kubectl.start("get", "configmaps", "-w", "-l", "seen=yes", "-o", "name") as watch:
        watch.wait_for("configmap/first")
        make_config(kubectl, "second", labels={"seen": "yes"})
        make_config(kubectl, "hidden", labels={"seen": "no"})
        watch.wait_for("configmap/second")
        kubectl.server.request("DELETE", f"{path}/first")
        kubectl.server.request("DELETE", f"{path}/second")
        make_config(kubectl, "third", labels={"seen": "yes"})
        watch.wait_for("configmap/third")
        names = ["first", "second", "first", "second", "third"]
        assert watch.lines == [f"configmap/{name}" for name in names]
    with kubectl.start("get", "configmap", "third", "-w", "--no-headers") as watch:
        watch.wait_for("third")
        body = {"metadata": {"name": "third"}, "data": {"x": "y"}}
        kubectl.server.request("PUT", f"{path}/third", body)
        watch.wait_for("third   1")


def test_describe(kubectl: Kubectl) -> None:
    """`describe` shows an object, related objects, and its events."""
    make_config(kubectl, "one", annotations={"note": "hello"})
    text = kubectl.run("describe", "configmap", "one")
    assert "Namespace:    " + kubectl.namespace in text
    assert "note: hello" in text
    make_event(kubectl, make_deployment(kubectl))
    text = kubectl.run("describe", "deployment", "web")
    assert "Replicas:               3 desired | 0 updated | 0 total" in text
    assert "StrategyType:           RollingUpdate" in text
    assert "Looked" in text.partition("Events:")[2]
    text = kubectl.run("describe", "namespace", kubectl.namespace)
    assert "Status:       Active" in text
    assert "No resource quota." in text


def test_events(kubectl: Kubectl) -> None:
    """Events are listed with their objects, by `events` if there is such a command."""
    make_event(kubectl, make_config(kubectl, "one"))
    text = kubectl.run("get", "events")
    assert table(text)[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "configmap/one" in text
    if kubectl.minor >= 26:
        text = kubectl.run("events", "--for", "configmap/one")
    assert "looked at one" in text
    other_group = kubectl.run("get", "events.events.k8s.io", "-o", "jsonpath={.items[0].note}")
    assert other_group == "looked at one"


def test_explain(kubectl_in_default: Kubectl) -> None:
    """`explain` shows the documentation of a kind and of a field."""
    text = kubectl_in_default.run("explain", "deployment", "--recursive")
    kind = next(line for line in text.splitlines() if line.startswith("KIND:"))
    assert kind.split() == ["KIND:", "Deployment"]
    assert "imagePullSecrets" in text
    text = kubectl_in_default.run("explain", "configmap.immutable")
    assert "immutable" in text
    assert "<boolean>" in text


def test_discovery(kubectl_in_default: Kubectl) -> None:
    """`api-resources` and `api-versions` list the served resources and versions."""
    rows = table(kubectl_in_default.run("api-resources", "--no-headers"))
    assert ["configmaps", "cm", "v1", "true", "ConfigMap"] in rows
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows
    short = kubectl_in_default.run(
        "api-resources", "--api-group=rbac.authorization.k8s.io", "-o", "name"
    )
    assert sorted(short.split()) == [
        f"{plural}.rbac.authorization.k8s.io"
        for plural in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
    ]
    versions = kubectl_in_default.run("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "coordination.k8s.io/v1"} <= set(versions)


def test_get_all(kubectl: Kubectl) -> None:
    """`get all` shows the objects of the kinds in that category."""
    make_deployment(kubectl)
    assert kubectl.run("get", "all", "-o", "name").split() == ["deployment.apps/web"]


def test_auth(kubectl: Kubectl) -> None:
    """`auth can-i` answers yes for the administrator and no for eve; `auth whoami` shows the
    user."""
    assert kubectl.run("auth", "can-i", "create", "configmaps").strip() == "yes"
    assert kubectl.run("auth", "can-i", "get", "/metrics").strip() == "yes"
    said = kubectl.try_run("auth", "can-i", "list", "secrets", "--token", EVE_TOKEN)
    assert (said.code, said.out.strip()) == (1, "no")
    rules = table(kubectl.run("auth", "can-i", "--list", "--no-headers"))
    assert ["*.*", "[]", "[]", "[*]"] in rules
    if kubectl.minor >= 28:
        eve = json.loads(kubectl.run("auth", "whoami", "-o", "json", "--token", EVE_TOKEN))
        assert eve["status"]["userInfo"] == {
            "username": "eve",
            "uid": "1001",
            "groups": ["readers", "writers", "system:authenticated"],
        }


def test_client_certificate(kubectl_in_default: Kubectl) -> None:
    """The second context of the kubeconfig authenticates the administrator by a certificate."""
    words = ("--context", "restow-certificate", "get", "namespace", "default", "-o", "name")
    assert kubectl_in_default.run(*words).strip() == "namespace/default"
