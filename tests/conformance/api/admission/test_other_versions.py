"""Webhooks that review an object in another version than the request's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from restow.registry.catalog import builtin_catalog
from restow.registry.custom.crds import definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.storage.memory import MemoryStorage
from tests.conformance.api.admission.conftest import BASE
from tests.conformance.api.servers import start_server
from tests.support.admission_webhook import AdmissionWebhook
from tests.unit.endpoints.custom_kinds import GROUP, gadget, gadget_definition

GADGETS = f"/apis/{GROUP}/v1/namespaces/default/gadgets"
# Has fewer fields than the version of the request, and a default of its own.
NARROW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "color": {"type": "string"},
                "size": {"type": "integer", "default": 3},
            },
        }
    },
}


@pytest.mark.parametrize("kind", ["mutating", "validating"])
async def test_review_in_another_version_changes_nothing(tmp_path: Path, kind: str) -> None:
    """The object that a webhook gets in its own version, with that version's defaults and
    without fields that it lacks, is a copy: the object is stored as it was sent."""
    definition, catalog = gadget_definition(), builtin_catalog()
    definition["spec"]["versions"][1]["schema"] = {"openAPIV3Schema": NARROW}
    catalog.host(custom_resource(definition_of(definition, 1)))
    server = await start_server(MemoryStorage(), catalog)
    webhook = await AdmissionWebhook.start(tmp_path / "webhook")
    api = server.client
    rule = {
        "operations": ["*"],
        "apiGroups": [GROUP],
        "apiVersions": ["v1beta1"],
        "resources": ["gadgets"],
    }
    try:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        body = {"metadata": {"name": "c"}, "webhooks": [webhook.hook(rules=[rule])]}
        assert (await api.post(f"{BASE}/{kind}webhookconfigurations", body)).status == 201
        made = await api.post(GADGETS, gadget("g", color="red", count=7))
        [asked] = webhook.requests
        assert asked["object"]["spec"] == {"color": "red", "size": 3}
        assert made.json["spec"] == {"color": "red", "count": 7}
        assert (await api.get(f"{GADGETS}/g")).json["spec"] == {"color": "red", "count": 7}
    finally:
        await webhook.stop()
        await server.stop()
