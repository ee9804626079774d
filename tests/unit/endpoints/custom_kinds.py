"""A custom kind for endpoint tests whose versions differ in every respect."""

from typing import Any, Final

from restow.registry.custom.crds import definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.resource import Resource

GROUP: Final = "test.example.com"

_SPEC: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "description": "How it looks."},
        "count": {"type": "integer"},
        "on": {"type": "boolean"},
        "replicas": {"type": "integer"},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    },
}
_STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"spec": _SPEC, "status": _STATUS},
}


def gadget_definition(group: str = GROUP, **first_version: Any) -> dict[str, Any]:
    """A CRD with every feature that a version can have in v1, and almost none in the others."""
    names = {
        "plural": "gadgets",
        "singular": "gadget",
        "kind": "Gadget",
        "listKind": "GadgetList",
        "shortNames": ["gd"],
        "categories": ["all"],
    }
    latest = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _SCHEMA},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "selectableFields": [
            {"jsonPath": ".spec.color"},
            {"jsonPath": ".spec.count"},
            {"jsonPath": ".spec.on"},
        ],
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
        ],
        **first_version,
    }
    old = {
        "name": "v1beta1",
        "served": True,
        "storage": False,
        "deprecated": True,
        "deprecationWarning": "use another",
        "schema": {"openAPIV3Schema": _SCHEMA},
    }
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"gadgets.{group}", "uid": f"uid-{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [latest, old],
        },
        "status": {
            "acceptedNames": names,
            "storedVersions": ["v1"],
            "conditions": [
                {"type": "NamesAccepted", "status": "True"},
                {"type": "Established", "status": "True"},
            ],
        },
    }


def gadgets(group: str = GROUP, **first_version: Any) -> Resource:
    """The resource of such a CRD."""
    return custom_resource(definition_of(gadget_definition(group, **first_version), 1))


def gadget(name: str, *, version: str = "v1", **spec: Any) -> dict[str, Any]:
    """An object of that kind."""
    return {
        "kind": "Gadget",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {"name": name},
        "spec": spec,
    }
