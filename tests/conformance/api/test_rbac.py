"""Authorization by roles and bindings, over HTTP."""

from __future__ import annotations

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
    until,
)
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import ApiClient

OTHER = "/api/v1/namespaces/other"


async def statuses(client: ApiClient, *targets: str) -> list[int]:
    return [(await client.get(each)).status for each in targets]


async def test_a_role_in_a_namespace(server: RunningServer) -> None:
    """A Role grants its verbs on its resources in its namespace, and nothing else."""
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await give(server, "reader", rule("get list watch", "configmaps"), namespace="default")
    jane = client_of(server)
    assert await statuses(
        jane,
        CONFIG_MAPS,
        f"{CONFIG_MAPS}/missing",
        f"{OTHER}/configmaps",
        "/api/v1/configmaps",
        f"{NS}/secrets",
        NS,
        f"/apis/apps/v1{NS[7:]}/configmaps",
    ) == [200, 404, 403, 403, 403, 403, 403]
    assert (await jane.post(CONFIG_MAPS, config_map("a"))).status == 403
    assert (await jane.delete(CONFIG_MAPS)).status == 403
    await jane.close()


async def test_a_cluster_role(server: RunningServer) -> None:
    """Bound by a ClusterRoleBinding it applies everywhere; by a RoleBinding, in that namespace
    only."""
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    made = role("nodes-and-maps", rule("get list", "nodes configmaps namespaces"))
    assert (await server.client.post(place("clusterroles"), made)).status == 201
    local = binding("local", "nodes-and-maps", JANE)
    assert (await server.client.post(place("rolebindings", "default"), local)).status == 201
    await freshen(server)
    jane = client_of(server)
    everything = (CONFIG_MAPS, NS, f"{OTHER}/configmaps", "/api/v1/nodes", "/api/v1/configmaps")
    assert await statuses(jane, *everything) == [200, 200, 403, 403, 403]
    wide = binding("wide", "nodes-and-maps", JANE)
    assert (await server.client.post(place("clusterrolebindings"), wide)).status == 201
    await freshen(server)
    assert await statuses(jane, *everything) == [200] * 5
    await jane.close()


async def test_names(server: RunningServer) -> None:
    """A rule with resourceNames covers these objects, and lists by that name only; it never allows
    create."""
    for name in ("a", "b"):
        await server.client.post(CONFIG_MAPS, config_map(name))
    verbs = "get list watch create update patch delete deletecollection"
    await give(server, "one", rule(verbs, "configmaps", names="a"), namespace="default")
    jane = client_of(server)
    one = f"{CONFIG_MAPS}?fieldSelector=metadata.name"
    assert await statuses(
        jane,
        f"{CONFIG_MAPS}/a",
        f"{CONFIG_MAPS}/a",
        f"{CONFIG_MAPS}/b",
        CONFIG_MAPS,
        f"{one}=a",
        f"{one}%3D%3Da",
        f"{one}=a,metadata.namespace=default",
        f"{one}=b",
        f"{one}!=a",
        f"{one}=b,metadata.name=a",
        f"{one}=",
        f"{one}=..%2Fa",
        f"{one}",
    ) == [200, 200, 403, 403, 200, 200, 200, 403, 403, 403, 403, 403, 403]
    assert (await jane.get(f"{one}=a")).names == ["a"]
    assert (await jane.post(CONFIG_MAPS, config_map("a"))).status == 403
    assert (await jane.delete(CONFIG_MAPS)).status == 403
    assert (await jane.delete(f"{one}=a")).status == 403
    assert (await jane.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})).status == 200
    assert (await jane.patch(f"{CONFIG_MAPS}/b", {"data": {"x": "1"}})).status == 403
    watch = await jane.watch(f"{one}=a&watch=true&timeoutSeconds=1")
    await watch.close()
    await jane.close()


