"""kubectl's commands that create, describe and delete objects of every kind.

As a user with the necessary permissions only, with every kubectl. On etcd alone: the output of a
command does not depend on the store, and other modules test both.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.api.conftest import Shared
from tests.e2e.api.kubectl import Kubectl
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess

SERVICES: Final = {
    "clusterip": "--tcp=80:8080",
    "nodeport": "--tcp=80:8080",
    "loadbalancer": "--tcp=80:8080",
    "externalname": "--external-name=elsewhere.example.com",
}
CRON_JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "often"},
    "spec": {
        "schedule": "*/5 * * * *",
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "OnFailure",
                        "containers": [{"name": "often", "image": "busybox"}],
                    }
                }
            }
        },
    },
}
BUDGET: Final = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "few"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
}
HEAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: bad}
spec:
"""
TEMPLATE: Final = (
    "  template: {metadata: {labels: {a: b}}, spec: {containers: [{image: c, name: d}]}}\n"
)
SELECTOR: Final = "  selector: {matchLabels: {a: b}}\n"
# Invalid objects and the messages of kubectl or the server: old ones read the schema themselves.
BAD: Final = {
    SELECTOR + TEMPLATE + "  bogus: x\n": r'unknown field "(spec\.)?bogus"',
    SELECTOR
    + TEMPLATE
    + "  replicas: x\n": r'got "string", expected "integer"|cannot unmarshal string',
    TEMPLATE: r'missing required field "selector"|spec\.selector: Required value',
}


@pytest.fixture(scope="module")
def server(shared: Shared) -> ServerProcess:
    return shared.on("etcd")


def made(kubectl: Kubectl, *words: str) -> None:
    """Creates an object, and checks the output."""
    assert kubectl.run("create", *words).strip().endswith(" created"), words


def test_objects_of_every_sort(worker: Kubectl, tmp_path: Path) -> None:
    """All `create KIND` commands work; `describe` shows each object; `delete` removes it."""
    mine = worker.namespace
    files = make_certificate(tmp_path, name="pair")
    made(worker, "configmap", "map", "--from-literal=a=b", f"--from-file=ca={files.ca_file}")
    made(worker, "secret", "generic", "plain", "--from-literal=password=hunter2")
    pair = (f"--cert={files.cert_file}", f"--key={files.key_file}")
    made(worker, "secret", "tls", "pair", *pair)
    login = ("--docker-server=x", "--docker-username=u", "--docker-password=p")
    made(worker, "secret", "docker-registry", "login", *login)
    made(worker, "serviceaccount", "robot")
    made(worker, "role", "reader", "--verb=get,list", "--resource=pods,deployments.apps")
    made(worker, "rolebinding", "robots", "--role=reader", f"--serviceaccount={mine}:robot")
    made(worker, "clusterrole", mine, "--verb=get", "--resource=nodes")
    made(worker, "clusterrolebinding", mine, f"--clusterrole={mine}", "--group=robots")
    made(worker, "deployment", "web", "--image=nginx")
    made(worker, "job", "once", "--image=busybox", "--", "true")
    if worker.minor >= 21:
        made(worker, "cronjob", "often", "--image=busybox", "--schedule=*/5 * * * *")
        made(worker, "poddisruptionbudget", "few", "--selector=app=web", "--min-available=1")
    else:  # older ones use versions that current releases no longer serve
        worker.apply(CRON_JOB)
        worker.apply(BUDGET)
    made(worker, "ingress", "door", "--rule=example.com/path*=web:80")
    made(worker, "priorityclass", mine, "--value=10")
    made(worker, "quota", "small", "--hard=replicationcontrollers=3")
    for sort, word in SERVICES.items():
        made(worker, "service", sort, sort, word)
    namespaced = [
        *("cm/map", "secret/plain", "secret/pair", "secret/login", "sa/robot", "role/reader"),
        *("rolebinding/robots", "deploy/web", "job/once", "cj/often", "ing/door", "pdb/few"),
        *("quota/small", *(f"svc/{sort}" for sort in SERVICES)),
    ]
    rest = [f"{sort}/{mine}" for sort in ("clusterrole", "clusterrolebinding", "pc", "ns")]
    described = [*namespaced, *rest]
    if worker.minor < 21:  # it reads these in the old versions, too
        described = [each for each in described if each not in ("cj/often", "pdb/few")]
    shown = worker.run("describe", *described)
    names = re.findall(r"^Name: +(\S+)$", shown, re.MULTILINE)
    assert names == [each.partition("/")[2] for each in described]
    gone = worker.run("delete", *namespaced, *rest[:-1]).splitlines()
    assert len(gone) == len(namespaced) + len(rest) - 1


