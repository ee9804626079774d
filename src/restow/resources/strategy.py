"""What the server decides about an object's metadata, whatever its kind: on create, update, delete.

Pure functions on objects in the request's version: they get the old state, the wishes of a client
and the facts of the moment (ids, time), and return the new state or raise a StatusError. They may
change the object they are given, which is always a fresh one, and never the old one. No I/O.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import orjson

from restow.kinds.definitions import Kind
from restow.machinery import status
from restow.machinery.metadata_rules import (
    generated_name,
    metadata_problems,
    metadata_update_problems,
    resource_version_missing,
)
from restow.machinery.names import GroupKind
from restow.machinery.status_error import StatusError
from restow.resources.definition import Object, Resource
from restow.runtime import Ids

NAME_SHOWN_MAX: Final = 256
DEFINITIONS_GROUP: Final = "apiextensions.k8s.io"
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
# Paths by which nothing but an object's status is written; an approval is a condition in it.
_APPROVAL: Final = "approval"
_STATUS_SUBRESOURCES: Final = frozenset({"status", _APPROVAL})

# Set by the server alone; what a client sends in them is dropped.
_SERVER_FIELDS: Final = frozenset(
    {
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
        "generation",
    }
)
# Also not changed by a write of the status alone, of kinds that say so.
_KEPT_WITH_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")
# What may change without counting as another generation.
_NOTES: Final = frozenset({"metadata", "status", "kind", "apiVersion"})
_SORTED: Final = orjson.OPT_SORT_KEYS
_KEPT_FROM_OLD: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)


def timestamp(now: datetime) -> str:
    """A time as metadata carries it."""
    return now.isoformat(timespec="seconds").replace("+00:00", "Z")


def begin_create(
    resource: Resource, api_version: str, obj: Object, *, namespace: str, ids: Ids, now: datetime
) -> str:
    """Fill in what a new object gets from the server. Returns its name."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise status.bad_request("resourceVersion should not be set on objects to be created")
    if not _SERVER_FIELDS.isdisjoint(metadata):
        for name in _SERVER_FIELDS:
            metadata.pop(name, None)
    place(resource.kind, metadata, namespace)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"], ids)
    metadata["uid"] = ids.uid()
    metadata["creationTimestamp"] = timestamp(now)
    if resource.kind.tracks_generation:
        metadata["generation"] = 1
    if resource.has_status(api_version):
        obj.pop("status", None)
    resource.shape.prepare_create(obj)
    name = metadata.get("name")
    return name if isinstance(name, str) else ""


def place(kind: Kind, metadata: Object, namespace: str) -> None:
    """Put an object into the namespace of the request, or refuse when it says another one."""
    said = metadata.get("namespace") or ""
    if said and said != namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if kind.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def check(
    resource: Resource,
    api_version: str,
    new: Object,
    old: Object | None,
    *,
    subresource: str = "",
) -> None:
    """Raise a 422 with every cause when an object may not be stored."""
    metadata = new["metadata"]
    kind = resource.kind
    problems = metadata_problems(
        metadata,
        name_rule=kind.name_problem,
        is_namespaced=kind.namespaced,
        # Definitions and what they define need no domain before the name of a finalizer.
        bare_finalizers_allowed=resource.is_custom or kind.group == DEFINITIONS_GROUP,
    )
    if old is not None:
        problems += metadata_update_problems(metadata, old["metadata"])
    problems += resource.shape.problems(api_version, new, old, subresource=subresource)
    if problems:
        name = metadata.get("name") or metadata.get("generateName") or ""
        raise status.invalid(kind.group_kind, name[:NAME_SHOWN_MAX], problems)


def begin_update(
    resource: Resource, api_version: str, new: Object, old: Object, *, subresource: str = ""
) -> None:
    """Fill in what an update may not change, and count the generation."""
    kind = resource.kind
    metadata, before = new["metadata"], old["metadata"]
    for name in _KEPT_FROM_OLD:
        if name in before:
            metadata[name] = before[name]
        elif name in metadata:
            del metadata[name]
    if "selfLink" in metadata:
        del metadata["selfLink"]
    if subresource in _STATUS_SUBRESOURCES:
        _keep_all_but(new, old, "status")
        if subresource == _APPROVAL:
            _keep_all_but_conditions(new, old)
        if resource.is_custom:
            _keep_all_but(metadata, before, "managedFields")
        else:
            for name in _KEPT_WITH_STATUS if kind.status_keeps_metadata else ():
                _keep(metadata, before, name)
    elif resource.has_status(api_version) and subresource != "finalize":
        _keep(new, old, "status")
    if kind.plural == "namespaces" and subresource != "finalize" and not kind.group:
        _keep_finalizers(new, old)
    resource.shape.prepare_update(new, old)
    if kind.tracks_generation and _differs(resource, api_version, new, old):
        metadata["generation"] = int(before.get("generation") or 0) + 1