async def test_subresources(server: RunningServer) -> None:
    """A subresource is a resource of its own; `*/scale` covers that subresource of every
    resource."""
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    await give(server, "whole", rule("get", "deployments", "apps"), namespace="default")
    jane = client_of(server)
    parts = (f"{deployments}/d", f"{deployments}/d/scale", f"{deployments}/d/status")
    assert await statuses(jane, *parts) == [404, 403, 403]
    await give(server, "scales", rule("get", "*/scale", "apps"), namespace="default")
    assert await statuses(jane, *parts) == [404, 404, 403]
    await give(server, "status", rule("get", "deployments/status", "apps"), namespace="default")
    assert await statuses(jane, *parts) == [404, 404, 404]
    assert (await jane.get("/apis/apps/v1/namespaces/default/replicasets/r/scale")).status == 404
    assert (await jane.get(f"{NS}/replicationcontrollers/r/scale")).status == 403
    await jane.close()


async def test_paths(server: RunningServer) -> None:
    """Rules for nonResourceURLs cover these paths, and everything below with a trailing `*`."""
    await give(server, "paths", at("get", "/metrics /livez/*"))
    jane = client_of(server)
    assert await statuses(jane, "/metrics", "/livez/ping", "/readyz/ping", "/") == [
        200, 200, 403, 403,
    ]  # fmt: skip
    assert (await jane.request("POST", "/metrics", {})).status == 403
    await jane.close()


async def test_a_trailing_slash_is_authorized_as_the_served_path(server: RunningServer) -> None:
    """A path with a trailing slash is authorized as the path that is served for it."""
    await give(server, "below", at("get", "/metrics/* /dashboards/*"))
    jane = client_of(server)
    refused = ("/metrics", "/metrics/", "/dashboards/", "/", "//")
    assert await statuses(jane, *refused) == [403] * 5
    assert await statuses(jane, "/metrics/slis", "/metrics/slis/", "/livez/") == [200] * 3
    assert await statuses(server.client, "/metrics/", "/livez/", "//") == [200] * 3
    await jane.close()


async def test_default_roles(server: RunningServer) -> None:
    """With no roles stored, the default roles apply, and grant exactly what they list."""
    anonymous, jane = ApiClient(server.port, token=None), client_of(server)
    public = ("/healthz", "/livez", "/readyz", "/version", "/version/", "/dashboard/")
    known = ("/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/api/v1")
    for path in public:
        assert await statuses(anonymous, path) != [403], path
    assert await statuses(anonymous, *known) == [403] * 5
    assert await statuses(jane, *known) == [200] * 5
    for client in (anonymous, jane):
        assert await statuses(client, "/metrics", "/livez/ping", "/", "/dashboards") == [403] * 4
        await client.close()


async def test_role_changes_take_effect(server: RunningServer) -> None:
    """Cached decisions are dropped when a role or binding is created, changed or deleted."""
    admin, jane = server.client, client_of(server)
    assert (await jane.get(CONFIG_MAPS)).status == 403
    await give(server, "reader", rule("list", "configmaps"), namespace="default")
    roles, bindings = place("roles", "default"), place("rolebindings", "default")

    async def ask(status: int) -> None:
        await until(lambda: jane.get(CONFIG_MAPS), status)

    await ask(200)
    await admin.patch(f"{roles}/reader", {"rules": [rule("list", "secrets")]})
    await ask(403)
    await admin.patch(f"{roles}/reader", {"rules": [rule("*", "*")]})
    await ask(200)
    await admin.patch(f"{bindings}/reader", {"subjects": []})
    await ask(403)
    await admin.patch(f"{bindings}/reader", {"subjects": [JANE]})
    await ask(200)
    await admin.delete(f"{roles}/reader")
    await ask(403)
    refused = await jane.get(CONFIG_MAPS)
    assert refused.message.endswith(
        f'in the namespace "default": RBAC: role.{RBAC} "reader" not found'
    )
    await admin.post(roles, role("reader", rule("list", "configmaps")))
    await ask(200)
    await admin.delete(f"{bindings}/reader")
    await ask(403)
    await jane.close()


