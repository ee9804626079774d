"""The custom resources of `migration.k8s.io/v1alpha1`, for servers that do not have them built in.

Names and fields are those of kube-storage-version-migrator, so that its clients and objects keep
working. Added: encryption keys, entries of several observers, progress, failed objects, printer
columns, and two rules that the proposal states and the original does not enforce: the name of a
StorageState is that of its resource, and the resource of an object is immutable.

`upgraded` merges these CRDs into existing ones and keeps the changes of others.

Pure. Not here: how they are applied (`installation`).
"""

from __future__ import annotations

import copy
from typing import Any, Final

from restow.apis.migration_v1alpha1 import GROUP, STORAGE_STATE
from restow.client.objects import Object, metadata_of

VERSION: Final = "v1alpha1"
# KEP-2343 4.1: elsewhere they are CRDs
KINDS: Final = {
    "storagestates": STORAGE_STATE,
    "storageversionmigrations": "StorageVersionMigration",
}
"""The kinds, by their plural."""

GROUP_LENGTH_MAX: Final = 253
RESOURCE_LENGTH_MAX: Final = 63
HASHES_MAX: Final = 1_000
FAILED_OBJECTS_MAX: Final = 100
_APPROVAL: Final = "api-approved.kubernetes.io"
# Groups under k8s.io require this annotation; the values are those of the original.
_APPROVED_BY: Final = {
    "storagestates": "https://github.com/kubernetes/enhancements/pull/747",
    "storageversionmigrations": "https://github.com/kubernetes/community/pull/2524",
}

_Schema = dict[str, Any]


def _text(about: str, **more: Any) -> _Schema:
    return {"type": "string", "description": about, **more}


def _count(about: str) -> _Schema:
    return {"type": "integer", "format": "int64", "description": about}


def _time(about: str) -> _Schema:
    # Go clients send null for a time that they do not set.
    return {"type": "string", "format": "date-time", "nullable": True, "description": about}


def _object(about: str, properties: _Schema, **more: Any) -> _Schema:
    return {"type": "object", "description": about, "properties": properties, **more}


def _list(about: str, items: _Schema, **more: Any) -> _Schema:
    return {"type": "array", "description": about, "items": items, **more}


def _column(name: str, path: str, *, kind: str = "string", is_wide: bool = False) -> _Schema:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if is_wide else {})}


_GROUP_FIELD: Final = _text("API group; empty for the core group.", maxLength=GROUP_LENGTH_MAX)
_RESOURCE_FIELD: Final = _text("Plural name of the resource.", maxLength=RESOURCE_LENGTH_MAX)
_UNCHANGED: Final = {"rule": "self == oldSelf", "message": "spec.resource is immutable"}
_AGE: Final = _column("Age", ".metadata.creationTimestamp", kind="date")

# Rules test optional fields with has(), so that a rule never fails with "no such key".
_HAS_GROUP: Final = "has(self.spec.resource.group) && self.spec.resource.group != ''"
# KEP-2343 4.2: the rule of the CRD
_NAME_RULE: Final = {
    "rule": (
        f"self.metadata.name == ({_HAS_GROUP}"
        " ? self.spec.resource.resource + '.' + self.spec.resource.group"
        " : self.spec.resource.resource)"
    ),
    "message": "metadata.name must be spec.resource.resource, a dot, and spec.resource.group;"
    " for the core group, spec.resource.resource alone",
}

_STATE_STATUS: Final = _object(
    "Versions in which objects may be stored, and the version that servers write.",
    {
        "persistedStorageVersionHashes": _list(
            "Hashes of versions in which objects may be stored; Unknown stands for any.",
            {"type": "string"},
            maxItems=HASHES_MAX,
        ),
        "persistedEncryptionKeys": _list(
            "Encryption keys under which objects may be stored; none: nothing is encrypted.",
            {"type": "string"},
            maxItems=HASHES_MAX,
        ),
        "currentStorageVersionHash": _text("Hash of the version in which objects are written."),
        # KEP-2343 4.26: the same field of the CRD
        "currentStorageVersionHashes": _list(
            "The version that each observer has seen its server write, if there are several.",
            _object(
                "The observation of one observer.",
                {
                    "reporterID": _text("ID of the observer."),
                    "currentStorageVersionHash": _text("The hash that it has seen."),
                    "lastHeartbeatTime": _time("Time of the last observation."),
                },
                required=["reporterID"],
            ),
            maxItems=HASHES_MAX,
        ),
        "lastHeartbeatTime": _time("Time of the last confirmation of the state."),
    },
)

_STATE: Final = _object(
    "The versions in which the objects of a resource may be stored.",
    {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _object(
            "The resource that the state describes.",
            {
                "resource": _object(
                    "The resource.",
                    {"group": _GROUP_FIELD, "resource": _RESOURCE_FIELD},
                    required=["resource"],
                    **{"x-kubernetes-validations": [_UNCHANGED]},
                )
            },
            required=["resource"],
        ),
        "status": _STATE_STATUS,
    },
    required=["spec"],
    **{"x-kubernetes-validations": [_NAME_RULE]},
)
_STATE_COLUMNS: Final = [
    _column("Current", ".status.currentStorageVersionHash"),
    _column("Persisted", ".status.persistedStorageVersionHashes"),
    _column("Heartbeat", ".status.lastHeartbeatTime", kind="date"),
    _AGE,
]

