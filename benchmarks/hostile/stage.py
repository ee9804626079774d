"""What an attack needs: accounts with few rights, large lists, and a custom resource with rules.

Attackers are service accounts: some may only view, by the ClusterRole `view`, some may also edit
one namespace, which only a dry run uses. Their tokens are issued by the server.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.api.connection import Connection, fill
from benchmarks.api.target import Target

NAMESPACE: Final = "hostile"
ACCOUNTS: Final = 10
LARGE: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
"""A collection of 36 MB."""
LARGE_ITEMS: Final = 1_200
LARGE_DATA: Final = {"key": "x" * 30_000}
GROUP: Final = "hostile.example.com"
THINGS: Final = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/things"
RULES: Final = 9
ITEMS_MAX: Final = 450
"""Items of the list that each rule compares with itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A server, and tokens for it."""

    target: Target
    ordinary: str
    """Of a user who may edit the namespace of the measured requests."""
    viewers: tuple[str, ...]
    editors: tuple[str, ...]

    def write(self, path: Path) -> None:
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Stage:
        found = json.loads(path.read_text())
        target = Target(**found.pop("target"))
        viewers, editors = tuple(found["viewers"]), tuple(found["editors"])
        return cls(target=target, ordinary=found["ordinary"], viewers=viewers, editors=editors)


async def set_up(target: Target, *, namespace: str) -> Stage:
    """Make accounts and objects. `namespace` is that of the measured requests, and exists."""
    await fill(target, items=LARGE_ITEMS, path=LARGE, data=LARGE_DATA)
    connection = await Connection.open(target)

    async def make(path: str, body: dict[str, Any]) -> Any:
        code, answer = await connection.send("POST", path, body)
        if code not in (201, 409):
            raise SystemExit(f"{path}: {code} {answer[:300]!r}")
        return json.loads(answer)

    async def account(name: str, role: str, where: str = "") -> str:
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        await make(accounts, {"metadata": {"name": name}})
        kind = "RoleBinding" if where else "ClusterRoleBinding"
        space = f"/namespaces/{where}" if where else ""
        path = f"/apis/rbac.authorization.k8s.io/v1{space}/{kind.lower()}s"
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        await make(path, {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})
        return str((await make(f"{accounts}/{name}/token", {"spec": {}}))["status"]["token"])

    await make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition())
    role = {"apiGroups": [GROUP], "resources": ["things"], "verbs": ["create", "get"]}
    labels = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    metadata = {"name": "hostile-things", "labels": labels}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    await make(roles, {"metadata": metadata, "rules": [role]})
    found = Stage(
        target=target,
        ordinary=await account("ordinary", "edit", namespace),
        viewers=tuple([await account(f"viewer-{n}", "view") for n in range(ACCOUNTS)]),
        editors=tuple([await account(f"editor-{n}", "edit", NAMESPACE) for n in range(ACCOUNTS)]),
    )
    connection.close()
    return found


def _definition() -> dict[str, Any]:
    rules = [
        {"rule": f'self.l.all(a, self.l.all(b, a != "x")) || {number} > 100'}
        for number in range(RULES)
    ]
    items = {"type": "string", "maxLength": 4}
    spec = {
        "type": "object",
        "properties": {"l": {"type": "array", "maxItems": ITEMS_MAX, "items": items}},
        "x-kubernetes-validations": rules,
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }
