"""The identity of a client under test: a service account or a certificate, with the permissions it
needs.

A guest has no permissions until `admit` grants those that its module lists under RIGHTS in one
namespace; permissions in the cluster are under CLUSTER_RIGHTS. Not here: requests of the client.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from restow.registry.watch_cache import CHANGES_BYTES_MAX
from tests.support.certificates import CA_KEY_NAME, CertificateFiles, sign_certificate
from tests.support.server_process import ServerProcess

Json = dict[str, Any]

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ACCOUNTS: Final = "/api/v1/namespaces/kube-system/serviceaccounts"
WAIT_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.01
TOKEN_SECONDS: Final = 3600
LARGE_BYTES: Final = 900 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A user of a server, with its credential."""

    server: ServerProcess
    name: str
    """Of its roles."""

    user: str
    subject: Json
    """The user, as a subject of bindings."""

    credential: Json
    """As in a kubeconfig."""

    directory: Path

    def kubeconfig(self, namespace: str = "default") -> Path:
        """Writes a kubeconfig for one namespace."""
        path = self.directory / f"{namespace}.kubeconfig"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(self._config(namespace)))
        return path

    def _config(self, namespace: str) -> Json:
        authority = base64.b64encode(self.server.ca_pem.encode()).decode()
        cluster = {"server": self.server.url, "certificate-authority-data": authority}
        context = {"cluster": "restow", "user": self.name, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "restow", "cluster": cluster}],
            "users": [{"name": self.name, "user": self.credential}],
            "contexts": [{"name": "restow", "context": context}],
            "current-context": "restow",
        }

    def give(self, rules: Sequence[Json], cluster_rules: Sequence[Json]) -> None:
        """Creates its roles, and grants its permissions in the cluster."""
        for role, each in ((self.name, rules), (f"{self.name}-everywhere", cluster_rules)):
            create(self.server, f"{RBAC}/clusterroles", named(role, rules=list(each)))
        binding = self._binding(f"{self.name}-everywhere")
        create(self.server, f"{RBAC}/clusterrolebindings", binding)
        for rule in cluster_rules:
            self._wait_allowed(rule, "")

    def admit(self, namespace: str, rules: Sequence[Json]) -> None:
        """Admits it to a namespace, and waits until the permissions are in effect."""
        path = f"{RBAC}/namespaces/{namespace}/rolebindings"
        create(self.server, path, self._binding(self.name))
        self._wait_allowed(rules[0], namespace)

    def _binding(self, role: str) -> Json:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        return named(role, roleRef=reference, subjects=[self.subject])

    def _wait_allowed(self, rule: Json, namespace: str) -> None:
        resource, _, part = rule["resources"][0].partition("/")
        wanted = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource}
        wanted |= {"subresource": part, "namespace": namespace}
        review = {"spec": {"user": self.user, "resourceAttributes": wanted}}
        wait(lambda: create(self.server, REVIEWS, review)["status"]["allowed"], what=wanted)


def account(server: ServerProcess, name: str, directory: Path) -> Guest:
    """A service account, with a token."""
    create(server, ACCOUNTS, named(name))
    request = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    token = create(server, f"{ACCOUNTS}/{name}/token", request)["status"]["token"]
    return Guest(
        server=server,
        name=name,
        user=f"system:serviceaccount:kube-system:{name}",
        subject={"kind": "ServiceAccount", "namespace": "kube-system", "name": name},
        credential={"token": token},
        directory=directory,
    )


def certified(server: ServerProcess, name: str, directory: Path) -> Guest:
    """A user with a client certificate of the server's CA."""
    authority = directory / "authority"
    authority.mkdir(mode=0o700)
    shutil.copy(server.pki_dir / "ca.key", authority / CA_KEY_NAME)
    files = CertificateFiles(authority / "ca.pem", authority / "cert.pem", authority / "key.pem")
    shutil.copy(server.pki_dir / "ca.crt", files.ca_file)
    signed = sign_certificate(files, directory, name=name)
    return Guest(
        server=server,
        name=name,
        user=name,
        subject={"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name},
        credential={
            "client-certificate-data": base64.b64encode(signed.cert_file.read_bytes()).decode(),
            "client-key-data": base64.b64encode(signed.key_file.read_bytes()).decode(),
        },
        directory=directory,
    )


def named(name: str, **fields: Any) -> Json:
    """Builds an object of any kind."""
    return {"metadata": {"name": name}, **fields}


def create(server: ServerProcess, path: str, body: Json) -> Json:
    """Creates an object as the administrator."""
    code, answer = server.request("POST", path, body)
    assert code == 201, answer
    created: Json = json.loads(answer)
    return created


def wait(condition: Callable[[], Any], *, what: object) -> None:
    """Polls until a condition holds that has no event."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not so in time: {what}"
        time.sleep(POLL_SECONDS)


def compact_history(server: ServerProcess) -> str:
    """Changes ConfigMaps until the server compacts old versions; returns a compacted version."""
    path = "/api/v1/namespaces/kube-system/configmaps"
    old = str(create(server, path, named("forgotten"))["metadata"]["resourceVersion"])
    for number in range(CHANGES_BYTES_MAX // LARGE_BYTES + 2):
        large = named("forgotten", data={"large": f"{number:02}" * (LARGE_BYTES // 2)})
        code, answer = server.request("PUT", f"{path}/forgotten", large)
        assert code == 200, answer
    return old