_MIGRATION_STATUS: Final = _object(
    "Progress and result of the migration.",
    {
        "conditions": _list(
            "Running, Succeeded or Failed, and conditions of other controllers.",
            _object(
                "One condition.",
                {
                    "type": _text("Type of the condition."),
                    "status": _text("True, False or Unknown."),
                    "lastUpdateTime": _time("Time of the last update."),
                    "reason": _text("Reason of the status, in one CamelCase word."),
                    "message": _text("Reason of the status, for people."),
                },
                required=["type", "status"],
            ),
        ),
        "progress": _object(
            "Counts of the running pass, or of the last one.",
            {
                "pass": _count("Number of the pass; the passes after the first verify it."),
                "scanned": _count("Objects checked."),
                "rewritten": _count("Objects that were rewritten."),
                "unchanged": _count("Objects that were already in the target version."),
                "failed": _count("Objects that could not be rewritten."),
                "remaining": _count("Objects that are still to be checked; an estimate."),
                "objectsPerSecond": {
                    "type": "number",
                    "description": "Objects checked per second, over the last seconds.",
                },
                "secondsLeft": _count("Time remaining in seconds; an estimate."),
            },
        ),
        "failedObjects": _list(
            "Some of the objects that could not be rewritten.",
            _object(
                "An object that could not be rewritten.",
                {
                    "namespace": _text("Its namespace, if it has one."),
                    "name": _text("Its name."),
                    "reason": _text("Reason of the failure, in one CamelCase word."),
                    "message": _text("Reason of the failure, for people."),
                },
                required=["name"],
            ),
            maxItems=FAILED_OBJECTS_MAX,
        ),
    },
)

_MIGRATION: Final = _object(
    "A migration: rewrites all objects of a resource in the version that servers write now.",
    {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _object(
            "The resource to migrate.",
            {
                "resource": _object(
                    "The resource; its version only selects the endpoint that is listed.",
                    {
                        "group": _GROUP_FIELD,
                        "version": _text("API version in which it is listed."),
                        "resource": _RESOURCE_FIELD,
                    },
                    **{"x-kubernetes-validations": [_UNCHANGED]},
                ),
                "continueToken": _text("Continue token of the next page; set by the migrator."),
            },
            required=["resource"],
        ),
        "status": _MIGRATION_STATUS,
    },
)
_MIGRATION_COLUMNS: Final = [
    _column("Resource", ".spec.resource.resource"),
    _column("Group", ".spec.resource.group", is_wide=True),
    _column("Status", '.status.conditions[?(@.status=="True")].type'),
    _column("Progress", '.status.conditions[?(@.status=="True")].message'),
    _AGE,
]


def definition_of(plural: str) -> Object:
    """Return a copy of the CRD of one kind, as it is created."""
    return copy.deepcopy(DEFINITIONS[plural])


def upgraded(existing: Object, plural: str) -> Object:
    """Return the existing CRD with our version in it; equal to it if there is nothing to do.

    Versions, conversion, labels and annotations of others stay. Our version becomes the stored one
    unless another version is: the storage version of existing objects must not change.
    """
    ours, result = definition_of(plural), copy.deepcopy(existing)
    spec = result.setdefault("spec", {})
    wanted = ours["spec"]["versions"][0]
    others = [each for each in spec.get("versions") or [] if each.get("name") != VERSION]
    is_stored_elsewhere = any(each.get("storage") for each in others)
    versions = []
    for each in spec.get("versions") or []:
        versions.append(_merged(each, wanted) if each.get("name") == VERSION else each)
    if len(versions) == len(others):
        versions.append(wanted)
    for each in versions:
        if each.get("name") == VERSION:
            each["storage"] = not is_stored_elsewhere
    spec["versions"] = versions
    if spec.get("preserveUnknownFields"):
        spec["preserveUnknownFields"] = False
    names = spec.setdefault("names", {})
    for field, value in ours["spec"]["names"].items():
        names.setdefault(field, value)
    annotations = metadata_of(result).setdefault("annotations", {})
    annotations.setdefault(_APPROVAL, _APPROVED_BY[plural])
    return result


def _merged(existing: _Schema, ours: _Schema) -> _Schema:
    """Return the shipped version, with the fields that only the existing one sets: a
    deprecation."""
    return {**existing, **ours}


def _definition(plural: str, schema: _Schema, columns: list[_Schema]) -> Object:
    kind = KINDS[plural]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {_APPROVAL: _APPROVED_BY[plural]},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


DEFINITIONS: Final[dict[str, Object]] = {
    "storagestates": _definition("storagestates", _STATE, _STATE_COLUMNS),
    "storageversionmigrations": _definition(
        "storageversionmigrations", _MIGRATION, _MIGRATION_COLUMNS
    ),
}
