"""The reference's answers: unknown groups and versions, deprecations, tables of scales."""

from __future__ import annotations

import pytest

from tests.conformance.api.objects import DEPLOYMENT
from tests.conformance.api.servers import NS
from tests.support.api_client import TABLE, ApiClient

pytestmark = pytest.mark.parametrize("driver", ["memory"], indirect=True)


@pytest.mark.parametrize(
    "path",
    [
        "/apis/apps/v1beta9",
        "/apis/apps/v1beta9/deployments",
        "/apis/apps/v1beta9/namespaces/default/deployments/x",
        "/api/v2",
        "/api/v2/pods",
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_unknown_versions_of_built_in_groups(api: ApiClient, path: str, method: str) -> None:
    """An unknown version gets 404 with a Status, for any method."""
    reply = await api.request(method, path)
    assert (reply.status, reply.reason) == (404, "NotFound")
    assert reply.message == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/apis/nobody.example", "/apis/nobody.example/v1/things"])
async def test_unknown_groups(api: ApiClient, path: str) -> None:
    """An unknown group gets 404 in plain text, without a Status."""
    reply = await api.get(path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


async def test_endpoints_are_deprecated(api: ApiClient) -> None:
    """Reads and writes of Endpoints have a warning that names the replacement."""
    told = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    made = await api.post(f"{NS}/endpoints", {"metadata": {"name": "e"}})
    for reply in (made, await api.get(f"{NS}/endpoints/e"), await api.get(f"{NS}/endpoints")):
        assert reply.status in (200, 201)
        assert len(reply.warnings) == 1
        assert told in reply.warnings[0]
    slices = await api.get("/apis/discovery.k8s.io/v1/endpointslices")
    assert slices.warnings == []


async def test_scales_in_tables(api: ApiClient) -> None:
    """A Scale has table columns of its own, for reads and writes."""
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    name = (await api.post(deployments, DEPLOYMENT)).json["metadata"]["name"]
    path = f"{deployments}/{name}/scale"
    patch = {"spec": {"replicas": 5}}
    written = await api.patch(path, patch, accept=TABLE)
    for reply in (written, await api.get(path, accept=TABLE)):
        columns = [each["name"] for each in reply.json["columnDefinitions"]]
        assert columns == ["Name", "Desired", "Available", "Age"]
        assert reply.json["rows"][0]["cells"][:3] == [name, 5, 0]


@pytest.mark.parametrize(
    ("plural", "body"),
    [
        ("csidrivers", {"spec": {}}),
        ("csinodes", {"spec": {"drivers": []}}),
        ("volumeattributesclasses", {"driverName": "d", "parameters": {"a": "b"}}),
        (
            "volumeattachments",
            {"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}},
        ),
    ],
)
async def test_deletes_that_answer_with_the_object(
    api: ApiClient, plural: str, body: dict[str, object]
) -> None:
    """Storage kinds return the deleted object instead of a Status."""
    path = f"/apis/storage.k8s.io/v1/{plural}"
    made = await api.post(path, {"metadata": {"name": "x"}, **body})
    assert made.status == 201, made.message
    gone = await api.delete(f"{path}/x")
    assert (gone.status, gone.json["kind"]) == (200, made.json["kind"])
    assert (await api.get(f"{path}/x")).status == 404
