"""A CRD with two versions, as it is stored after its names were accepted."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import orjson

from restow.registry.custom.crds import CustomResourceDefinition, definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.resource import Resource

Json = dict[str, Any]

V1, BETA = "example.com/v1", "example.com/v1beta1"

NAMES: Json = {
    "plural": "widgets",
    "singular": "widget",
    "kind": "Widget",
    "listKind": "Widgets",
    "shortNames": ["w"],
    "categories": ["all"],
}

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "default": 1},
                "color": {"type": "string", "enum": ["red", "blue"]},
                "size": {"x-kubernetes-int-or-string": True},
                "note": {"type": "string", "nullable": True},
                "tags": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
            "x-kubernetes-validations": [
                {"rule": "self.replicas <= 9", "message": "too many replicas"}
            ],
        },
        "status": {
            "type": "object",
            "default": {"phase": "New"},
            "properties": {
                "phase": {"type": "string"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}

DEFINITION: Json = {
    "kind": "CustomResourceDefinition",
    "apiVersion": "apiextensions.k8s.io/v1",
    "metadata": {
        "name": "widgets.example.com",
        "uid": "u-1",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
    },
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": NAMES,
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": False,
                "deprecated": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            },
            {"name": "v1alpha1", "served": False, "storage": False, "deprecated": True},
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": [
                    {
                        "name": "Replicas",
                        "type": "integer",
                        "jsonPath": ".spec.replicas",
                        "priority": 1,
                    }
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
            },
        ],
        "conversion": {"strategy": "None"},
    },
    "status": {
        "acceptedNames": NAMES,
        "conditions": [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "m"},
            {"type": "Established", "status": "False"},
        ],
        "storedVersions": ["v1beta1", "v1"],
    },
}


def changed(*path: str | int, to: Any) -> Json:
    """Return a copy of the CRD with one value replaced."""
    made = deepcopy(DEFINITION)
    inner: Any = made
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = to
    return made


def definition(obj: Json = DEFINITION, revision: int = 7) -> CustomResourceDefinition:
    return definition_of(obj, revision)


def resource(obj: Json = DEFINITION) -> Resource:
    return custom_resource(definition(obj))


def widget(version: str = V1, **parts: Any) -> Json:
    """Return a new custom resource."""
    fields = {"kind": "Widget", "apiVersion": version, "metadata": {"name": "a"}, **parts}
    return orjson.loads(orjson.dumps(fields))  # type: ignore[no-any-return]
