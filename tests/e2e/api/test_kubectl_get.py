"""kubectl's commands that show objects: output formats, proxy, dump, schemas of custom kinds.

As a user with the necessary permissions only, with every kubectl, on SQLite and on etcd.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest

from tests.e2e.api.kubectl import Kubectl

GROUP: Final = "kubectl.example.com"
SCHEMA: Final = {
    "type": "object",
    "description": "A thing of ours.",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "description": "How big it is."},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
PROXY_LINE: Final = re.compile(r"Starting to serve on (\S+)")


@pytest.fixture(scope="module")
def kind(worker: Kubectl) -> Iterator[str]:
    """A custom kind, as `resource.group`; each binary uses its own."""
    plural = f"things{worker.namespace.replace('-', '')}"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}, "scale": SCALE},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    names = {"plural": plural, "singular": plural[:-1], "kind": plural.capitalize()}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    worker.run("create", "-f", "-", stdin=json.dumps(definition))
    worker.run("wait", "--for=condition=Established", f"crd/{plural}.{GROUP}")
    yield plural
    worker.run("delete", "crd", f"{plural}.{GROUP}")


SCALE: Final = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}


def thing(kind: str, name: str, **spec: Any) -> str:
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind.capitalize(), "spec": spec}
    return json.dumps({**body, "metadata": {"name": name}})


def test_custom_kinds(worker: Kubectl, kind: str) -> None:
    """A custom kind is validated, applied, scaled, patched, explained and shown."""
    run = worker.run
    run("apply", "-f", "-", stdin=thing(kind, "one", size=1, colour="red"))
    applied = run("apply", "-f", "-", stdin=thing(kind, "one", size=2))
    assert applied.strip().endswith("one configured")
    assert "colour" not in run("get", kind, "one", "-o", "jsonpath={.spec}")
    bad = worker.fail("create", "-f", "-", stdin=thing(kind, "two", colour="green", bogus=1))
    assert "bogus" in bad or "size" in bad
    run("scale", f"{kind}.{GROUP}", "one", "--replicas=5")
    run("patch", kind, "one", "--type=merge", "-p", '{"spec":{"colour":"blue"}}')
    strategic = worker.fail("patch", kind, "one", "-p", '{"spec":{"size":1}}')
    assert "strategic" in strategic or "media types" in strategic
    rows = [line.split()[:2] for line in run("get", kind).splitlines()]
    assert rows == [["NAME", "SIZE"], ["one", "5"]]
    assert re.search(
        r"^Spec:\n +Colour: +blue\n +Size: +5$", run("describe", kind, "one"), re.MULTILINE
    )
    text = run("explain", kind, "--recursive")
    for field in (r"size\s+<integer>", r"colour\s+<string>", r"tags\s+<\[\]string>"):
        assert re.search(field, text), text
    assert "How big it is." in run("explain", f"{kind}.spec.size")
    run("delete", kind, "--all")


def test_explain(worker: Kubectl) -> None:
    """`explain` shows types, required fields, and the values of an enum."""
    run = worker.run
    text = run("explain", "pod.spec", "--recursive")
    assert re.search(r"containers\s+<\[\](Container|Object)>", text)
    assert re.search(r"imagePullPolicy\s+<string>", text)
    text = run("explain", "pod.spec.containers")
    assert re.search(r"name\s+<string> -required-", text)
    assert re.search(r"imagePullPolicy\s+<string>", text)
    if worker.minor >= 29:
        assert "enum: Always, IfNotPresent, Never" in text
        old = run("explain", "deployment.spec", "--output=plaintext-openapiv2")
        assert re.search(r"selector\s+<Object> -required-", old)
    version = run("explain", "horizontalpodautoscaler", "--api-version=autoscaling/v1")
    assert re.search(r"VERSION:\s+(autoscaling/)?v1$", version, re.MULTILINE)


def test_forms_of_output(worker: Kubectl) -> None:
    """`get` sorts, selects, prints custom columns and templates."""
    for name, order in (("b", "1"), ("a", "2")):
        labels, data = {"form": "yes"}, {"order": order}
        document = {"metadata": {"name": f"form-{name}", "labels": labels}, "data": data}
        worker.apply({"apiVersion": "v1", "kind": "ConfigMap", **document})
    words = ("get", "configmaps", "-l", "form=yes", "--no-headers")
    rows = worker.run(*words, "--sort-by=.data.order").splitlines()
    assert [row.split()[0] for row in rows] == ["form-b", "form-a"]
    columns = "-o=custom-columns=N:.metadata.name,O:.data.order"
    assert worker.run(*words, columns).split() == ["form-a", "2", "form-b", "1"]
    template = "-o=go-template={{range .items}}{{.data.order}}{{end}}"
    assert worker.run("get", "configmap/form-a", "configmap/form-b", template) == "21"
    shown = worker.run("get", "cm", "form-a", "--show-kind", "--show-labels", "-L", "tier")
    assert shown.split()[:5] == ["NAME", "DATA", "AGE", "TIER", "LABELS"]
    assert "configmap/form-a" in shown
    path = f"/api/v1/namespaces/{worker.namespace}/configmaps/form-a"
    assert json.loads(worker.run("get", "--raw", path))["data"] == {"order": "2"}
    with worker.start("get", "cm", "--watch-only", "-o", "name") as watch:
        # The watch may start after a change, so changes are repeated until one is seen.
        changes = count()
        while not watch.lines and not watch.ended:
            worker.run("annotate", "cm", "form-a", f"n={next(changes)}", "--overwrite")
        watch.wait_for("configmap/form-a")
    worker.run("delete", "cm", "form-a", "form-b")


def test_proxy(worker: Kubectl) -> None:
    """`proxy` serves plain HTTP on loopback with the user's permissions, for watches as well."""
    worker.run("create", "configmap", "lent")
    path = f"/api/v1/namespaces/{worker.namespace}/configmaps"
    with worker.start("proxy", "--port=0") as proxy:
        proxy.wait_for("Starting to serve")
        found = PROXY_LINE.search("\n".join(proxy.lines))
        assert found is not None
        url = f"http://{found[1]}{path}"
        with urllib.request.urlopen(f"{url}/lent", timeout=10) as answer:
            assert json.load(answer)["metadata"]["name"] == "lent"
        select = "?watch=1&fieldSelector=metadata.name%3Dlent"
        with urllib.request.urlopen(f"{url}{select}", timeout=10) as answer:
            assert json.loads(answer.readline())["type"] == "ADDED"
            worker.run("delete", "configmap", "lent")
            assert json.loads(answer.readline())["type"] == "DELETED"


