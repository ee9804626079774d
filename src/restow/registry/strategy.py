"""The generic strategy of all kinds: metadata on create, update and delete.

Pure functions on objects in the version of the request: they get the old state, the options of the
request and generated values (IDs, time), and return the new state or raise a StatusError. They may
change the new object, which is always a copy, and never the old one. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from restow.aio import Ids
from restow.apimachinery import field_errors, status
from restow.apimachinery.apply.sets import FieldSet
from restow.apimachinery.metadata_rules import (
    generated_name,
    metadata_problems,
    metadata_update_problems,
    resource_version_missing,
)
from restow.apimachinery.names import GroupKind
from restow.apimachinery.status_error import StatusError
from restow.kinds.kind import Kind
from restow.kinds.validation import NO_CONTENT, has_other_content, pod_parts
from restow.registry import graceful_deletion
from restow.registry.resource import Object, Resource

NAME_SHOWN_MAX: Final = 256
TIMES_KEPT_MAX: Final = 16
DEFINITIONS_GROUP: Final = "apiextensions.k8s.io"
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
# Subresources that write only the status; an approval is a condition in the status.
_APPROVAL: Final = "approval"
_STATUS_SUBRESOURCES: Final = frozenset({"status", _APPROVAL})
# Subresources whose writes do not increment the generation.
_UNCOUNTED: Final = _STATUS_SUBRESOURCES | pod_parts.UNCOUNTED

# Set by the server only; values from clients are dropped.
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
# Metadata in an applied configuration that only identifies the object.
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})
# Also unchanged by a write of the status, for kinds with `status_keeps_metadata`.
_KEPT_WITH_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")
_SORTED: Final = orjson.OPT_SORT_KEYS
_KEPT_FROM_OLD: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)


def timestamp(now: datetime) -> str:
    """Format a time for metadata."""
    now = now.astimezone(UTC) if now.tzinfo is not UTC else now
    return _time_text(now.year, now.month, now.day, now.hour, now.minute, now.second)


@lru_cache(maxsize=TIMES_KEPT_MAX)
def _time_text(  # noqa: PLR0917 - the components of one time
    year: int, month: int, day: int, hour: int, minute: int, second: int
) -> str:
    # Many writes within one second have the same timestamp.
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def begin_create(
    resource: Resource,
    api_version: str,
    obj: Object,
    *,
    namespace: str,
    ids: Ids,
    now: datetime,
    track: Callable[[], None] | None = None,
) -> None:
    """Set the metadata of a new object that the server generates.

    `track` is called when the object contains only fields that its creator may write.
    """
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
    if resource.kind.tracks_generation and resource.kind.generation_first:
        metadata["generation"] = resource.kind.generation_first
    if resource.has_status(api_version) and not resource.kind.create_keeps_status:
        obj.pop("status", None)
    if track is not None:
        track()
    resource.shape.prepare_create(obj)


def place(kind: Kind, metadata: Object, namespace: str) -> None:
    """Set the namespace of the request in an object; raise a 400 if the object has another one."""
    sent = metadata.get("namespace") or ""
    if sent and sent != namespace:
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
    """Raise a 422 with all causes if an object is invalid."""
    metadata = new["metadata"]
    kind = resource.kind
    problems = metadata_problems(
        metadata,
        name_rule=kind.name_problem,
        is_namespaced=kind.namespaced,
        # CRDs and custom resources may have finalizers without a domain.
        bare_finalizers_allowed=resource.is_custom or kind.group == DEFINITIONS_GROUP,
    )
    if old is not None:
        problems += metadata_update_problems(metadata, old["metadata"])
    problems += resource.shape.problems(api_version, new, old, subresource=subresource)
    if problems:
        name = metadata.get("name") or metadata.get("generateName") or ""
        raise status.invalid(kind.group_kind, name[:NAME_SHOWN_MAX], problems)


def begin_update(
    resource: Resource,
    api_version: str,
    new: Object,
    old: Object,
    *,
    subresource: str = "",
    track: Callable[[], bool] | None = None,
) -> None:
    """Restore the fields that an update may not change, and increment the generation.

    `track` is called when the object differs only in fields that the request may write. It
    returns True if the content certainly differs.
    """
    kind, metadata, before = resource.kind, new["metadata"], old["metadata"]
    put_back(resource, api_version, new, old, subresource=subresource)
    differs = track is not None and track()
    resource.shape.prepare_update(new, old)
    is_counted = kind.tracks_generation and not kind.generation_is_fixed
    if is_counted and subresource not in _UNCOUNTED:
        # Custom resources may count the status as well, and some changes may have been
        # reverted.
        if differs and not resource.is_custom:
            differs = has_other_content(new, old)
        else:
            differs = _differs(resource, api_version, new, old)
        if differs:
            metadata["generation"] = int(before.get("generation") or 0) + 1


def put_back(
    resource: Resource, api_version: str, new: Object, old: Object, *, subresource: str = ""
) -> None:
    """Restore the fields that the request may not change through its subresource."""
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
            for name in _KEPT_WITH_STATUS if kind.status_keeps_metadata else kind.status_keeps:
                _keep(metadata, before, name)
    elif subresource in pod_parts.PARTS:
        pod_parts.keep_rest(new, old, subresource=subresource)
    elif resource.has_status(api_version) and subresource != "finalize":
        _keep(new, old, "status")
    if _is_namespace(kind) and subresource != "finalize":
        _keep_finalizers(new, old)


def applicable(
    resource: Resource, api_version: str, config: Object, *, subresource: str = ""
) -> Object:
    """Return the part of a configuration that may be applied through the subresource."""
    names = _kept_names(resource, api_version, subresource)
    if names is None:
        return config
    found = {name: value for name, value in config.items() if names(name)}
    metadata = config.get("metadata")
    if metadata and not _may_write_metadata(resource, subresource):
        kept = {name: value for name, value in metadata.items() if name in _IDENTITY}
        found["metadata"] = kept
    elif metadata and subresource in _STATUS_SUBRESOURCES and resource.kind.status_keeps:
        kept_back = resource.kind.status_keeps
        found["metadata"] = {
            name: value for name, value in metadata.items() if name not in kept_back
        }
    return found


def writable_fields(
    resource: Resource, api_version: str, fields: FieldSet, *, subresource: str = ""
) -> FieldSet:
    """Like `applicable`, for a set of fields."""
    names = _kept_names(resource, api_version, subresource)
    if names is None:
        return fields
    found = {name: below for name, below in fields.items() if names(name[2:])}
    if not _may_write_metadata(resource, subresource):
        found.pop("f:metadata", None)
    elif "f:metadata" in found and subresource in _STATUS_SUBRESOURCES:
        kept_back = {f"f:{name}" for name in resource.kind.status_keeps}
        below = found["f:metadata"]
        found["f:metadata"] = {name: each for name, each in below.items() if name not in kept_back}
        if not found["f:metadata"]:
            del found["f:metadata"]
    return found


def _kept_names(
    resource: Resource, api_version: str, subresource: str
) -> Callable[[str], bool] | None:
    """Return a test for the top-level fields that a subresource may write; None: all of them."""
    if subresource in _STATUS_SUBRESOURCES:
        return {"status", "metadata", "kind", "apiVersion"}.__contains__
    if resource.has_status(api_version):
        return "status".__ne__
    return None


def _may_write_metadata(resource: Resource, subresource: str) -> bool:
    if subresource not in _STATUS_SUBRESOURCES:
        return True
    return not resource.is_custom and not resource.kind.status_keeps_metadata


def check_versions(
    resource: Resource, new: Object, old: Object, *, name: str, is_patch: bool
) -> None:
    """Compare the resource version and UID in an update with the stored ones."""
    metadata, before = new["metadata"], old["metadata"]
    asked = metadata.get("resourceVersion") or ""
    if asked and not (isinstance(asked, str) and asked.isascii() and asked.isdigit()):
        raise status.bad_request(
            f"metadata.resourceVersion: {asked!r} is not a valid resource version"
        )
    # "0" means that no version is required; only a patch may omit it.
    asked, is_omitted = asked.lstrip("0") and asked, is_patch and not asked
    if not asked and not is_omitted and not resource.kind.unconditional_update:
        # kube-apiserver has the resource in this message, and the kind in others.
        named = GroupKind(resource.group, resource.plural)
        raise status.invalid(named, name, [resource_version_missing()])
    if asked and asked != before["resourceVersion"]:
        raise status.conflict(resource.kind.group_resource, name)
    uid = metadata.get("uid") or ""
    if uid and uid != before.get("uid"):
        if is_patch:
            # The UID in a patch is not a precondition but a change, and it is immutable.
            named = GroupKind(resource.group, resource.kind.kind)
            raise status.invalid(named, name, [field_errors.immutable("metadata.uid", uid)])
        raise uid_conflict(resource, name, asked=uid, found=before.get("uid") or "")


def uid_conflict(resource: Resource, name: str, *, asked: str, found: str) -> StatusError:
    return status.precondition_failed(
        resource.kind.group_resource, name, what="UID", wanted=asked, found=found
    )


def mark_deleted(
    resource: Resource,
    obj: Object,
    *,
    now: datetime,
    policy: str,
    grace_seconds: int | None = 0,
) -> bool:
    """Apply a deletion to a copy of an object; return whether to remove it at once.

    `grace_seconds` is the requested grace period for kinds with graceful deletion; None selects
    the one in the spec.
    """
    metadata, is_namespace = obj["metadata"], _is_namespace(resource.kind)
    finalizers = [each for each in metadata.get("finalizers") or [] if isinstance(each, str)]
    if not resource.kind.follows_owners:
        policy = "Background"
    elif not policy and resource.kind.orphans_by_default and FOREGROUND not in finalizers:
        policy = "Orphan"
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
    if policy:
        finalizers = [each for each in finalizers if each not in (FOREGROUND, ORPHAN)]
    if wanted is not None:
        finalizers.append(wanted)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if resource.kind.is_graceful:
        is_over = graceful_deletion.start_grace_period(obj, asked=grace_seconds, now=now)
        return is_over and not has_finalizers(resource, obj)
    if not has_finalizers(resource, obj):
        return True
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = timestamp(now)
        # Namespaces and CRDs are only marked; for other kinds, a deletion is also a change.
        if not is_namespace and resource.group != DEFINITIONS_GROUP:
            metadata["deletionGracePeriodSeconds"] = 0
            if metadata.get("generation"):
                metadata["generation"] += 1
    if is_namespace:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return False


def has_finalizers(resource: Resource, obj: Object) -> bool:
    """Whether an object that is being deleted still has finalizers."""
    if obj["metadata"].get("finalizers"):
        return True
    return _is_namespace(resource.kind) and bool((obj.get("spec") or {}).get("finalizers"))


def _is_namespace(kind: Kind) -> bool:
    return kind.plural == "namespaces" and not kind.group


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
    """Keep the whole status except for its conditions, which an approval writes."""
    conditions = (new.get("status") or {}).get("conditions")
    _keep(new, old, "status")
    kept = {k: v for k, v in (new.get("status") or {}).items() if k != "conditions"}
    new["status"] = {**kept, "conditions": conditions} if conditions else kept


def _keep_finalizers(new: Object, old: Object) -> None:
    """Keep the finalizers in a namespace's spec, which only its subresource changes."""
    finalizers = (old.get("spec") or {}).get("finalizers")
    spec: Any = new.get("spec") or {}
    if finalizers:
        new["spec"] = {**spec, "finalizers": finalizers}
    elif isinstance(spec, dict) and "finalizers" in spec:
        new["spec"] = {name: value for name, value in spec.items() if name != "finalizers"}


