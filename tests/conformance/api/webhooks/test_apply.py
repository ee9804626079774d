"""Managed fields of a kind with webhook conversion: each entry is compared in its version."""

from __future__ import annotations

from typing import Any

from tests.conformance.api.servers import RunningServer
from tests.conformance.api.webhooks.gears import NEW, OLD, V1, V2, Object, gear
from tests.support.api_client import APPLY_PATCH, ApiClient, Reply
from tests.support.conversion_webhook import ConversionWebhook


async def apply(api: ApiClient, path: str, config: Object, manager: str, query: str = "") -> Reply:
    return await api.patch(f"{path}?fieldManager={manager}{query}", config, APPLY_PATCH)


def managed(reply: Reply) -> list[tuple[str, str, Any]]:
    found = reply.json["metadata"]["managedFields"]
    return [(each["manager"], each["apiVersion"], each["fieldsV1"]) for each in found]


async def test_conflicts_across_versions(server: RunningServer) -> None:
    """A field applied in v1 conflicts with an apply in v2, and moves if forced."""
    api = server.client
    made = await apply(api, f"{OLD}/a", gear("a", 12), "one")
    assert (made.status, managed(made)) == (
        201,
        [("one", V1, {"f:spec": {"f:teeth": {}}})],
    )
    refused = await apply(api, f"{NEW}/a", gear("a", 13, version="v2"), "two")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .spec.teeth'
    forced = await apply(api, f"{NEW}/a", gear("a", 13, version="v2"), "two", "&force=true")
    assert managed(forced) == [("two", V2, {"f:spec": {"f:shape": {"f:teeth": {}}}})]
    again = await apply(api, f"{NEW}/a", gear("a", 13, version="v2"), "two")
    assert (again.status, again.version) == (200, forced.version)


async def test_updates_are_tracked_across_versions(server: RunningServer) -> None:
    """An update in one version takes the field from the manager that has it in another."""
    api = server.client
    await apply(api, f"{OLD}/a", gear("a", 12), "one")
    body = {"spec": {"shape": {"teeth": 14}}}
    reply = await api.patch(f"{NEW}/a?fieldManager=two", body)
    assert reply.status == 200
    assert [(who, version) for who, version, _ in managed(reply)] == [("two", V2)]


async def test_without_a_conversion_webhook(
    server: RunningServer, webhook: ConversionWebhook
) -> None:
    """If the webhook does not respond, a write that needs no conversion succeeds, and managed
    fields are kept."""
    api = server.client
    await apply(api, f"{NEW}/a", gear("a", 12, version="v2"), "two")
    await webhook.stop()
    reply = await api.patch(f"{OLD}/a?fieldManager=one", {"spec": {"teeth": 13}})
    assert (reply.status, reply.json["spec"]) == (200, {"teeth": 13})
    assert managed(reply) == [
        ("two", V2, {"f:spec": {"f:shape": {"f:teeth": {}}}}),
        ("one", V1, {"f:spec": {"f:teeth": {}}}),
    ]
