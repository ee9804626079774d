"""Owner references need permission: a client cannot have an object deleted, or block the
deletion of an owner, without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from restow.admission.owner_references import OwnerCheck
from restow.registry.resource import Object
from restow.request.context import Context
from tests.conformance.api.rights import client_of, give, rule
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, config_map
from tests.support.api_client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiClient

ITEM = f"{CONFIG_MAPS}/mine"
NO_DELETE = (
    'configmaps "mine" is forbidden: cannot set an ownerRef on a resource you can\'t delete:'
    " , <nil>"
)
NO_FINALIZERS = (
    "is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you"
    " can't set finalizers on: , <nil>"
)


@pytest.fixture
def driver() -> str:
    """These tests do not depend on the store."""
    return "memory"


@pytest_asyncio.fixture
async def jane(server: RunningServer) -> AsyncIterator[ApiClient]:
    """A user who may write ConfigMaps but not delete them."""
    await give(server, "writer", rule("get create update patch", "configmaps"))
    reply = await server.client.post(CONFIG_MAPS, config_map("mine"))
    assert reply.status == 201
    client = client_of(server)
    yield client
    await client.close()


def owner(name: str = "o", kind: str = "Secret", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}", **fields}


def owned(*owners: dict[str, Any], name: str = "mine") -> dict[str, Any]:
    return config_map(name, ownerReferences=list(owners))


async def test_setting_owners_needs_delete_permission(
    server: RunningServer, jane: ApiClient
) -> None:
    """Adding or removing an owner is refused by every verb and patch type, in a dry run too."""
    patch = {"metadata": {"ownerReferences": [owner("gone", "Node")]}}
    [references] = patch.values()
    operations = [
        {"op": "add", "path": "/metadata/ownerReferences", "value": references["ownerReferences"]}
    ]
    for query in ("", "?dryRun=All"):
        for reply in (
            await jane.put(f"{ITEM}{query}", owned(owner("gone", "Node"))),
            await jane.patch(f"{ITEM}{query}", patch, content_type=MERGE_PATCH),
            await jane.patch(f"{ITEM}{query}", patch, content_type=STRATEGIC_PATCH),
            await jane.patch(f"{ITEM}{query}", operations, content_type=JSON_PATCH),
        ):
            assert (reply.status, reply.reason) == (403, "Forbidden"), reply.body
            assert reply.message == NO_DELETE
    assert "ownerReferences" not in (await jane.get(ITEM)).json["metadata"]
    assert (await server.client.put(ITEM, owned(owner()))).status == 200  # system:masters may
    taken = {"metadata": {"ownerReferences": None}}
    assert (await jane.patch(ITEM, taken, content_type=MERGE_PATCH)).message == NO_DELETE
    # Writes that do not change the owner references need no permission.
    change = {"data": {"a": "b"}}
    assert (await jane.patch(ITEM, change, content_type=MERGE_PATCH)).status == 200
    assert (await jane.put(ITEM, owned(owner()))).status == 200
    await give(server, "deleter", rule("delete", "configmaps", names="mine"))
    assert (await jane.patch(ITEM, taken, content_type=MERGE_PATCH)).status == 200


async def test_owner_references_set_by_a_webhook_on_scale(
    server: RunningServer, jane: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Scale has no owner references, but a webhook on it may set them: the result is checked
    like every other update."""
    labels = {"app": "d"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    made = await server.client.post(deployments, {"metadata": {"name": "d"}, "spec": spec})
    assert made.status == 201, made.body
    await give(server, "scaler", rule("get update patch", "deployments/scale", "apps"))
    asked: list[tuple[str, Any]] = []

    def check(_self: OwnerCheck, context: Context, obj: Object, old: Object | None) -> None:
        assert old is not None
        asked.append((context.info.verb, obj["spec"]["replicas"]))

    monkeypatch.setattr(OwnerCheck, "check", check)
    path = f"{deployments}/d/scale"
    assert (await jane.patch(path, {"spec": {"replicas": 2}})).status == 200
    scale = {"metadata": {"name": "d"}, "spec": {"replicas": 3}}
    assert (await jane.put(path, scale)).status == 200
    assert asked == [("patch", 2), ("update", 3)]


async def test_owners_in_a_create(jane: ApiClient) -> None:
    """A create may name an owner without delete permission; only blockOwnerDeletion needs more."""
    assert (await jane.post(CONFIG_MAPS, owned(owner(), name="a"))).status == 201
    held = owned(owner(blockOwnerDeletion=True), name="b")
    for query in ("", "?dryRun=All"):
        reply = await jane.post(f"{CONFIG_MAPS}{query}", held)
        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == f'configmaps "b" {NO_FINALIZERS}'
    put = await jane.put(f"{CONFIG_MAPS}/b", held)
    assert put.status in (403, 404)


async def test_block_owner_deletion_needs_permission_on_finalizers(
    server: RunningServer, jane: ApiClient
) -> None:
    """Permission on that owner's finalizers is needed, in its namespace; unless it was set
    before."""
    await give(server, "deleter", rule("delete", "configmaps"))
    assert (await jane.put(ITEM, owned(owner()))).status == 200
    held = owned(owner(blockOwnerDeletion=True))
    assert (await jane.put(ITEM, held)).message == f'configmaps "mine" {NO_FINALIZERS}'
    await give(server, "holder", rule("update", "secrets/finalizers", names="o"))
    assert (await jane.put(ITEM, held)).status == 200
    other = owned(owner(blockOwnerDeletion=True), owner("x", blockOwnerDeletion=True))
    assert (await jane.put(ITEM, other)).status == 403
    assert (await jane.put(ITEM, owned(owner(blockOwnerDeletion=True), owner("x")))).status == 200
    # A cluster-scoped owner is authorized without a namespace.
    node = owner("n", "Node", blockOwnerDeletion=True)
    assert (await jane.put(ITEM, owned(node))).status == 403
    await give(server, "nodes", rule("update", "nodes/finalizers"), namespace="default")
    assert (await jane.put(ITEM, owned(node))).status == 403
    await give(server, "all-nodes", rule("update", "nodes/finalizers"))
    assert (await jane.put(ITEM, owned(node))).status == 200


async def test_owners_of_unknown_kinds(server: RunningServer, jane: ApiClient) -> None:
    """Only a user with permission on all resources may block the deletion of an unknown kind."""
    strange = {**owner("s", "Strange", blockOwnerDeletion=True), "apiVersion": "example.com/v1"}
    reply = await jane.post(CONFIG_MAPS, owned(strange, name="c"))
    assert reply.status == 403
    assert reply.message == (
        'configmaps "c" is forbidden: cannot set blockOwnerDeletion in this case because cannot'
        " find RESTMapping for APIVersion example.com/v1 Kind Strange: no matches for kind"
        ' "Strange" in version "example.com/v1"'
    )
    await give(server, "all", rule("update", "*/finalizers", group="*"))
    assert (await jane.post(CONFIG_MAPS, owned(strange, name="c"))).status == 201
