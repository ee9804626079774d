"""Discovery: invalid documents, and lookup by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersion
from restow.client import ApiClient, InProcessResponse, InProcessTransport, NoSuchResource
from restow.client.discovery import read_core, read_groups, read_resources


def resource(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "namespaced": True, "verbs": ["get", "list"]} | more


def group(name: str, *versions: str, preferred: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "versions": [{"version": each} for each in versions]}
    return found | ({"preferredVersion": {"version": preferred}} if preferred else {})


DOCUMENTS: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/apis": {
        "groups": [
            group("apps", "v1beta1", "v1", preferred="v1"),
            group("extensions", "v1beta1"),
            group("acme.com", "v2", "v1", preferred="v2"),
            group("down.io", "v1"),
        ]
    },
    "/api/v1": {
        "resources": [
            resource("configmaps", "ConfigMap", shortNames=["cm"], storageVersionHash="h="),
            resource("namespaces", "Namespace", namespaced=False, singularName="namespace"),
            resource("namespaces/status", "Namespace"),
        ]
    },
    "/apis/apps/v1": {
        "resources": [resource("deployments", "Deployment", shortNames=["deploy"])],
    },
    "/apis/apps/v1beta1": {"resources": [resource("deployments", "Deployment")]},
    "/apis/extensions/v1beta1": {"resources": [resource("deployments", "Deployment")]},
    "/apis/acme.com/v2": {"resources": [resource("widgets", "Widget")]},
    "/apis/acme.com/v1": {"resources": [resource("gadgets", "Gadget")]},
}


async def serve(
    method: str, target: str, headers: Mapping[str, str], body: bytes
) -> InProcessResponse:
    """A server with discovery documents, of which one aggregated group is down."""
    if target.startswith("/apis/down.io"):
        return InProcessResponse(503, status.unavailable("no endpoints").to_bytes())
    if target not in DOCUMENTS:
        return InProcessResponse(404, b"404 page not found\n")
    assert headers["accept"] == "application/json"
    return InProcessResponse(200, orjson.dumps(DOCUMENTS[target]))


@pytest.fixture
def client() -> ApiClient:
    return ApiClient(InProcessTransport(serve), runtime=Runtime.simulated("discovery"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("configmaps", "/v1/configmaps"),
        ("ConfigMap", "/v1/configmaps"),
        ("cm", "/v1/configmaps"),
        ("deploy", "apps/v1/deployments"),
        ("deployments", "apps/v1/deployments"),
        ("deployment.apps", "apps/v1/deployments"),
        ("deployments.v1beta1.apps", "apps/v1beta1/deployments"),
        ("deployments.extensions", "extensions/v1beta1/deployments"),
        ("widgets.acme.com", "acme.com/v2/widgets"),
        ("gadgets.acme.com", "acme.com/v1/gadgets"),
        ("namespace", "/v1/namespaces"),
    ],
)
async def test_names(client: ApiClient, text: str, found: str) -> None:
    """Plurals, singulars, kinds and short names, with group, version or neither."""
    discovered = await client.discover()
    assert "/".join(discovered.find(text).resource) == found


async def test_a_group_that_is_down_does_not_hide_the_others(client: ApiClient) -> None:
    """A group that cannot be read is listed in the failures, and in errors for unknown names."""
    discovered = await client.discover()
    assert [str(each) for each in discovered.failures] == ["down.io/v1"]
    with pytest.raises(NoSuchResource, match=r"did you mean deployment.*down\.io/v1"):
        discovered.find("deploments")


async def test_facts_of_a_resource(client: ApiClient) -> None:
    """Scope, verbs, hash and subresources are read; a subresource is not a resource."""
    discovered = await client.discover()
    assert discovered.find("cm").storage_version_hash == "h="
    assert discovered.find("cm").verbs == {"get", "list"}
    namespaces = discovered.find("namespaces")
    assert (namespaces.is_namespaced, sorted(namespaces.subresources)) == (False, ["status"])
    assert len(discovered.preferred()) == len(
        {each.group_resource for each in discovered.preferred()}
    )


async def test_a_server_without_a_core_group() -> None:
    """An aggregated server has no core group."""

    async def serve_groups(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        return (
            InProcessResponse(404)
            if target == "/api"
            else await serve(method, target, headers, body)
        )

    client = ApiClient(InProcessTransport(serve_groups), runtime=Runtime.simulated("groups"))
    assert [each.name for each in await client.groups()][:2] == ["apps", "extensions"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "versions", "version", "resources", "groups", "verbs", "kind"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["versions", "resources", "groups"]), JSON_VALUES))
def test_documents_need_not_be_right(document: dict[str, Any]) -> None:
    """Whatever a server sends, invalid groups and resources are skipped."""
    read_core(document)
    read_groups(document)
    for each in read_resources(document, GroupVersion("", "v1")):
        assert "/" not in each.name