def _is_within(old: Any, new: Any) -> bool:
    """Whether the new content contains all of the old content unchanged."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _is_within(value, new[name]) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_is_within, old, new))
    return bool(old == new)


def _without_entries(obj: Object) -> Object:
    """Return an object without its managed fields, which may be large and are not content."""
    metadata = obj["metadata"]
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _differs(resource: Resource, api_version: str, new: Object, old: Object) -> bool:
    """Whether an update increments the generation: metadata and a separate status do not count."""
    if not resource.is_custom:
        field = resource.kind.generation_metadata
        if field and (new["metadata"].get(field) or {}) != (old["metadata"].get(field) or {}):
            return True
        if not has_other_content(new, old):
            return False
        # An object that an older release stored may lack empty fields and newer defaults. Apply
        # them to the old object only if they may be the whole difference.
        try:
            was = resource.shape.check(api_version, _without_entries(old))[0]
        except StatusError:
            return True  # stored before the kind had types, and corrected by this write
        if not has_other_content(new, was):
            return False
        content = {name: value for name, value in was.items() if name not in NO_CONTENT}
        return not _is_within(content, new) or has_other_content(
            new, resource.shape.default(api_version, deepcopy(was))
        )
    # All fields of custom resources count, except for a status with its own subresource; so does
    # another notation of a number that Python considers equal.
    ignored = NO_CONTENT if resource.has_status(api_version) else NO_CONTENT - {"status"}
    content, before = (
        {name: value for name, value in obj.items() if name not in ignored} for obj in (new, old)
    )
    return content != before or orjson.dumps(content, option=_SORTED) != orjson.dumps(
        before, option=_SORTED
    )
