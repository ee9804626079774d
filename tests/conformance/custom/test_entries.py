"""Managed fields that clients send with custom objects."""

from __future__ import annotations

from tests.conformance.custom.servers import Custom
from tests.conformance.custom.test_objects import one
from tests.crds.building import Maker, struct, text
from tests.support.api_client import MERGE_PATCH, ApiClient


async def test_an_empty_list_is_ignored(group: str, custom: Custom, api: ApiClient) -> None:
    """Managed fields of a custom object stay when an empty list is sent; an empty entry clears
    them."""
    family = await custom.use(one(group, struct({"a": text()})))
    made = await api.post(family.path(), Maker(group, "v1", "Widget").good("a", {"a": "1"}))
    path = family.path("a")
    same = await api.patch(path, {"metadata": {"managedFields": []}}, MERGE_PATCH)
    assert (same.status, same.json) == (200, made.json)
    gone = await api.patch(path, {"metadata": {"managedFields": [{}]}}, MERGE_PATCH)
    assert "managedFields" not in gone.json["metadata"]
