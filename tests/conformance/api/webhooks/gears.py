"""A custom kind with two versions, converted by a webhook, and a server that serves it.

In v1 a gear has `spec.teeth`, in v2 `spec.shape.teeth`. It is stored in v1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from restow.aio import Runtime
from restow.apiserver.webhooks import WebhookConversion, webhook_of
from restow.registry.catalog import Catalog, builtin_catalog
from restow.registry.custom.crds import definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.resource import RemoteConversion, Resource
from tests.support.conversion_webhook import ConversionWebhook

GROUP = "example.com"
V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
OLD = f"/apis/{V1}/namespaces/default/gears"
NEW = f"/apis/{V2}/namespaces/default/gears"
KEY = f"/registry/{GROUP}/gears/default"
NAMES = {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"}

Object = dict[str, Any]

_TEETH = {"type": "object", "properties": {"teeth": {"type": "integer"}}}
_SCHEMAS: dict[str, Object] = {
    "v1": {"type": "object", "properties": {"spec": _TEETH}},
    "v2": {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "shape": _TEETH,
                    "colour": {"type": "string", "default": "grey"},
                },
            }
        },
    },
}


def convert(obj: Object, target: str) -> Object:
    """The webhook's conversion."""
    metadata = {**obj["metadata"], "labels": {**obj["metadata"].get("labels", {})}}
    metadata["labels"]["seen-in"] = target.rpartition("/")[2]
    spec = obj["spec"]
    teeth = spec["teeth"] if obj["apiVersion"] == V1 else spec["shape"]["teeth"]
    spec = {"teeth": teeth} if target == V1 else {"shape": {"teeth": teeth}}
    return {"kind": "Gear", "apiVersion": target, "metadata": metadata, "spec": spec}


def gear(name: str, teeth: int, *, version: str = "v1", **metadata: Any) -> Object:
    spec: Object = {"teeth": teeth} if version == "v1" else {"shape": {"teeth": teeth}}
    return {
        "kind": "Gear",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def definition(conversion: Object, *, storage: str = "v1") -> Object:
    """A CRD whose names were accepted."""
    columns = {
        "v1": [{"name": "Teeth", "type": "integer", "jsonPath": ".spec.teeth"}],
        "v2": [{"name": "Teeth", "type": "integer", "jsonPath": ".spec.shape.teeth"}],
    }
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"gears.{GROUP}", "uid": "u-gears"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": NAMES,
            "conversion": conversion,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == storage,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": columns[version],
                }
                for version, schema in _SCHEMAS.items()
            ],
        },
        "status": {
            "acceptedNames": NAMES,
            "storedVersions": [storage],
            "conditions": [{"type": "NamesAccepted", "status": "True"}],
        },
    }


def gears(
    conversion: Object,
    *,
    storage: str = "v1",
    remote: RemoteConversion | None = None,
    seconds_max: float = 30.0,
) -> Resource:
    """The resource that a server serves."""
    found = definition_of(definition(conversion, storage=storage), revision=1)
    if remote is None:
        webhook = webhook_of(found.conversion)
        assert webhook is not None
        remote = WebhookConversion(webhook, Runtime.system(), seconds_max=seconds_max)
    return custom_resource(found, remote=remote)


def catalog_with(resource: Resource) -> Catalog:
    """The built-in kinds and this one."""
    catalog = builtin_catalog()
    catalog.host(resource)
    return catalog


def names_of(webhook: ConversionWebhook) -> list[list[str]]:
    """The names of the objects of each ConversionReview, in order."""
    return [question.names for question in webhook.questions]


def changed(**metadata: Any) -> Callable[[Object, str], Object]:
    """Conversion that also changes metadata, which is not allowed."""

    def wrong(obj: Object, target: str) -> Object:
        found = convert(obj, target)
        return {**found, "metadata": {**found["metadata"], **metadata}}

    return wrong
