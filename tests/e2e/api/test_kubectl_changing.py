"""kubectl's commands that change objects and drain nodes.

As a user with the necessary permissions only, with every kubectl. On SQLite alone: the output of a
command does not depend on the store, and other modules test both.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.e2e.api.conftest import Shared
from tests.e2e.api.kubectl import Kubectl
from tests.support.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(shared: Shared) -> ServerProcess:
    return shared.on("sqlite")


def at(kubectl: Kubectl, what: str, path: str) -> str:
    """Returns one value of an object."""
    return kubectl.run("get", what, "-o", f"jsonpath={{{path}}}")


def deployment(name: str, **template: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "nginx", "image": "nginx:1"}], **template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


def test_set(worker: Kubectl) -> None:
    """`set` changes images, variables, limits, accounts, subjects and selectors."""
    worker.apply(deployment("set"))
    for words in (
        ("image", "deploy/set", "nginx=nginx:9"),
        ("env", "deploy/set", "COLOUR=blue"),
        ("resources", "deploy/set", "--limits=cpu=200m"),
        ("serviceaccount", "deploy/set", "default"),
    ):
        assert worker.run("set", *words).strip().endswith(" updated")
    pod = json.loads(at(worker, "deploy/set", ".spec.template.spec"))
    container = pod["containers"][0]
    assert container["image"] == "nginx:9"
    assert container["env"] == [{"name": "COLOUR", "value": "blue"}]
    assert container["resources"]["limits"] == {"cpu": "200m"}
    assert pod["serviceAccountName"] == "default"
    worker.run("create", "role", "set", "--verb=get", "--resource=pods")
    worker.run("create", "rolebinding", "set", "--role=set", "--user=ann")
    worker.run("set", "subject", "rolebinding", "set", "--user=joe")
    assert at(worker, "rolebinding/set", ".subjects[*].name") == "ann joe"
    worker.run("expose", "deployment", "set", "--port=80")
    worker.run("set", "selector", "service", "set", "app=other")
    assert json.loads(at(worker, "svc/set", ".spec.selector")) == {"app": "other"}
    worker.run("autoscale", "deployment", "set", "--min=1", "--max=3", "--cpu-percent=50")
    assert at(worker, "hpa/set", ".spec.maxReplicas") == "3"
    worker.run("delete", "deploy/set", "svc/set", "hpa/set", "rolebinding/set", "role/set")


def test_rollouts(worker: Kubectl) -> None:
    """`rollout` pauses, resumes, restarts, shows the history and rolls back."""
    worker.apply(deployment("roll"))
    uid = at(worker, "deploy/roll", ".metadata.uid")
    for number in (1, 2):
        worker.run("create", "-f", "-", stdin=json.dumps(revision(number, uid)))
    told = worker.run("rollout", "history", "deployment/roll")
    assert [line.split()[0] for line in told.splitlines()[2:] if line] == ["1", "2"]
    worker.run("rollout", "undo", "deployment/roll", "--to-revision=1")
    assert at(worker, "deploy/roll", ".spec.template.spec.containers[0].image") == "old:1"
    assert worker.run("rollout", "pause", "deploy/roll").strip().endswith("roll paused")
    assert "is already paused" in worker.fail("rollout", "pause", "deploy/roll")
    worker.run("rollout", "resume", "deployment/roll")
    worker.run("rollout", "restart", "deployment/roll")
    annotations = at(worker, "deploy/roll", ".spec.template.metadata.annotations")
    assert "kubectl.kubernetes.io/restartedAt" in annotations
    late = worker.fail("rollout", "status", "deployment/roll", "--timeout=1s")
    assert "timed out waiting for the condition" in late
    worker.run("delete", "deploy/roll")


def revision(number: int, owner: str) -> dict[str, Any]:
    """A ReplicaSet, as the controller keeps it for an earlier revision of the deployment."""
    labels = {"app": "roll", "pod-template-hash": str(number)}
    pod = {"containers": [{"name": "nginx", "image": f"old:{number}"}]}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "roll",
        "uid": owner,
        "controller": True,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"roll-{number}",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
            "ownerReferences": [reference],
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def test_apply_in_bulk(worker: Kubectl, tmp_path: Path) -> None:
    """`apply` accepts directories and kustomizations, prunes, and records the last applied
    object."""
    for name in ("first", "second"):
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "kustomization.yaml").write_text("namePrefix: k-\nresources: [first.json]\n")
    words = ("apply", "-l", "!x", "--prune", "--prune-whitelist=core/v1/ConfigMap")
    if worker.minor >= 26:
        words = ("apply", "-l", "!x", "--prune", "--prune-allowlist=core/v1/ConfigMap")
    worker.run(*words, *(f"-f={tmp_path / name}.json" for name in ("first", "second")))
    assert "configmap/second pruned" in worker.run(*words, f"-f={tmp_path / 'first.json'}")
    assert "name: first" in worker.run("apply", "view-last-applied", "configmap", "first")
    assert "name: k-first" in worker.run("kustomize", str(tmp_path))
    assert worker.run("apply", "-k", str(tmp_path)) == "configmap/k-first created\n"
    worker.run("delete", "-k", str(tmp_path))
    worker.run("delete", "configmap", "first")


def test_nodes(worker: Kubectl) -> None:
    """Nodes are cordoned, uncordoned, tainted and drained."""
    name = f"node-{worker.namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    worker.run("create", "-f", "-", stdin=json.dumps(node))
    assert worker.run("cordon", name).strip() == f"node/{name} cordoned"
    assert at(worker, f"node/{name}", ".spec.unschedulable") == "true"
    worker.run("uncordon", name)
    worker.run("taint", "node", name, "kept=yes:NoSchedule")
    assert "already has kept taint" in worker.fail("taint", "node", name, "kept=no:NoSchedule")
    worker.run("taint", "node", name, "kept-")
    said = worker.run("drain", name, "--ignore-daemonsets", "--force")
    assert any(f"node/{name} {word}" in said for word in ("drained", "evicted"))
    text = worker.run("describe", "node", name)
    assert "Unschedulable:      true" in text
    worker.run("delete", "node", name)


def test_certificates(worker: Kubectl) -> None:
    """CertificateSigningRequests are approved and denied."""
    names = [f"{word}-{worker.namespace}" for word in ("good", "bad")]
    for name in names:
        worker.run("create", "-f", "-", stdin=json.dumps(signing_request(name)))
    good, bad = names
    assert "approved" in worker.run("certificate", "approve", good)
    assert "denied" in worker.run("certificate", "deny", bad)
    rows = worker.run("get", "csr", "--no-headers").splitlines()
    found = {row.split()[0]: row.split()[-1] for row in rows}
    assert (found[good], found[bad]) == ("Approved", "Denied")
    assert "example.com/signer" in worker.run("describe", "csr", good)
    worker.run("delete", "csr", *names)


def signing_request(name: str) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    request = base64.b64encode(signed).decode()
    spec = {"request": request, "signerName": "example.com/signer", "usages": ["client auth"]}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