async def test_a_deleted_default_has_no_effect(server: RunningServer) -> None:
    """Once a default binding has been read from the store, the stored version applies, and none
    after its deletion."""
    jane, bindings = client_of(server), place("clusterrolebindings")
    everybody = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}
    made = binding("system:discovery", "system:discovery", everybody)
    assert (await jane.get("/apis")).status == 200
    assert (await server.client.post(bindings, made)).status == 201
    await freshen(server)
    assert (await jane.get("/apis")).status == 200
    assert (await server.client.delete(f"{bindings}/system:discovery")).status == 200
    await until(lambda: jane.get("/apis"), 403)
    await jane.close()


@pytest.mark.parametrize(
    "subject",
    [
        {"apiGroup": RBAC, "kind": "Group", "name": "developers"},
        {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"},
    ],
)
async def test_groups(server: RunningServer, subject: dict[str, str]) -> None:
    """A user has the permissions of its groups; anonymous users are in another group."""
    await server.client.post(place("clusterroles"), role("r", rule("list", "configmaps")))
    await server.client.post(place("rolebindings", "default"), binding("r", "r", subject))
    await freshen(server)
    anonymous, jane = ApiClient(server.port, token=None), client_of(server)
    assert (await jane.get(CONFIG_MAPS)).status == 200
    assert (await anonymous.get(CONFIG_MAPS)).status == 403
    await anonymous.close()
    await jane.close()


async def test_server_owned_objects_stay_read_only(server: RunningServer) -> None:
    """A user with all permissions still cannot write the objects that servers own."""
    await give(server, "all", rule("*", "*", "*"), at("*", "*"))
    jane = client_of(server)
    versions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
    made = await jane.post(versions, {"metadata": {"name": "apps.deployments"}, "spec": {}})
    assert made.status == 201
    entry = {
        "apiServerID": "apiserver-1",
        "encodingVersion": "apps/v1",
        "decodableVersions": ["apps/v1"],
    }
    agreed = {"storageVersions": [entry], "commonEncodingVersion": "apps/v1"}
    forged = {**made.json, "status": agreed}
    refused = await jane.put(f"{versions}/apps.deployments/status", forged)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "its status is written by the API servers alone" in refused.message
    await jane.close()


async def test_storage_versions_and_migrations_need_own_permissions(server: RunningServer) -> None:
    """Write access to objects includes neither storage versions nor migrations; each is a
    permission of its own."""
    group = "internal.apiserver.k8s.io"
    await give(server, "versions", rule("*", "storageversions", group))
    await give(server, "migrations", rule("get list", "storageversionmigrations", "*"))
    jane = client_of(server)
    versions = f"/apis/{group}/v1alpha1/storageversions/apps.deployments"
    assert (await jane.post(f"{versions}/report", {})).status == 403
    migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"
    assert (await jane.get(migrations)).status == 200
    assert (await jane.post(migrations, {"metadata": {"name": "m"}})).status == 403
    assert (await jane.post(f"{migrations}/m/rewrite", {})).status == 403
    await jane.close()


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_an_update_that_creates_needs_both_rights(server: RunningServer, query: str) -> None:
    """A user who may only update an object cannot create it by an update."""
    leases = f"/apis/coordination.k8s.io/v1{NS[7:]}/leases"
    lease = {"metadata": {"name": "new"}, "spec": {}}
    await give(server, "updater", rule("update", "leases", "coordination.k8s.io"))
    jane = client_of(server)
    refused = await jane.request("PUT", f"{leases}/new{query}", lease)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'leases.coordination.k8s.io "new" is forbidden: User "jane" cannot create resource'
        ' "leases" in API group "coordination.k8s.io" in the namespace "default"'
    )
    assert (await server.client.get(f"{leases}/new")).status == 404
    await give(server, "creator", rule("create", "leases", "coordination.k8s.io"))
    assert (await jane.request("PUT", f"{leases}/new{query}", lease)).status == 201
    await jane.close()
