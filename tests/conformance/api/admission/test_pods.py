"""Admission of pods and claims: limit ranges and service accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from restow.apimachinery.jwt_keys import KeySet, SigningKey
from restow.apiserver.service_accounts import AccountRules
from restow.authentication.service_accounts import AccountTrust
from restow.endpoints.handlers.token_request import TokenLimits
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import NS, TOKEN, RunningServer, start_server
from tests.support.api_client import ApiClient

PODS, CLAIMS, RANGES = f"{NS}/pods", f"{NS}/persistentvolumeclaims", f"{NS}/limitranges"
STRATEGIC = "application/strategic-merge-patch+json"
KEY = SigningKey(ec.generate_private_key(ec.SECP256R1()))
RULES = AccountRules(
    trust=AccountTrust(
        signing=KEY, keys=KeySet([KEY.public]), issuers=("https://i",), audiences=("https://i",)
    ),
    limits=TokenLimits(seconds_max=7200, extends=True),
)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    """A server with service account tokens, and the accounts `default` and `bob`."""
    storage = MemoryStorage()
    server = await start_server(storage, accounts=RULES)
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    for name in ("default", "bob"):
        made = await server.client.post(f"{NS}/serviceaccounts", {"metadata": {"name": name}})
        assert made.status == 201
    yield server
    await server.stop()
    await storage.close()


@pytest.fixture
def api(server: RunningServer) -> ApiClient:
    return server.client


def pod(name: str, *, cpu: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    resources = {side: {"cpu": amount} for side, amount in (cpu or {}).items()}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def claim(name: str, storage: str) -> dict[str, Any]:
    resources = {"requests": {"storage": storage}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return {"metadata": {"name": name}, "spec": spec}


async def limit(api: ApiClient, **limits: Any) -> None:
    reply = await api.post(RANGES, {"metadata": {"name": "l"}, "spec": {"limits": [limits]}})
    assert (reply.status, reply.warnings) == (201, [])


async def test_limit_ranges_of_containers(api: ApiClient) -> None:
    """They set defaults, refuse values out of bounds, and have no effect after deletion."""
    await limit(api, type="Container", default={"cpu": "2"}, max={"cpu": "3"})
    made = await api.post(PODS, pod("a"))
    assert made.status == 201, made.message
    [container] = made.json["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}
    annotations = made.json["metadata"]["annotations"]
    assert annotations["kubernetes.io/limit-ranger"].startswith("LimitRanger plugin set: cpu")
    assert made.json["status"]["qosClass"] == "Burstable"
    much = await api.post(PODS, pod("b", cpu={"limits": "4"}))
    assert (much.status, much.reason) == (403, "Forbidden")
    assert much.message == (
        'pods "b" is forbidden: maximum cpu usage per Container is 3, but limit is 4'
    )
    grown = {"name": "c", "resources": {"limits": {"cpu": "5"}}}
    patch = {"spec": {"containers": [grown]}}
    resized = await api.patch(f"{PODS}/a/resize", patch, content_type=STRATEGIC)
    assert resized.status == 403
    # Updates that are no resize are not checked.
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await api.patch(f"{PODS}/a", label, content_type=STRATEGIC)).status == 200
    await api.delete(f"{RANGES}/l")
    await api.get(RANGES)
    assert (await api.post(PODS, pod("b", cpu={"limits": "4"}))).status == 201


async def test_limit_ranges_of_claims(api: ApiClient) -> None:
    """Claims are checked on create and update; other objects are not."""
    assert (await api.post(CLAIMS, claim("old", "9Gi"))).status == 201
    await limit(api, type="PersistentVolumeClaim", max={"storage": "1Gi"})
    assert (await api.post(CLAIMS, claim("a", "1Gi"))).status == 201
    refused = await api.post(CLAIMS, claim("b", "2Gi"))
    assert refused.status == 403
    assert refused.message.endswith("PersistentVolumeClaim is 1Gi, but request is 2Gi")
    label = {"metadata": {"labels": {"a": "b"}}}
    assert (await api.patch(f"{CLAIMS}/old", label, content_type=STRATEGIC)).status == 403
    assert (await api.post(PODS, pod("p"))).status == 201
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    elsewhere = "/api/v1/namespaces/other/persistentvolumeclaims"
    assert (await api.post(elsewhere, claim("b", "2Gi"))).status == 201


async def test_pods_run_as_accounts(api: ApiClient) -> None:
    """A pod gets the default account, or the one it names, with a token; the account must exist."""
    made = await api.post(PODS, pod("a"))
    assert made.status == 201, made.message
    spec = made.json["spec"]
    assert spec["serviceAccountName"] == "default"
    [volume] = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert spec["containers"][0]["volumeMounts"][0]["name"] == volume["name"]
    own = await api.post(
        PODS, pod("b", serviceAccountName="bob", automountServiceAccountToken=False)
    )
    assert own.json["spec"]["serviceAccount"] == "bob"
    assert "volumes" not in own.json["spec"]
    body = pod("", serviceAccountName="eve")
    body["metadata"] = {"generateName": "gen-"}
    refused = await api.post(PODS, body)
    assert refused.status == 403
    why = 'error looking up service account default/eve: serviceaccount "eve" not found'
    assert refused.message == f'pods "gen-" is forbidden: {why}'


async def test_an_account_created_shortly_after_the_pod(server: RunningServer) -> None:
    """A pod in a new namespace waits for the default account."""
    api = server.client
    await api.post("/api/v1/namespaces", {"metadata": {"name": "new"}})
    account = {"metadata": {"name": "default"}}
    async with asyncio.TaskGroup() as both:
        made = both.create_task(api.post("/api/v1/namespaces/new/pods", pod("a")))
        other = ApiClient(server.port, token=TOKEN)
        both.create_task(other.post("/api/v1/namespaces/new/serviceaccounts", account))
    await other.close()
    assert made.result().status == 201, made.result().message


async def test_mirror_pods(api: ApiClient) -> None:
    """Mirror pods are not changed, and may name no account."""
    body = pod("a", nodeName="n")
    body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    made = await api.post(PODS, body)
    assert made.status == 201, made.message
    assert "serviceAccountName" not in made.json["spec"]
    body["metadata"]["name"], body["spec"]["serviceAccountName"] = "b", "bob"
    refused = await api.post(PODS, body)
    assert refused.message.endswith("a mirror pod may not reference service accounts")
