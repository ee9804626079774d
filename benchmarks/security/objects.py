"""Objects of a server with all features: account, role, webhook, policy, quota.

Webhook, policy and quota match one resource: the measured one, or another, as is the case for most
writes and most rules of a cluster.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.api.connection import Connection
from benchmarks.api.requests import NAMESPACE
from benchmarks.api.target import Target
from tests.support.admission_webhook import AdmissionWebhook

ACCOUNT: Final = "bench"
MEASURED: Final = "configmaps"
OTHER: Final = "secrets"
QUOTA_MAX: Final = 10_000_000
TOKEN_SECONDS: Final = 24 * 3600
SETTLE_SECONDS_MAX: Final = 20.0
VERBS: Final = ["get", "list", "watch", "create", "update", "patch", "delete"]

Object = dict[str, Any]
_CORE: Final = "/api/v1"
_NAMESPACED: Final = f"{_CORE}/namespaces/{NAMESPACE}"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


async def with_everything(target: Target, *, about: str, webhook: Object) -> Target:
    """Return a target of the same server, with the token of an account that may do the measured
    requests, after creating rules for one resource, which must be active before the first write."""
    connection = await Connection.open(target)
    for path, obj in (*_rights(), *_rules(about, webhook)):
        code, body = await connection.send("POST", path, obj)
        if code != 201:
            raise SystemExit(f"{target.name}: {path}: {code} {body[:300]!r}")
    path = f"{_NAMESPACED}/serviceaccounts/{ACCOUNT}/token"
    options = {"spec": {"expirationSeconds": TOKEN_SECONDS, "audiences": None}}
    code, body = await connection.send("POST", path, options)
    if code != 201:
        raise SystemExit(f"{target.name}: token: {code} {body[:300]!r}")
    await _settle(connection, about)
    connection.close()
    return replace(target, token=orjson.loads(body)["status"]["token"])


def _rights() -> Iterator[tuple[str, Object]]:
    yield f"{_NAMESPACED}/serviceaccounts", {"metadata": {"name": ACCOUNT}}
    rules = [{"apiGroups": [""], "resources": [MEASURED], "verbs": VERBS}]
    role = {"metadata": {"name": ACCOUNT}, "rules": rules}
    yield f"{_RBAC}/namespaces/{NAMESPACE}/roles", role
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    binding = {"metadata": {"name": ACCOUNT}, "roleRef": reference, "subjects": [subject]}
    yield f"{_RBAC}/namespaces/{NAMESPACE}/rolebindings", binding


def _rules(about: str, webhook: Object) -> Iterator[tuple[str, Object]]:
    """A validating webhook, a policy with its binding, a quota."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [about], "operations": ["*"]}
    named = {"metadata": {"name": "bench.example.org"}}
    hook = {**webhook, "rules": [rule]}
    yield f"{_ADMISSION}/validatingwebhookconfigurations", {**named, "webhooks": [hook]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "request.operation == 'DELETE' || has(object.data)"}],
    }
    yield f"{_ADMISSION}/validatingadmissionpolicies", {**named, "spec": spec}
    bound = {"policyName": "bench.example.org", "validationActions": ["Deny"]}
    yield f"{_ADMISSION}/validatingadmissionpolicybindings", {**named, "spec": bound}
    hard = {"hard": {f"count/{about}": str(QUOTA_MAX)}}
    yield f"{_NAMESPACED}/resourcequotas", {"metadata": {"name": "bench"}, "spec": hard}


async def _settle(connection: Connection, about: str) -> None:
    """Wait until the quota is counted, which is the last rule to become active."""
    end = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < end:
        _, body = await connection.send("GET", f"{_NAMESPACED}/resourcequotas/bench")
        if f"count/{about}" in (orjson.loads(body).get("status") or {}).get("used", {}):
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the quota was not counted in time")


@contextmanager
def running_webhook() -> Iterator[Object]:
    """Run a webhook that allows everything in a separate process; yield its client config."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    with tempfile.TemporaryDirectory(prefix="restow-bench-webhook-") as directory:
        process = spawn.Process(target=_serve_webhook, args=(Path(directory), there), daemon=True)
        process.start()
        there.close()  # otherwise the end of the process would go unnoticed
        try:
            yield here.recv()
        finally:
            process.terminate()
            process.join(10)


def _serve_webhook(directory: Path, pipe: Pipe) -> None:
    async def serve() -> None:
        webhook = await AdmissionWebhook.start(directory)
        pipe.send(webhook.hook())
        while True:
            await asyncio.sleep(1)
            webhook.forget()

    asyncio.run(serve())
