"""Privilege escalation prevention: users cannot grant more than they have, however a role or
binding is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api.rights import (
    JANE,
    RBAC,
    at,
    binding,
    client_of,
    freshen,
    give,
    place,
    role,
    rule,
)
from tests.conformance.api.servers import RunningServer
from tests.support.api_client import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiClient,
    Reply,
)

WRITE = rule("get create update patch delete", "*", RBAC)
MORE = rule("get", "secrets")
HELD = rule("get create", "roles", RBAC)


async def ways(
    client: ApiClient, path: str, obj: dict[str, Any], patch: dict[str, Any], query: str
) -> list[Reply]:
    """Returns the same change for each way to write an existing object."""
    name = obj["metadata"]["name"]
    item = f"{path}/{name}{query}"
    [[field, value]] = patch.items()
    operations = [{"op": "add", "path": f"/{field}", "value": value}]
    return [
        await client.put(item, obj),
        await client.patch(item, patch, content_type=MERGE_PATCH),
        await client.patch(item, patch, content_type=STRATEGIC_PATCH),
        await client.patch(item, operations, content_type=JSON_PATCH),
        # And for an object that does not exist yet.
        await client.post(f"{path}{query}", {**obj, "metadata": {"name": "new"}}),
        await client.put(f"{path}/new{query}", {**obj, "metadata": {"name": "new"}}),
    ]


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
@pytest.mark.parametrize("namespace", ["", "default"])
async def test_a_role_with_every_verb(server: RunningServer, namespace: str, query: str) -> None:
    """Rules that the user does not hold are refused by each verb and patch; nothing is written."""
    plural = "roles" if namespace else "clusterroles"
    path = place(plural, namespace)
    await give(server, "writer", WRITE)
    jane = client_of(server)
    assert (await jane.post(path, role("mine", HELD))).status == 201
    before = (await jane.get(f"{path}/mine")).json
    for reply in await ways(jane, path, role("mine", HELD, MORE), {"rules": [HELD, MORE]}, query):
        assert (reply.status, reply.reason) == (403, "Forbidden"), reply.body
        assert reply.json["details"]["kind"] == plural
        assert reply.message.split(" is forbidden: ")[1] == (
            'user "jane" (groups=["developers" "system:authenticated"]) is attempting to grant'
            " RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
        )
    assert (await jane.get(f"{path}/mine")).json == before
    assert (await jane.get(f"{path}/new")).status == 404
    await jane.close()


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_a_binding_with_every_verb(server: RunningServer, query: str) -> None:
    """A role that the user does not fully hold cannot be bound, in a namespace or the cluster."""
    await give(server, "writer", WRITE)
    await server.client.post(place("clusterroles"), role("more", HELD, MORE))
    jane = client_of(server)
    subjects = [JANE]
    for path in (place("rolebindings", "default"), place("clusterrolebindings")):
        empty = binding("b", "more")
        assert (await server.client.post(path, empty)).status == 201
        full = binding("b", "more", JANE)
        for reply in await ways(jane, path, full, {"subjects": subjects}, query):
            assert (reply.status, reply.reason) == (403, "Forbidden"), reply.body
            assert 'Resources:["secrets"], Verbs:["get"]' in reply.message
        assert not (await jane.get(f"{path}/b")).json.get("subjects")
    await jane.close()


async def test_held_permissions_may_be_granted(server: RunningServer) -> None:
    """Permissions of a namespace can be granted there; granted permissions count at once."""
    await give(server, "writer", WRITE)
    await give(server, "secrets", MORE, namespace="default")
    jane = client_of(server)
    local, wide = place("roles", "default"), place("clusterroles")
    assert (await jane.post(local, role("s", MORE))).status == 201
    assert (await jane.post(wide, role("s", MORE))).status == 403
    bound = binding("s", "s", {**JANE, "name": "bob"}, kind="Role")
    assert (await jane.post(place("rolebindings", "default"), bound)).status == 201
    # No waiting: the permissions and the role are read from the store.
    for number in range(5):
        name = f"r{number}"
        right = rule("get", "nodes", names=name)
        await server.client.post(wide, role(name, right))
        await server.client.post(place("clusterrolebindings"), binding(name, name, JANE))
        assert (await jane.post(wide, role(f"mine-{name}", right))).status == 201, name
        other = binding(f"mine-{name}", f"mine-{name}", {**JANE, "name": "bob"})
        assert (await jane.post(place("clusterrolebindings"), other)).status == 201, name
    await jane.close()


async def test_escalate_and_bind(server: RunningServer) -> None:
    """`escalate` and `bind` allow granting more: on that kind, or that one role."""
    await give(server, "writer", WRITE)
    jane, admin = client_of(server), server.client
    roles, bindings = place("clusterroles"), place("clusterrolebindings")
    await admin.post(roles, role("big", rule("*", "*", "*")))
    await give(server, "one", rule("escalate", "clusterroles", RBAC, names="named"))
    refused = await jane.post(roles, role("named", MORE))
    assert refused.status == 403, "a create has no name"
    assert (await jane.put(f"{roles}/named", role("named", MORE))).status == 201
    assert (await jane.put(f"{roles}/other", role("other", MORE))).status == 403
    assert (await jane.post(bindings, binding("b", "big", JANE))).status == 403
    await give(server, "binder", rule("bind", "clusterroles", RBAC, names="big"))
    assert (await jane.post(bindings, binding("b", "named", JANE))).status == 403
    made = await jane.post(bindings, binding("b", "big", {**JANE, "name": "bob"}))
    assert made.status == 201
    await give(server, "escalator", rule("escalate", "clusterroles", RBAC))
    assert (await jane.post(roles, role("any", MORE, at("*", "*")))).status == 201
    assert (await jane.post(place("roles", "default"), role("any", MORE))).status == 403
    await jane.close()


async def test_aggregated_roles_need_cluster_admin(server: RunningServer) -> None:
    """A role with an aggregation rule can be created and changed by cluster-admins only."""
    await give(server, "writer", WRITE)
    jane, roles = client_of(server), place("clusterroles")
    gathering = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    why = "must have cluster-admin privileges to use the aggregationRule"
    refused = await jane.post(roles, role("g", aggregationRule=gathering))
    assert (refused.status, refused.message.split(": ", 1)[1]) == (403, why)
    assert (await server.client.post(roles, role("g", aggregationRule=gathering))).status == 201
    for patch in ({"aggregationRule": None}, {"metadata": {"labels": {"x": "y"}}}):
        refused = await jane.patch(f"{roles}/g", patch)
        assert (refused.status, refused.message.split(": ", 1)[1]) == (403, why), patch
    await give(server, "all", rule("*", "*", "*"), at("*", "*"))
    assert (await jane.patch(f"{roles}/g", {"aggregationRule": None})).status == 200
    await jane.close()


async def test_finalizers_of_a_role_may_change(server: RunningServer) -> None:
    """Finalizers of a role that the user does not hold may be changed, to let it be deleted;
    labels not."""
    await give(server, "writer", WRITE)
    jane, roles = client_of(server), place("clusterroles")
    await server.client.post(roles, role("big", rule("*", "*", "*")))
    held = await jane.patch(f"{roles}/big", {"metadata": {"finalizers": ["example.com/f"]}})
    assert held.status == 200
    refused = await jane.patch(f"{roles}/big", {"metadata": {"labels": {"a": "b"}}})
    assert refused.status == 403
    assert (await jane.delete(f"{roles}/big")).status == 200
    assert (await jane.patch(f"{roles}/big", {"metadata": {"finalizers": None}})).status == 200
    await jane.close()


async def test_a_role_that_is_not_there(server: RunningServer) -> None:
    """Binding a missing role needs `bind`; system:masters may, and it grants nothing."""
    await give(server, "writer", WRITE)
    jane = client_of(server)
    for kind, plural, path in (
        ("ClusterRole", "clusterroles", place("clusterrolebindings")),
        ("Role", "roles", place("rolebindings", "default")),
    ):
        missing = binding("b", "none", JANE, kind=kind)
        reply = await jane.post(path, missing)
        assert (reply.status, reply.message) == (404, f'{plural}.{RBAC} "none" not found')
        assert (await server.client.post(path, missing)).status == 201
    await freshen(server)
    lack = f'RBAC: [clusterrole.{RBAC} "none" not found, role.{RBAC} "none" not found]'
    refused = await jane.get("/api/v1/namespaces/default/pods")
    assert refused.message.endswith(f'in the namespace "default": {lack}')
    refused = await jane.post(place("clusterroles"), role("x", MORE))
    assert refused.message.endswith(f'; resolution errors: [clusterrole.{RBAC} "none" not found]')
    await jane.close()


async def test_a_huge_role_is_refused_at_once(server: RunningServer) -> None:
    """A role of a billion permissions costs no more than its bytes."""
    await give(server, "writer", WRITE)
    jane = client_of(server)
    words = " ".join(f"w{number}" for number in range(1_000))
    huge = {**rule(words, words), "apiGroups": words.split()}
    refused = await jane.post(place("clusterroles"), role("huge", huge))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    await jane.close()
