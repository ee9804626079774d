"""Objects that are larger than the limit of the store."""

from __future__ import annotations

from restow.request.limits import RequestLimits
from tests.conformance.limits.servers import limited

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
MIB = 1024 * 1024


def role(nbytes: int) -> dict[str, object]:
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["x" * nbytes],
        "verbs": ["get"],
    }
    return {"metadata": {"name": "large"}, "rules": [rule]}


async def test_an_object_too_large_for_the_store() -> None:
    """Create, update and patch to that size are a 413; the stored object is unchanged."""
    async with limited(RequestLimits()) as server:
        root = server.server.client
        created = await root.post(ROLES, role(2 * MIB))
        assert (created.status, created.json["reason"]) == (413, "RequestEntityTooLarge")
        assert (await root.get(f"{ROLES}/large")).status == 404
        assert (await root.post(ROLES, role(MIB))).status == 201
        before = (await root.get(f"{ROLES}/large")).json
        patch = {"rules": [*before["rules"], *role(MIB)["rules"]]}  # type: ignore[misc]
        for reply in (
            await root.put(f"{ROLES}/large", role(2 * MIB)),
            await root.patch(f"{ROLES}/large", patch),
        ):
            assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
        assert (await root.get(f"{ROLES}/large")).json == before
