"""Kinds that a library user declares in Python: versions, schemas and conversions.

    widgets = declare_kind(
        group="example.com", kind="Widget", plural="widgets",
        versions={"v2": SCHEMA_V2, "v1": SCHEMA_V1}, storage="v1",
        to_hub={"v1": up}, from_hub={"v1": down},
    )

The first version is the hub: the other versions are converted to and from it. Not here: custom
resources, which are declared through the API while the server runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from restow.apimachinery import field_errors
from restow.apimachinery.conversion import SAME_SHAPE, Convert, Converter, Spoke
from restow.apimachinery.json_schema import JsonSchema
from restow.apimachinery.status_error import StatusCause
from restow.kinds.kind import STATUS, Kind, api_version
from restow.registry.resource import Object, OpenShape, Resource

CAUSES_MAX = 100

Schema = Mapping[str, Any]


class DeclaredShape(OpenShape):
    """A kind with a JSON schema for each version. Implements `resource.Shape`."""

    def __init__(self, schemas: Mapping[str, Schema | None]) -> None:
        """`schemas` by `apiVersion`; None accepts any object."""
        self.schemas = schemas
        self._validators = {
            version: JsonSchema(schema) for version, schema in schemas.items() if schema is not None
        }

    def problems(
        self, version: str, new: Object, old: Object | None, *, subresource: str = ""
    ) -> list[StatusCause]:
        validator = self._validators.get(version)
        if validator is None or validator.accepts(new):
            return []
        causes: list[StatusCause] = []
        for error in validator.errors(new):
            path = _path(error.path)
            causes.append(field_errors.invalid(path, _at(new, error.path), error.message))
            if len(causes) == CAUSES_MAX:
                break
        return causes


def declare_kind(
    *,
    group: str,
    kind: str,
    plural: str,
    versions: Mapping[str, Schema | None],
    storage: str = "",
    namespaced: bool = True,
    short_names: Sequence[str] = (),
    has_status: bool = False,
    to_hub: Mapping[str, Convert] | None = None,
    from_hub: Mapping[str, Convert] | None = None,
) -> Resource:
    """Return the resource to serve. Raises ValueError if the declaration is invalid."""
    names = tuple(versions)
    if not names or "." not in group:
        raise ValueError("a kind requires at least one version and a group that contains a dot")
    storage = storage or names[0]
    if storage not in versions:
        raise ValueError(f"storage version {storage!r} is not one of {', '.join(names)}")
    definition = Kind(
        group=group,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short_names),
        namespaced=namespaced,
        versions=names,
        served_versions=names,
        storage_version=storage,
        key_prefix=f"{group}/{plural}",
        subresources=(STATUS,) if has_status else (),
        tracks_generation=True,
    )
    full = {name: api_version(group, name) for name in names}
    return Resource(
        kind=definition,
        served=names,
        decodable=tuple(full.values()),
        storage_api_version=full[storage],
        converter=_converter(definition, full, to_hub or {}, from_hub or {}),
        shape=DeclaredShape({full[name]: schema for name, schema in versions.items()}),
    )


def _converter(
    kind: Kind,
    full: Mapping[str, str],
    to_hub: Mapping[str, Convert],
    from_hub: Mapping[str, Convert],
) -> Converter:
    hub, *others = full
    if to_hub.keys() != from_hub.keys() or not to_hub.keys() <= set(others):
        raise ValueError(f"each version in to_hub needs one in from_hub; the hub {hub} needs none")
    spokes = {
        full[name]: Spoke(to_hub[name], from_hub[name]) if name in to_hub else SAME_SHAPE
        for name in others
    }
    return Converter(str(kind.group_kind), hub=full[hub], spokes=spokes)


def _path(parts: Sequence[str | int]) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "<object>"


def _at(value: Any, parts: Sequence[str | int]) -> Any:
    for part in parts:
        value = value[part]
    return value
