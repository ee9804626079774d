"""Kinds for the tests of field managers: one from the type tables, and one in two versions."""

from __future__ import annotations

from typing import Any

from restow.apimachinery.apply import entries
from restow.apimachinery.apply.blank import blank
from restow.apimachinery.apply.schema import DEDUCED, SchemaNode, from_struct
from restow.apimachinery.apply.sets import FieldSet
from restow.kinds.types import load_types

Object = dict[str, Any]


class Typed:
    """A kind from the type tables, in one version."""

    def __init__(self, group: str, version: str, kind: str) -> None:
        struct = load_types().of_kind(group, version, kind)
        assert struct is not None
        self._struct = struct

    def field_schema(self, version: str) -> SchemaNode:
        return from_struct(self._struct)

    def blank(self, version: str) -> Object:
        return blank(self._struct)


class Open:
    """A kind without a schema."""

    def field_schema(self, version: str) -> SchemaNode:
        return DEDUCED

    def blank(self, version: str) -> Object:
        return {}


CONFIG_MAP = Typed("", "v1", "ConfigMap")
DEPLOYMENT = Typed("apps", "v1", "Deployment")


def config_map(data: dict[str, str] | None = None, **metadata: Any) -> Object:
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", **metadata},
        **({"data": data} if data is not None else {}),
    }


def seen(obj: Object) -> Object:
    """Return an object without its unmanaged metadata."""
    unmanaged = entries.UNMANAGED["f:metadata"]
    metadata = {
        name: each for name, each in obj["metadata"].items() if f"f:{name}" not in unmanaged
    }
    return {**obj, "metadata": metadata}


def convert_single_version(obj: Object, version: str) -> Object | None:
    """Converter of a kind that has one version."""
    return obj if version == obj["apiVersion"] else None


def convert_renaming(obj: Object, version: str) -> Object | None:
    """Converter of a kind whose field `spec.old` in v1 is `spec.new` in v2."""
    if version not in ("v1", "v2"):
        return None
    names = {"old": "new"} if version == "v2" else {"new": "old"}
    spec = {names.get(name, name): value for name, value in obj.get("spec", {}).items()}
    return {**obj, "apiVersion": version, "spec": spec}


def entry(
    manager: str,
    fields: FieldSet,
    *,
    operation: str = "Update",
    version: str = "v1",
    time: str = "",
    subresource: str = "",
) -> Object:
    found: Object = {"manager": manager, "operation": operation, "apiVersion": version}
    if time:
        found["time"] = time
    found |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
    if subresource:
        found["subresource"] = subresource
    return found
