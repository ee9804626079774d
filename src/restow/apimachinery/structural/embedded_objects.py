"""Coerces and validates embedded objects: their version, kind and metadata.

Not here: the metadata of the object itself, which its decoder handles.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors
from restow.apimachinery.errors import InvalidName
from restow.apimachinery.field_errors import Causes
from restow.apimachinery.metadata_rules import check_types, metadata_problems
from restow.apimachinery.name_formats import dns_1035_label_problem, path_segment_problem
from restow.apimachinery.names import GroupVersion
from restow.apimachinery.status import BadRequest
from restow.apimachinery.status_error import StatusCause
from restow.apimachinery.structural import paths
from restow.apimachinery.structural.schema import Schema

_METADATA_FIELDS: Final = frozenset(
    [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ]
)


def has_embedded(schema: Schema) -> bool:
    """Report whether any node of a schema is an embedded object."""
    return schema.embedded or any(map(has_embedded, schema.children()))


def coerce_embedded(value: Any, schema: Schema | None, path: str = "") -> list[str]:
    """Remove unknown metadata of embedded objects in place; return the paths."""
    unknown: list[str] = []
    if schema is None:
        return unknown
    if type(value) is dict:
        metadata = value.get("metadata") if schema.embedded else None
        if type(metadata) is dict:
            unknown += coerce_metadata(metadata, paths.child(path, "metadata"))
        for name, member in value.items():
            unknown += coerce_embedded(member, schema.field_schema(name), paths.child(path, name))
    elif type(value) is list:
        for index, item in enumerate(value):
            unknown += coerce_embedded(item, schema.items, paths.index(path, index))
    return unknown


def has_unsettled(value: Any, schema: Schema | None) -> bool:
    """Report whether `coerce_embedded` would change anything below a value."""
    if schema is None:
        return False
    if type(value) is dict:
        metadata = value.get("metadata") if schema.embedded else None
        if type(metadata) is dict and not _is_settled(metadata):
            return True
        return any(
            has_unsettled(member, schema.field_schema(name)) for name, member in value.items()
        )
    return type(value) is list and any(has_unsettled(item, schema.items) for item in value)


def _is_settled(metadata: dict[str, Any]) -> bool:
    return metadata.keys() <= _METADATA_FIELDS and None not in metadata.values()


def coerce_metadata(metadata: dict[str, Any], path: str = "metadata") -> list[str]:
    """Remove unknown fields and nulls from metadata, in place; return the unknown ones."""
    if _is_settled(metadata):
        return []
    unknown = [name for name in metadata if name not in _METADATA_FIELDS]
    for name in [name for name, value in metadata.items() if value is None]:
        del metadata[name]
    for name in unknown:
        metadata.pop(name, None)
    return [paths.child(path, name) for name in sorted(unknown)]


def embedded_problems(value: Any, schema: Schema | None, path: str = "") -> list[StatusCause]:
    """Return the errors of all embedded objects below a value."""
    causes = Causes()
    if schema is None:
        return causes
    if type(value) is dict:
        if schema.embedded:
            causes += _object_problems(value, path)
        for name, member in value.items():
            if (known := schema.properties.get(name)) is not None:
                causes += embedded_problems(member, known, paths.child(path, name))
            elif (values := schema.additional_schema) is not None:
                causes += embedded_problems(member, values, paths.key(path, name))
    elif type(value) is list:
        for index, item in enumerate(value):
            causes += embedded_problems(item, schema.items, paths.index(path, index))
    return causes


def _object_problems(value: dict[str, Any], path: str) -> list[StatusCause]:
    causes = Causes()
    for name, check in (("apiVersion", _version_problem), ("kind", _kind_problem)):
        where = paths.child(path, name)
        if name not in value:
            causes.required(where)
            continue
        given = value[name]
        if type(given) is not str:
            causes.invalid(where, given, "must be a string")
        elif problem := check(given):
            causes.invalid(where, given, problem)
    if (metadata := value.get("metadata")) is not None:
        causes += _metadata_problems(metadata, paths.child(path, "metadata"))
    return causes


def _version_problem(text: str) -> str:
    if not text:
        return "must not be empty"
    try:
        GroupVersion.parse(text)
    except InvalidName as error:
        return str(error)
    return ""


def _kind_problem(text: str) -> str:
    if not text:
        return "must not be empty"
    problem = dns_1035_label_problem(text.lower())
    return f"may have mixed case, but should otherwise match: {problem}" if problem else ""


def _metadata_problems(metadata: Any, path: str) -> list[StatusCause]:
    try:
        check_types(metadata)
    except BadRequest as error:
        return [field_errors.invalid(path, metadata, error.message)]
    named = metadata if metadata.get("name") else {**metadata, "name": "fakename"}
    found = metadata_problems(
        named,
        name_rule=path_segment_problem,
        is_namespaced=bool(metadata.get("namespace")),
        bare_finalizers_allowed=True,
    )
    return [cause._replace(field=path + cause.field.removeprefix("metadata")) for cause in found]
