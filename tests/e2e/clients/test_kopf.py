"""A kopf operator, run by `kopf run`, with handlers, finalizers, events, peers, a webhook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.crds import small
from tests.crds.building import ANYTHING, CRDS, definition, struct, version
from tests.e2e.clients import kopf_operator
from tests.e2e.clients.guests import create, named, wait
from tests.e2e.clients.kopf_process import eventually, operator_of
from tests.support.certificates import make_certificate
from tests.support.server_process import ServerProcess

WHO = "account"
RIGHTS = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["kopf.dev"], "resources": ["kopfpeerings"], "verbs": ["list", "watch", "patch"]},
    {
        "apiGroups": [kopf_operator.GROUP],
        "resources": ["widgets", "widgets/status"],
        "verbs": ["list", "watch", "patch"],
    },
]
CLUSTER_RIGHTS = [
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
        "verbs": ["create", "patch"],
    },
]
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def define_peerings(server: ServerProcess, namespace: str) -> str:
    """Creates kopf's peering kind and an object of it."""
    schema = struct({"status": {"type": "object", **ANYTHING}}, **ANYTHING)
    names = {"kind": "KopfPeering", "plural": "kopfpeerings", "singular": "kopfpeering"}
    kind = definition(
        "kopf.dev", "KopfPeering", [version("v1", schema)], plural="kopfpeerings", names=names
    )
    code, answer = server.request("POST", CRDS, kind)
    assert code == 201, answer
    path = f"/apis/kopf.dev/v1/namespaces/{namespace}/kopfpeerings"
    wait(lambda: server.get(path)[0] == 200, what="peerings")
    create(server, path, {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", **named("meeting")})
    return f"{path}/meeting"


def test_operator(server: ServerProcess, kubeconfig: Path, namespace: str, tmp_path: Path) -> None:
    """It handles built-in kinds and one that is defined later, finds its peers, and exits
    cleanly."""
    peering, log = define_peerings(server, namespace), tmp_path / "kopf.log"
    certificates = tmp_path / "certificates"
    make_certificate(certificates, name="operator")

    def read(path: str) -> Any:
        code, answer = server.get(path)
        return json.loads(answer) if code == 200 else {}

    def soon(condition: Callable[[], Any]) -> None:
        eventually(condition, log)

    with operator_of(
        kubeconfig,
        kopf_operator.__file__,
        log,
        options=["--namespace", namespace, "--peering", "meeting"],
        environment={kopf_operator.CERTIFICATES: str(certificates)},
    ):
        soon(lambda: read(peering).get("status"))
        serve_config_maps(server, namespace, log)
        soon(lambda: "Unresolved resources" in log.read_text())
        serve_widgets(server, namespace, log)
    assert read(peering).get("status", {}) == {}
    found = read(f"{WEBHOOKS}/auto.kopf.dev")
    assert not found.get("webhooks"), "the webhook has gone with its operator"


def serve_config_maps(server: ServerProcess, namespace: str, log: Path) -> None:
    """Creations, changes and deletions call handlers; a finalizer is set, an event is sent."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def read(name: str) -> Any:
        return json.loads(server.get(f"{path}/{name}")[1])["metadata"]

    def seen(name: str) -> str:
        annotations = read(name).get("annotations") or {}
        return str(annotations.get(kopf_operator.SEEN))

    def make(name: str, labels: dict[str, str]) -> None:
        metadata = {"name": name, "labels": labels}
        create(server, path, {"metadata": metadata, "data": {"color": "red"}})

    make("operated", kopf_operator.LABELS)
    make("other", {})
    eventually(lambda: seen("operated") == "created", log)
    assert any("kopf" in each for each in read("operated")["finalizers"])
    patch = {"data": {"color": "blue"}}
    assert server.request("PATCH", f"{path}/operated", patch, headers=MERGE)[0] == 200
    eventually(lambda: seen("operated") == "updated to blue", log)
    assert server.request("DELETE", f"{path}/operated")[0] == 200
    eventually(lambda: server.get(f"{path}/operated")[0] == 404, log)
    assert "saw the end of operated" in log.read_text()
    events = f"/api/v1/namespaces/{namespace}/events"
    eventually(lambda: "it was created" in server.get(events)[1], log)
    assert "annotations" not in read("other")


def serve_widgets(server: ServerProcess, namespace: str, log: Path) -> None:
    """A CRD created later is handled; its objects get a status, and are validated."""
    family = small.widget(kopf_operator.GROUP, status=True)
    schema = family.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # Where kopf stores its progress.
    schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
    create(server, CRDS, family.definition)
    path, blue = family.path(namespace=namespace), {"spec": {"colour": "blue"}}

    def status() -> Any:
        code, answer = server.get(f"{path}/a")
        return json.loads(answer).get("status", {}) if code == 200 else {}

    def is_guarded() -> bool:
        refused = {**family.good[0], **blue}
        code, answer = server.request("POST", f"{path}?dryRun=All", refused)
        return code == 422 and "blue is not for widgets" in answer

    eventually(lambda: server.get(path)[0] == 200, log)
    eventually(is_guarded, log)
    create(server, path, family.good[0])
    eventually(lambda: status().get("phase") == "made grey", log)
    patch = {"spec": {"size": 5}}
    assert server.request("PATCH", f"{path}/a", patch, headers=MERGE)[0] == 200
    eventually(lambda: status().get("size") == 5, log)
    assert server.request("PATCH", f"{path}/a", blue, headers=MERGE)[0] == 422
    # It may list a deleted kind once more, and log the error.
    assert "Traceback" not in log.read_text()
    assert server.request("DELETE", f"{CRDS}/{family.name}")[0] == 200
    eventually(lambda: server.get(f"{CRDS}/{family.name}")[0] == 404, log)