def test_about_the_cluster(worker: Kubectl) -> None:
    """`cluster-info dump`, `auth`, `api-resources` and commands without a server work."""
    dump = worker.run("cluster-info", "dump", f"--namespaces={worker.namespace}")
    assert '"kind": "NodeList"' in dump
    assert worker.run("auth", "can-i", "create", "pods").strip() == "yes"
    said = worker.try_run("auth", "can-i", "create", "storageclasses")
    assert (said.code, said.out.strip()) == (1, "no")
    assert "configmaps" in worker.run("auth", "can-i", "--list")
    wide = worker.run("api-resources", "--namespaced=true", "--verbs=list,get", "-o", "wide")
    assert wide.split()[:4] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED"]
    assert "bash completion" in worker.run("completion", "bash")[:4000]
    assert "current-context: restow" in worker.run("config", "view", "--minify")
    assert "unable to find any kubectl plugins" in worker.try_run("plugin", "list").err
    assert "Server Version" in worker.run("version")
    assert worker.run("get", "--raw", "/healthz") == "ok"
    if worker.minor >= 28:
        assert "system:serviceaccount:kube-system:worker" in worker.run("auth", "whoami")


def test_commands_that_need_a_kubelet(worker: Kubectl) -> None:
    """Commands for containers fail at once with the server's reason."""
    worker.run("run", "idle", "--image=busybox")
    assert worker.run("logs", "idle") == ""  # without a kubelet there are no logs
    for words in (
        ("exec", "idle", "--", "true"),
        ("attach", "idle", "--pod-running-timeout=1s"),
        ("port-forward", "idle", "18999:80", "--pod-running-timeout=1s"),
        ("cp", "idle:/etc/hosts", str(worker.home / "hosts")),
        ("top", "pods"),
        ("top", "nodes"),
    ):
        assert worker.fail(*words), words
    worker.run("delete", "pod", "idle", "--now")
