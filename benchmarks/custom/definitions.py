"""CRDs of realistic size: some versions, some hundred fields each."""

from __future__ import annotations

from typing import Any, Final

PARTS: Final = 12
FIELDS: Final = 14


def definition(number: int, *, storage: str = "v1") -> dict[str, Any]:
    """A CRD by number; ten CRDs share a group."""
    group = f"group{number // 10}.bench.example.com"
    kind = f"Thing{number}"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": f"{kind.lower()}s", "kind": kind},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == storage,
                    "schema": {"openAPIV3Schema": _schema()},
                    "subresources": {"status": {}},
                }
                for name in ("v1", "v1beta1")
            ],
        },
    }


def instance(number: int, name: str) -> dict[str, Any]:
    """A custom resource of that CRD, with fields in every part."""
    return {
        "apiVersion": f"group{number // 10}.bench.example.com/v1",
        "kind": f"Thing{number}",
        "metadata": {"name": name},
        "spec": {
            f"part{part}": {"text0": "some text", "number1": part, "list2": ["a", "b"]}
            for part in range(PARTS)
        },
    }


def collection(number: int, version: str = "v1") -> str:
    """The path of its objects."""
    group = f"group{number // 10}.bench.example.com"
    return f"/apis/{group}/{version}/namespaces/default/thing{number}s"


def _schema() -> dict[str, Any]:
    parts = {f"part{number}": _part() for number in range(PARTS)}
    status = {"conditions": {"type": "array", "items": _part(), "maxItems": 32}}
    return {
        "type": "object",
        "description": "Something that a controller manages.",
        "properties": {
            "spec": {"type": "object", "properties": parts},
            "status": {"type": "object", "properties": status},
        },
    }


def _part() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for number in range(FIELDS):
        match number % 4:
            case 0:
                fields[f"text{number}"] = {"type": "string", "maxLength": 253}
            case 1:
                fields[f"number{number}"] = {"type": "integer", "minimum": 0}
            case 2:
                items = {"type": "string"}
                fields[f"list{number}"] = {"type": "array", "items": items, "maxItems": 64}
            case _:
                fields[f"choice{number}"] = {"type": "string", "enum": ["Always", "Never"]}
    for field in fields.values():
        field["description"] = "Specifies how this part of the object is managed, and by whom."
    return {"type": "object", "properties": fields}
