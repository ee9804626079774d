"""Protobuf requests of typed Go clients: from each kubectl that sends them, and handwritten.

Since 1.32 kubectl sends protobuf wherever it knows the type: `create KIND`, `auth`, `describe`,
evictions, approvals. The messages below are those of such a client: every field that is no pointer,
zero or not. They are always sent; where RESTOW_KUBECTL names newer binaries, their commands run as
well.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.api.conftest import Shared
from tests.e2e.api.kubectl import Kubectl, binaries
from tests.support.server_process import ServerProcess

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MINOR_MIN: Final = 32
FRAMES: Final = "frames"


def varint(value: int) -> bytes:
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number: int, *parts: bytes | str) -> bytes:
    """A length-delimited field: a string, or a message of fields."""
    data = b"".join(each.encode() if isinstance(each, str) else each for each in parts)
    return varint(number << 3 | 2) + varint(len(data)) + data


def count(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def meta(name: str, *more: bytes) -> bytes:
    """Metadata as Go encodes it, with its empty strings and its empty time."""
    empty = b"".join(part(number, "") for number in (2, 3, 4, 5, 6))
    return part(1, part(1, name), empty, count(7, 0), part(8), *more)


def frame(api_version: str, kind: str, *fields: bytes) -> bytes:
    type_meta = part(1, part(1, api_version), part(2, kind))
    return b"k8s\x00" + type_meta + part(2, *fields) + part(3) + part(4)


def entry(key: str, value: bytes) -> bytes:
    return part(1, key) + value


@dataclass(frozen=True, slots=True)
class Case:
    """One object: how kubectl creates it, its message, and the expected result."""

    words: str
    path: str
    name: str
    sent: bytes
    expected: dict[str, Any]


_LABELS: Final = entry("app", part(2, "web"))
_POD: Final = part(
    2,
    part(2, part(1, "nginx"), part(2, "nginx"), part(5, ""), part(8), part(13, ""), part(14, "")),
    *(part(3, ""), part(6, ""), part(8, ""), part(9, ""), part(10, "")),
    *(count(11, 0), count(12, 0), count(13, 0), part(16, ""), part(17, ""), part(19, "")),
)
CASES: Final = (
    Case(
        "create configmap made --from-literal=k=v --from-literal=e=",
        "api/v1/namespaces/{ns}/configmaps",
        "made",
        frame(
            *("v1", "ConfigMap"),
            *(meta("made"), part(2, entry("e", part(2, ""))), part(2, entry("k", part(2, "v")))),
        ),
        {"data": {"k": "v", "e": ""}},
    ),
    Case(
        "create secret generic made --from-literal=p=x",
        "api/v1/namespaces/{ns}/secrets",
        "made",
        frame("v1", "Secret", meta("made"), part(2, entry("p", part(2, b"x"))), part(3, "")),
        {"data": {"p": "eA=="}, "type": "Opaque"},
    ),
    Case(
        "create deployment web --image=nginx --replicas=0",
        "apis/apps/v1/namespaces/{ns}/deployments",
        "web",
        frame(
            *("apps/v1", "Deployment", meta("web", part(11, _LABELS))),
            part(
                2,
                count(1, 0),
                part(2, part(1, _LABELS)),
                part(3, meta("", part(11, _LABELS)), _POD),
                part(4, part(1, "")),
                count(5, 0),
                count(7, 0),
            ),
            part(3, *(count(number, 0) for number in (1, 2, 3, 4, 5, 7))),
        ),
        {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
            },
        },
    ),
    Case(
        "create role made --verb=get,list --resource=pods",
        "apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
        "made",
        frame(
            *("rbac.authorization.k8s.io/v1", "Role", meta("made")),
            part(2, part(1, "get"), part(1, "list"), part(2, ""), part(3, "pods")),
        ),
        {"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]},
    ),
    Case(
        "create quota made --hard=pods=10,requests.cpu=1500m",
        "api/v1/namespaces/{ns}/resourcequotas",
        "made",
        frame(
            *("v1", "ResourceQuota", meta("made")),
            part(
                2,
                part(1, entry("pods", part(2, part(1, "10")))),
                part(1, entry("requests.cpu", part(2, part(1, "1500m")))),
            ),
            part(3),
        ),
        {"hard": {"pods": "10", "requests.cpu": "1500m"}},
    ),
    Case(
        "create serviceaccount made",
        "api/v1/namespaces/{ns}/serviceaccounts",
        "made",
        frame("v1", "ServiceAccount", meta("made")),
        {"kind": "ServiceAccount"},
    ),
)


def newer() -> list[str]:
    """Every kubectl that sends protobuf."""
    found = []
    for binary in binaries():
        said = subprocess.run(
            [binary, "version", "--client", "-o", "json"], capture_output=True, check=True
        )
        minor = json.loads(said.stdout)["clientVersion"]["minor"]
        if int(re.sub(r"\D.*", "", minor)) >= MINOR_MIN:
            found.append(binary)
    return found


SENDERS: Final = [FRAMES, *newer()]


class Sender:
    """Creates objects: with the commands of a kubectl, or with messages."""

    def __init__(self, server: ServerProcess, namespace: str, kubectl: Kubectl | None) -> None:
        self.server = server
        self.namespace = namespace
        self.kubectl = kubectl

    def send(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": PROTOBUF, "Accept": "application/json"}
        code, text = self.server.request(method, f"/{path}", body, headers=headers)
        return code, json.loads(text)

    def read(self, path: str) -> Any:
        code, text = self.server.request("GET", f"/{path}")
        assert code == 200, text
        return json.loads(text)

    def make(self, case: Case) -> Any:
        """Creates the object; returns it as stored."""
        path = case.path.format(ns=self.namespace)
        if self.kubectl is not None:
            self.kubectl.run(*case.words.split())
        else:
            code, answer = self.send("POST", path, case.sent)
            assert code == 201, answer
        return self.read(f"{path}/{case.name}")


@pytest.fixture(scope="module", params=SENDERS, ids=lambda text: text.split("/")[-1])
def sender(
    request: pytest.FixtureRequest, shared: Shared, tmp_path_factory: pytest.TempPathFactory
) -> Sender:
    """Every sender of protobuf, in a namespace of its own."""
    server, name = shared.on("sqlite"), f"typed-{SENDERS.index(request.param)}"
    if request.param == FRAMES:
        sender = Sender(server, name, None)
        body = frame("v1", "Namespace", meta(name), part(2), part(3, part(1, "")))
        code, answer = sender.send("POST", "api/v1/namespaces", body)
        assert code == 201, answer
        return sender
    kubectl = Kubectl.found(request.param, server, tmp_path_factory.mktemp("typed"))
    kubectl.run("create", "namespace", name)
    return Sender(server, name, kubectl.within(name))


@pytest.mark.parametrize("case", CASES, ids=[case.words.split()[1] for case in CASES])
def test_typed_objects(sender: Sender, case: Case) -> None:
    """Set values are stored, zero values are omitted, and pointers are kept even if zero."""
    found = sender.make(case)
    inner = {**found, **(found.get("spec") or {})}
    assert {name: inner.get(name) for name in case.expected} == case.expected
    assert found["metadata"]["creationTimestamp"]
    assert not {"generateName", "selfLink", "deletionTimestamp"} & found["metadata"].keys()


def test_access_reviews(sender: Sender) -> None:
    """An access review is sent and answered."""
    if sender.kubectl is not None:
        assert sender.kubectl.run("auth", "can-i", "delete", "pods").strip() == "yes"
        assert "restow-admin" in sender.kubectl.run("auth", "whoami")
        return
    texts = (sender.namespace, "delete", "", "", "pods", "", "")
    attributes = [part(number, text) for number, text in enumerate(texts, start=1)]
    version = "authorization.k8s.io/v1"
    status = part(3, count(1, 0), part(2, ""), part(3, ""), count(4, 0))
    asked = (meta(""), part(2, part(1, *attributes)), status)
    code, answer = sender.send(
        *("POST", f"apis/{version}/selfsubjectaccessreviews"),
        frame(version, "SelfSubjectAccessReview", *asked),
    )
    assert (code, answer["status"]["allowed"]) == (201, True)


def test_a_token(sender: Sender) -> None:
    """A TokenRequest with an expiration is answered."""
    name = "default"
    path = f"api/v1/namespaces/{sender.namespace}/serviceaccounts/{name}"
    body = frame("v1", "ServiceAccount", meta(name))
    assert sender.send("POST", path.removesuffix(f"/{name}"), body)[0] in (201, 409)
    if sender.kubectl is not None:
        token = sender.kubectl.run("create", "token", name, "--duration=20m").strip()
    else:
        version = "authentication.k8s.io/v1"
        asked = frame(
            version,
            "TokenRequest",
            meta(""),
            part(2, count(4, 1200)),
            part(3, part(1, ""), part(2)),
        )
        code, answer = sender.send("POST", f"{path}/token", asked)
        assert (code, answer["spec"]["expirationSeconds"]) == (201, 1200)
        token = answer["status"]["token"]
    code, text = sender.server.request("GET", "/api/v1/pods", token=token)
    assert code == 403, text


def test_options_of_a_delete(sender: Sender) -> None:
    """A grace period of zero is not ignored, and a client that has read the object sends
    preconditions."""
    path = f"api/v1/namespaces/{sender.namespace}/configmaps"
    body = frame("v1", "ConfigMap", meta("gone"))
    assert sender.send("POST", path, body)[0] == 201
    if sender.kubectl is not None:
        assert "Name:         gone" in sender.kubectl.run("describe", "configmap", "gone")
        sender.kubectl.run("delete", "configmap", "gone", "--grace-period=0", "--force")
    else:
        precondition = part(2, part(1, "another"))
        refused = frame("v1", "DeleteOptions", precondition)
        assert sender.send("DELETE", f"{path}/gone", refused)[0] == 409
        options = frame("v1", "DeleteOptions", count(1, 0), count(3, 0))
        assert sender.send("DELETE", f"{path}/gone", options)[0] == 200
    assert sender.server.request("GET", f"/{path}/gone")[0] == 404
