"""kubectl's commands that write, with every kubectl, on SQLite and on etcd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.api.kubectl import Kubectl


def config(name: str = "one", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def data_of(kubectl: Kubectl, name: str = "one") -> Any:
    return kubectl.json("get", "configmap", name, "-o", "json").get("data")


def path_of(kubectl: Kubectl, resource: str, name: str = "") -> str:
    prefix = "apis/apps/v1" if resource == "deployments" else "api/v1"
    return f"/{prefix}/namespaces/{kubectl.namespace}/{resource}" + (f"/{name}" if name else "")


def make(kubectl: Kubectl, name: str = "one", **metadata: object) -> None:
    """Creates a ConfigMap, without kubectl."""
    body = {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}
    code, answer = kubectl.server.request("POST", path_of(kubectl, "configmaps"), body)
    assert code == 201, answer


def test_create_by_arguments(kubectl: Kubectl) -> None:
    """`create KIND` creates objects; newer kubectl sends them as protobuf."""
    run = kubectl.run
    assert run("create", "configmap", "c", "--from-literal=k=v", "--from-literal=e=").strip() == (
        "configmap/c created"
    )
    assert data_of(kubectl, "c") == {"k": "v", "e": ""}
    run("create", "secret", "generic", "s", "--from-literal=password=hunter2")
    secret = kubectl.json("get", "secret", "s", "-o", "json")
    assert (secret["type"], secret["data"]) == ("Opaque", {"password": "aHVudGVyMg=="})
    run("create", "serviceaccount", "robot")
    run("create", "role", "reader", "--verb=get,list", "--resource=configmaps,deployments.apps")
    rules = kubectl.json("get", "role", "reader", "-o", "json")["rules"]
    assert {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]} in rules
    account = f"--serviceaccount={kubectl.namespace}:robot"
    run("create", "rolebinding", "robots", "--role=reader", account)
    run("create", "deployment", "web", "--image=nginx:1.25")
    spec = kubectl.json("get", "deployment", "web", "-o", "json")["spec"]
    assert (spec["replicas"], spec["selector"]) == (1, {"matchLabels": {"app": "web"}})
    assert spec["template"]["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    run("create", "job", "once", "--image=busybox", "--", "true")
    run("create", "quota", "small", "--hard=configmaps=10")
    hard = kubectl.json("get", "quota", "small", "-o", "json")["spec"]["hard"]
    assert hard == {"configmaps": "10"}


def test_apply(kubectl: Kubectl) -> None:
    """`apply` creates, changes, removes dropped fields, and leaves equal objects unchanged."""
    assert kubectl.apply(config(a="1", b="2")) == "configmap/one created"
    kubectl.server.request(
        "PATCH",
        path_of(kubectl, "configmaps", "one"),
        {"data": {"others": "stay"}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert kubectl.apply(config(a="changed")) == "configmap/one configured"
    assert data_of(kubectl) == {"a": "changed", "others": "stay"}
    assert kubectl.apply(config(a="changed")) == "configmap/one unchanged"
    both = {"apiVersion": "v1", "kind": "List", "items": [config(a="2"), config("two", b="1")]}
    assert kubectl.apply(both).splitlines() == [
        "configmap/one configured",
        "configmap/two created",
    ]


def test_apply_lists_by_key(kubectl: Kubectl) -> None:
    """`apply` merges the containers of a pod template by their names."""
    kubectl.apply(deployment(("web", "nginx:1"), ("helper", "busybox:1")))
    kubectl.run("set", "image", "deployment/web", "helper=busybox:2")
    kubectl.apply(deployment(("web", "nginx:2"), ("third", "alpine:1")))
    spec = kubectl.json("get", "deployment", "web", "-o", "json")["spec"]["template"]["spec"]
    found = {each["name"]: each["image"] for each in spec["containers"]}
    assert found == {"web": "nginx:2", "third": "alpine:1"}


def deployment(*containers: tuple[str, str]) -> dict[str, Any]:
    pod = {"containers": [{"name": name, "image": image} for name, image in containers]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
    }


def test_dry_run_and_diff(kubectl: Kubectl) -> None:
    """`--dry-run=server` and `diff` show the result, and change nothing."""
    assert kubectl.apply(config(a="1"), "--dry-run=server") == (
        "configmap/one created (server dry run)"
    )
    assert "NotFound" in kubectl.fail("get", "configmap", "one")
    kubectl.apply(config(a="1"))
    said = kubectl.try_run("diff", "-f", "-", stdin=json.dumps(config(a="2")))
    assert said.code == 1, said
    assert '-  a: "1"' in said.out
    assert '+  a: "2"' in said.out
    assert kubectl.apply(config(a="3"), "--dry-run=server") == (
        "configmap/one configured (server dry run)"
    )
    assert data_of(kubectl) == {"a": "1"}
    assert kubectl.try_run("diff", "-f", "-", stdin=json.dumps(config(a="1"))).code == 0


def test_create_and_replace_files(kubectl: Kubectl, tmp_path: Path) -> None:
    """`create -f` and `replace -f` accept YAML files; `replace --force` recreates the object."""
    file = tmp_path / "one.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: '1'}\n")
    assert kubectl.run("create", "-f", str(file)).strip() == "configmap/one created"
    file.write_text(file.read_text().replace("a: '1'", "b: '2'"))
    assert kubectl.run("replace", "-f", str(file)).strip() == "configmap/one replaced"
    assert data_of(kubectl) == {"b": "2"}
    before = kubectl.run("get", "cm", "one", "-o", "jsonpath={.metadata.uid}")
    kubectl.run("replace", "--force", "-f", str(file))
    assert kubectl.run("get", "cm", "one", "-o", "jsonpath={.metadata.uid}") != before


def test_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    """`edit` opens an editor on the object, and sends the changes."""
    make(kubectl)
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/a: "1"/a: "edited"/\' "$1"\n')
    editor.chmod(0o755)
    editing = {"EDITOR": str(editor), "KUBE_EDITOR": str(editor)}
    assert kubectl.run("edit", "configmap", "one", env=editing).strip() == "configmap/one edited"
    assert data_of(kubectl) == {"a": "edited"}
    said = kubectl.try_run("edit", "configmap", "one", env=editing)
    assert "no changes made" in said.out + said.err


def test_patch(kubectl: Kubectl) -> None:
    """`patch` supports its three types, and reports a patch without changes."""
    make(kubectl)
    patch = ("patch", "configmap", "one")
    assert kubectl.run(*patch, "-p", '{"data":{"b":"2"}}').strip() == "configmap/one patched"
    kubectl.run(*patch, "--type=merge", "-p", '{"data":{"a":null}}')
    assert data_of(kubectl) == {"b": "2"}
    operations = [
        {"op": "test", "path": "/data/b", "value": "2"},
        {"op": "add", "path": "/data/c", "value": "3"},
    ]
    kubectl.run(*patch, "--type=json", "-p", json.dumps(operations))
    assert data_of(kubectl) == {"b": "2", "c": "3"}
    again = kubectl.run(*patch, "--type=merge", "-p", '{"data":{"b":"2"}}')
    assert again.strip() == "configmap/one patched (no change)"


def test_label_and_annotate(kubectl: Kubectl) -> None:
    """Labels and annotations are set, changed only with --overwrite, and removed."""
    make(kubectl)
    kubectl.run("label", "configmap", "one", "tier=front", "old=yes")
    assert "'tier' already has a value (front)" in kubectl.fail("label", "cm", "one", "tier=back")
    kubectl.run("label", "configmap", "one", "--overwrite", "tier=back", "old-")
    kubectl.run("annotate", "configmap", "one", "note=a longer text")
    metadata = kubectl.json("get", "cm", "one", "-o", "json")["metadata"]
    assert metadata["labels"] == {"tier": "back"}
    assert metadata["annotations"] == {"note": "a longer text"}
    assert kubectl.run("get", "cm", "-l", "tier in (back)", "-o", "name") == "configmap/one\n"


def test_scale(kubectl: Kubectl) -> None:
    """`scale` changes the replicas through the subresource, and checks the current number."""
    kubectl.apply(deployment(("web", "nginx")))
    assert kubectl.run("scale", "deployment/web", "--replicas=5").strip().endswith("web scaled")
    assert kubectl.run("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "5"
    kubectl.run("scale", "deployment/web", "--current-replicas=5", "--replicas=0")
    assert kubectl.run("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "0"
    wrong = kubectl.fail("scale", "deployment/web", "--current-replicas=5", "--replicas=1")
    assert "Expected replicas to be 5, was 0" in wrong


def test_delete(kubectl: Kubectl) -> None:
    """`delete` deletes by name and by label, and accepts missing objects with
    --ignore-not-found."""
    for name, tier in (("one", "a"), ("two", "b"), ("three", "b")):
        make(kubectl, name, labels={"tier": tier})
    assert kubectl.run("delete", "configmap", "one").startswith('configmap "one" deleted')
    assert len(kubectl.run("delete", "cm", "-l", "tier=b").splitlines()) == 2
    kubectl.run("delete", "cm", "one", "--ignore-not-found")
    assert kubectl.run("get", "cm", "-l", "tier", "-o", "name") == ""


def test_delete_waits_for_finalizers(kubectl: Kubectl) -> None:
    """`delete` waits for the finalizers of an object, and so does `wait --for=delete`."""
    make(kubectl, finalizers=["example.com/hold"])
    late = kubectl.fail("delete", "configmap", "one", "--timeout=1s")
    assert "timed out waiting for the condition" in late
    assert "deletionTimestamp" in kubectl.json("get", "cm", "one", "-o", "json")["metadata"]
    with (
        kubectl.start("delete", "configmap", "one", "--wait=true") as delete,
        kubectl.start("wait", "--for=delete", "configmap/one", "--timeout=30s") as wait,
    ):
        delete.wait_for('configmap "one" deleted')
        kubectl.run("patch", "cm", "one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert delete.wait() == 0
        assert wait.wait() == 0, wait.lines
    assert "NotFound" in kubectl.fail("get", "configmap", "one")


def set_status(kubectl: Kubectl, status: dict[str, object]) -> None:
    """Writes the status that a controller would report for the deployment."""
    code, answer = kubectl.server.request(
        "PATCH",
        path_of(kubectl, "deployments", "web") + "/status",
        {"status": status},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert code == 200, answer


def test_wait_and_rollout(kubectl: Kubectl) -> None:
    """`wait` and `rollout status` end when a controller reports the condition."""
    kubectl.apply(deployment(("web", "nginx")))
    words = ("wait", "deployment/web", "--for=condition=Available")
    assert "timed out waiting" in kubectl.fail(*words, "--timeout=1s")
    counts = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}
    set_status(kubectl, {**counts, "availableReplicas": 1})
    with (
        kubectl.start(*words, "--timeout=30s") as wait,
        kubectl.start("rollout", "status", "deployment/web") as rollout,
    ):
        rollout.wait_for("1 of 2 updated replicas are available")
        condition = {"type": "Available", "status": "True", "reason": "Enough", "message": ""}
        done = {**counts, "readyReplicas": 2, "availableReplicas": 2, "conditions": [condition]}
        set_status(kubectl, done)
        assert wait.wait() == 0, wait.lines
        assert wait.lines == ["deployment.apps/web condition met"]
        assert rollout.wait() == 0
        assert rollout.lines[-1] == 'deployment "web" successfully rolled out'


def test_namespace_is_emptied(kubectl: Kubectl) -> None:
    """`delete namespace` waits until the namespace and all its objects are deleted."""
    name = f"{kubectl.namespace}-more"
    assert kubectl.run("create", "namespace", name).strip() == f"namespace/{name} created"
    inside = kubectl.within(name)
    make(inside)
    inside.apply(deployment(("web", "nginx")))
    kubectl.run("delete", "namespace", name)
    assert "NotFound" in kubectl.fail("get", "namespace", name)
    kubectl.run("create", "namespace", name)
    assert inside.run("get", "deployments", "-o", "name") == ""
    assert "NotFound" in inside.fail("get", "configmap", "one")