def test_tokens(worker: Kubectl) -> None:
    """`create token`, where it exists, or a TokenRequest returns a token of an account."""
    worker.run("create", "serviceaccount", "bearer")
    where = f"/api/v1/namespaces/{worker.namespace}/serviceaccounts/bearer/token"
    if worker.minor >= 24:
        token = worker.run("create", "token", "bearer", "--duration=10m").strip()
    else:
        asked = worker.run("create", "--raw", where, "-f", "-", stdin='{"spec":{}}')
        token = json.loads(asked)["status"]["token"]
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    code, answer = worker.server.request("POST", path, {"spec": {"token": token}})
    assert code == 201, answer
    user = json.loads(answer)["status"]["user"]["username"]
    assert user == f"system:serviceaccount:{worker.namespace}:bearer"


def test_strict_validation(worker: Kubectl) -> None:
    """Unknown fields, wrong types and missing fields are refused before anything is stored."""
    strict = "--validate=strict" if worker.minor >= 25 else "--validate=true"
    for spec, expected in BAD.items():
        document = HEAD + spec
        said = worker.fail("create", strict, "-f", "-", stdin=document)
        assert re.search(expected, said), said
    assert "NotFound" in worker.fail("get", "deployment", "bad")


def test_forms_of_deleting(worker: Kubectl) -> None:
    """`delete` works by name, label, file and for all; it can wait, force, orphan and dry-run."""
    run = worker.run
    for name in ("one", "two", "three"):
        run("run", name, "--image=busybox", "--labels=forms=yes")
    assert "(server dry run)" in run("delete", "pod", "one", "--dry-run=server")
    assert "(dry run)" in run("delete", "pod", "one", "--dry-run=client")
    run("delete", "pod", "one", "--now")
    run("delete", "pod", "two", "--force", "--grace-period=0")
    run("delete", "pods", "-l", "forms=yes", "--wait=false")
    made(worker, "deployment", "forms", "--image=nginx")
    run("create", "-f", "-", stdin=owned_set(worker, "forms"))
    run("delete", "deployment", "forms", "--cascade=orphan")
    assert worker.run("get", "replicasets", "-o", "name").strip() == "replicaset.apps/forms"
    run("delete", "replicasets", "--all", "--cascade=foreground")
    made(worker, "deployment", "forms", "--image=nginx")
    run("create", "-f", "-", stdin=owned_set(worker, "forms"))
    run("delete", "deployment", "forms", "--cascade=foreground")
    assert worker.run("get", "replicasets,pods", "-o", "name") == ""


def owned_set(kubectl: Kubectl, owner: str) -> str:
    """A ReplicaSet owned by a Deployment."""
    uid = kubectl.run("get", "deployment", owner, "-o", "jsonpath={.metadata.uid}")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": owner,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod = {"containers": [{"name": "nginx", "image": "nginx"}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": owner, "ownerReferences": [reference]},
        "spec": {
            "selector": {"matchLabels": {"app": owner}},
            "template": {"metadata": {"labels": {"app": owner}}, "spec": pod},
        },
    }
    return json.dumps(body)
