"""Makes the `Resource` of a CRD: its kind, its versions and the properties of each version.

This takes some microseconds: the schemas of the versions are read later, when they are needed. The
resource behaves like a custom resource of kube-apiserver: an update requires a resource version and
never creates the object, and a write of the status changes nothing else.

Not here: watching CRDs (`storageversion`), fields of objects (`shape`), and authorization.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from restow.apimachinery.conversion import renaming
from restow.apimachinery.names import version_priority
from restow.kinds.kind import SCALE, STATUS, Kind, SelectableField, Subresource
from restow.registry.custom.crds import CustomResourceDefinition, Version
from restow.registry.custom.shape import CustomShape, VersionShape
from restow.registry.resource import (
    CrdOrigin,
    PrinterColumn,
    RemoteConversion,
    Resource,
    ScalePaths,
    VersionTraits,
)

VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
"""In the order of kube-apiserver's discovery."""


class PublishedSchema(Mapping[str, Any]):
    """A schema as declared in the CRD, kept as bytes and parsed on each access.

    The parsed schemas of a thousand CRDs would take ten times the memory of their bytes.
    """

    __slots__ = ("_version",)

    def __init__(self, version: Version) -> None:
        self._version = version

    def read(self) -> dict[str, Any]:
        """Parse the schema. The caller owns the result and may change it."""
        return read_json_object(self._version.schema_bytes())

    def __getitem__(self, name: str) -> Any:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())


def read_json_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one if the JSON is something else."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def custom_resource(
    definition: CustomResourceDefinition, *, remote: RemoteConversion | None = None
) -> Resource:
    """Return the resource of a CRD whose names were accepted."""
    kind = kind_of(definition)
    group = definition.group
    # Stored objects are most likely in the storage version, so it comes first.
    storage = f"{group}/{definition.storage_version}"
    all_versions = [f"{group}/{version}" for version in kind.versions]
    decodable = tuple(dict.fromkeys([storage, *all_versions]))
    return Resource(
        kind=kind,
        served=kind.served_versions,
        decodable=decodable,
        storage_api_version=storage,
        converter=renaming(str(kind.group_kind), decodable),
        shape=CustomShape(
            {
                f"{group}/{version.name}": _shape_of(definition, version)
                for version in definition.versions
            }
        ),
        traits={version.name: _traits(definition, version) for version in definition.versions},
        remote=remote,
        origin=CrdOrigin(
            definition.key,
            uid=definition.uid,
            revision=definition.revision,
            is_closing=definition.is_closing,
        ),
    )


def kind_of(definition: CustomResourceDefinition) -> Kind:
    """Return the kind of a CRD, with its accepted names."""
    names = definition.accepted_names
    versions = sorted((each.name for each in definition.versions), key=version_priority)
    served = {each.name for each in definition.versions if each.served}
    return Kind(
        group=definition.group,
        kind=names.kind,
        plural=names.plural,
        singular=names.singular or names.kind.lower(),
        short_names=tuple(names.short_names or ()),
        categories=tuple(names.categories or ()),
        namespaced=definition.is_namespaced,
        versions=tuple(versions),
        served_versions=tuple(version for version in versions if version in served),
        storage_version=definition.storage_version,
        verbs=VERBS,
        key_prefix=f"{definition.group}/{names.plural}",
        tracks_generation=True,
        unconditional_update=False,
        status_keeps_metadata=True,
        list_kind=names.list_kind or f"{names.kind}List",
    )


def _shape_of(definition: CustomResourceDefinition, version: Version) -> VersionShape:
    return VersionShape(
        version,
        scale=_scale(version),
        prunes=not definition.preserves_unknown_fields,
    )


def _traits(definition: CustomResourceDefinition, version: Version) -> VersionTraits:
    return VersionTraits(
        schema=None if version.validation is None else PublishedSchema(version),
        subresources=_subresources(version),
        columns=tuple(
            PrinterColumn(
                name=column.name,
                type=column.type,
                path=column.json_path,
                format=column.format,
                description=column.description,
                priority=column.priority,
            )
            for column in version.additional_printer_columns or ()
        ),
        scale=_scale(version),
        selectable_fields=tuple(
            _selectable(each.json_path) for each in version.selectable_fields or ()
        ),
        deprecation=_deprecation(definition, version),
    )


def _subresources(version: Version) -> tuple[Subresource, ...]:
    found = (STATUS,) if version.has_status else ()
    return (*found, SCALE) if version.scale is not None else found


def _scale(version: Version) -> ScalePaths | None:
    scale = version.scale
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=scale.spec_replicas_path,
        status_replicas=scale.status_replicas_path,
        label_selector=scale.label_selector_path or "",
    )


def _selectable(json_path: str) -> SelectableField:
    label = json_path.removeprefix(".")
    return SelectableField(label, tuple(label.split(".")))


def _deprecation(definition: CustomResourceDefinition, version: Version) -> str:
    """Return the deprecation warning of a version: the declared one, or kube-apiserver's
    default."""
    if not version.deprecated:
        return ""
    if version.deprecation_warning is not None:
        return version.deprecation_warning
    group, kind, priority = definition.group, definition.names.kind, version_priority(version.name)
    better = [
        each.name
        for each in definition.versions
        if each.served and not each.deprecated and version_priority(each.name) < priority
    ]
    text = f"{group}/{version.name} {kind} is deprecated"
    if not better:
        return text
    return f"{text}; use {group}/{min(better, key=version_priority)} {kind}"
