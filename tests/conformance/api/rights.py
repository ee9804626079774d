"""Helpers for authorization tests: roles, bindings, and a client with given permissions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from restow.aio import Runtime
from tests.conformance.api.servers import OTHER_TOKEN, RunningServer
from tests.support.api_client import ApiClient, Reply

RBAC = "rbac.authorization.k8s.io"
ROOT = f"/apis/{RBAC}/v1"
JANE: dict[str, Any] = {"apiGroup": RBAC, "kind": "User", "name": "jane"}
SECONDS_MAX = 10.0


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> dict[str, Any]:
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}
    return {**found, "resourceNames": names.split()} if names else found


def at(verbs: str, paths: str) -> dict[str, Any]:
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


def role(name: str, *rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **fields}


def binding(
    name: str, of: str, *subjects: dict[str, Any], kind: str = "ClusterRole"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": of},
        "subjects": list(subjects),
    }


def place(plural: str, namespace: str = "") -> str:
    return f"{ROOT}/namespaces/{namespace}/{plural}" if namespace else f"{ROOT}/{plural}"


def client_of(server: RunningServer) -> ApiClient:
    """A client without permissions except those granted to it."""
    return ApiClient(server.port, token=OTHER_TOKEN)


async def give(
    server: RunningServer, name: str, *rules: dict[str, Any], namespace: str = ""
) -> None:
    """Binds jane to new rules, in the cluster or a namespace; in effect when this returns."""
    plural, kind = ("roles", "Role") if namespace else ("clusterroles", "ClusterRole")
    bindings = "rolebindings" if namespace else "clusterrolebindings"
    made = await server.client.post(place(plural, namespace), role(name, *rules))
    assert made.status == 201, made.body
    bound = binding(name, name, JANE, kind=kind)
    made = await server.client.post(place(bindings, namespace), bound)
    assert made.status == 201, made.body
    await freshen(server)


async def freshen(server: RunningServer) -> None:
    """Waits until the server's decisions reflect all acknowledged writes."""
    assert server.assembly.rbac is not None
    await server.assembly.rbac.freshen()


async def until(ask: Callable[[], Awaitable[Reply]], status: int) -> Reply:
    """Repeats the request until it gets this status; returns the response."""
    clock = Runtime.system().clock
    async with clock.timeout(SECONDS_MAX):
        while (reply := await ask()).status != status:
            await clock.sleep(0.01)
    return reply