def check_versions(
    resource: Resource, new: Object, old: Object, *, name: str, is_patch: bool
) -> None:
    """Compare the resource version and uid in an update with what is stored."""
    metadata, before = new["metadata"], old["metadata"]
    asked = metadata.get("resourceVersion") or ""
    if asked and not (isinstance(asked, str) and asked.isascii() and asked.isdigit()):
        raise status.bad_request(f"metadata.resourceVersion: {asked!r} is no resource version")
    if not asked and not is_patch and not resource.kind.unconditional_update:
        # The reference names the resource here, where elsewhere it names the kind.
        named = GroupKind(resource.group, resource.plural)
        raise status.invalid(named, name, [resource_version_missing()])
    if asked and asked != before["resourceVersion"]:
        raise status.conflict(resource.kind.group_resource, name)
    uid = metadata.get("uid") or ""
    if uid and uid != before.get("uid"):
        raise uid_conflict(resource, name, asked=uid, found=before.get("uid") or "")


def uid_conflict(resource: Resource, name: str, *, asked: str, found: str) -> StatusError:
    return status.precondition_failed(
        resource.kind.group_resource, name, what="UID", wanted=asked, found=found
    )


def mark_deleted(resource: Resource, obj: Object, *, now: datetime, policy: str) -> bool:
    """Apply a deletion to a fresh copy of an object; whether it goes away at once."""
    metadata = obj["metadata"]
    finalizers = [each for each in metadata.get("finalizers") or [] if isinstance(each, str)]
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
    if policy:
        finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)]
    if wanted is not None:
        finalizers.append(wanted)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if not has_finalizers(resource, obj):
        return True
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = timestamp(now)
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
    if resource.kind.plural == "namespaces" and not resource.kind.group:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return False


def has_finalizers(resource: Resource, obj: Object) -> bool:
    """Whether something still holds an object that is being deleted."""
    if obj["metadata"].get("finalizers"):
        return True
    is_namespace = resource.kind.plural == "namespaces" and not resource.kind.group
    return is_namespace and bool((obj.get("spec") or {}).get("finalizers"))


def _keep(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _keep_all_but(new: Object, old: Object, field: str) -> None:
    for name in list(new):
        if name not in (field, "metadata", "kind", "apiVersion"):
            _keep(new, old, name)
    for name in old:
        if name != field and name not in new:
            new[name] = old[name]


def _keep_all_but_conditions(new: Object, old: Object) -> None:
    """An approval says nothing else of an object's status."""
    conditions = (new.get("status") or {}).get("conditions")
    _keep(new, old, "status")
    kept = {k: v for k, v in (new.get("status") or {}).items() if k != "conditions"}
    new["status"] = {**kept, "conditions": conditions} if conditions else kept


def _keep_finalizers(new: Object, old: Object) -> None:
    """A namespace's own finalizers change by its subresource alone."""
    finalizers = (old.get("spec") or {}).get("finalizers")
    spec: Any = new.get("spec") or {}
    if finalizers:
        new["spec"] = {**spec, "finalizers": finalizers}
    elif isinstance(spec, dict) and "finalizers" in spec:
        new["spec"] = {name: value for name, value in spec.items() if name != "finalizers"}


def _differs(resource: Resource, api_version: str, new: Object, old: Object) -> bool:
    """Whether anything has changed that counts: not metadata, nor a status with its own path."""
    if not resource.is_custom:
        return any(new.get(name) != old.get(name) for name in (new.keys() | old.keys()) - _NOTES)
    # Custom resources are all data: what does not have a path of its own counts like the rest,
    # and so does a number that is written otherwise, which Python takes for equal.
    ignored = _NOTES if resource.has_status(api_version) else _NOTES - {"status"}
    content, before = (
        {name: value for name, value in obj.items() if name not in ignored} for obj in (new, old)
    )
    return content != before or orjson.dumps(content, option=_SORTED) != orjson.dumps(
        before, option=_SORTED
    )
