"""Rejects client writes to objects that only API servers may write: identity Leases,
StorageVersions and votes.

Every create, update and delete by clients and by controllers is checked here. The servers write
these objects in transactions of their own (`restow.storageversion`), which do not pass this check:
an entry and the key for it in the store change together or not at all.

| object | what clients may do besides reading it |
|---|---|
| identity Lease | nothing |
| StorageVersion | create and delete it while it has no entries; labels and annotations |
| vote (`kube-apiserver.internal.k8s.io`) | delete it when it has no candidate versions |
| StorageState | create and delete it; add persisted hashes and keys, or "Unknown" for all hashes |

Clients may not change annotations with the prefix of restow in any of them.

A persisted hash or key is removed from a StorageState only when the migration was verified. If
servers verify migrations themselves (annotation `coordination.restow.dev/verifier`), they remove
it, and a client that tries gets a 422. If no server can, a client may remove it. Without the
annotation it depends on whether servers have ever reported the resource, which is a guard on the
write (`guard_of_update`).

Pure functions: they raise a 403 or a 422, or return. Not here: validation of the objects, which
comes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from restow.apimachinery import field_errors, status
from restow.apimachinery.names import GroupResource
from restow.apis.encryption_keys import IDENTITY
from restow.apis.internal_v1alpha1 import name_of
from restow.apis.names import (
    EPOCHS_PREFIX,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    LEASE_NAMESPACE,
    MEMBER_ANNOTATION,
    OWNED_ANNOTATION_PREFIX,
    VERIFIED_BY_SERVERS,
    VERIFIER_ANNOTATION,
)
from restow.registry.resource import Object, Resource
from restow.storage.checks import OBJECTS_PREFIX
from restow.storage.interface import Absent, Guard, Key

__all__ = [
    "check_create",
    "check_delete",
    "check_update",
    "guard_of_update",
    "narrowing_refused",
]

SERVERS_SHOWN_MAX: Final = 3
UNKNOWN_HASH: Final = "Unknown"

_LEASE: Final = "identity leases are written by their server alone"
_STATUS: Final = "its status is written by the API servers alone"
_VOTE: Final = "votes are written by the API servers alone"
_NO_OWNERS: Final = "API servers delete it, so owner references and finalizers cannot be added"
_NARROWING: Final = (
    "hashes and keys are removed by the API servers alone, when they have verified a migration;"
    " run: restow migrate"
)
_ANNOTATION: Final = "this annotation is written by the API servers alone: "


def check_create(resource: Resource, new: Object) -> None:
    """Raise a 403 if clients may not create the object."""
    rules = _RULES.get(resource.root)
    if rules is not None:
        _forbid(resource, new, rules.update(new, {}))


def check_update(resource: Resource, new: Object, old: Object) -> None:
    """Raise a 403 or a 422 if clients may not change the old object into the new one."""
    rules = _RULES.get(resource.root)
    if rules is not None:
        _forbid(resource, old, rules.update(new, old))
    is_servers = resource.root == _STATES_ROOT and _verifier(old) == VERIFIED_BY_SERVERS
    if is_servers and _narrows(new, old):
        raise narrowing_refused(resource, old)


def guard_of_update(resource: Resource, new: Object, old: Object) -> Guard | None:
    """Return the additional guard that an update by a client requires, if any.

    A StorageState that a client has created does not record who verifies migrations. A client may
    remove hashes from it only if no server has ever reported the resource.
    """
    if resource.root != _STATES_ROOT or _verifier(old) or not _narrows(new, old):
        return None
    about = _object_field(_object_field(old, "spec"), "resource")
    name = name_of(GroupResource(about.get("group") or "", about.get("resource") or ""))
    return Absent(Key(EPOCHS_PREFIX + name))


def narrowing_refused(resource: Resource, old: Object) -> status.Invalid:
    """Return the 422 for a client that removes hashes or keys which only servers may remove."""
    name = old["metadata"].get("name") or ""
    cause = field_errors.forbidden("status.persistedStorageVersionHashes", _NARROWING)
    return status.invalid(resource.kind.group_kind, name, [cause])


def check_delete(resource: Resource, old: Object) -> None:
    """Raise a 403 if clients may not delete the object."""
    rules = _RULES.get(resource.root)
    if rules is not None:
        _forbid(resource, old, rules.delete(old))


def _forbid(resource: Resource, obj: Object, why: str) -> None:
    if why:
        name = obj["metadata"].get("name") or ""
        raise status.forbidden(why, resource=resource.kind.group_resource, name=name)


# Each rule returns the reason of a rejection; empty: allowed. The old object of a create is empty.


def _lease_update(new: Object, old: Object) -> str:
    return _LEASE if _is_identity(new) or _is_identity(old) else ""


def _lease_delete(old: Object) -> str:
    return _LEASE if _is_identity(old) else ""


def _is_identity(lease: Object) -> bool:
    metadata = _object_field(lease, "metadata")
    if metadata.get("namespace") != LEASE_NAMESPACE:
        return False
    if MEMBER_ANNOTATION in _object_field(metadata, "annotations"):
        return True  # an aggregated server: its label has the name of the component
    return _object_field(metadata, "labels").get(IDENTITY_LABEL) == IDENTITY_LABEL_VALUE


def _report_update(new: Object, old: Object) -> str:
    if _without_empty(new.get("status")) != _without_empty(old.get("status")):
        # KEP-2339 3.26: no client writes entries, so the filter needs no exception for them
        return _STATUS
    after, before = _object_field(new, "metadata"), _object_field(old, "metadata")
    added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if added or _owners(after) - _owners(before):
        return _NO_OWNERS
    return _annotation_update(new, old)


def _report_delete(old: Object) -> str:
    entries = _object_field(old, "status").get("storageVersions")
    return _held_by(entries, "API servers still report it")


def _vote_update(new: Object, old: Object) -> str:
    """Allow only the removal of finalizers, so that a deletion can complete."""
    same = _without_finalizers(new) == _without_finalizers(old)
    added = set(_finalizers(new)) - set(_finalizers(old))
    return "" if old and same and not added else _VOTE


def _vote_delete(old: Object) -> str:
    return _held_by(old.get("candidateVersions"), "API servers still vote on it")


def _annotation_update(new: Object, old: Object) -> str:
    after, before = _owned_annotations(new), _owned_annotations(old)
    if after == before:
        return ""
    changed = (name for name in after | before if after.get(name) != before.get(name))
    return _ANNOTATION + min(changed)


def _narrows(new: Object, old: Object) -> bool:
    """Whether a StorageState lists fewer versions or keys than before.

    An empty list of hashes means "Unknown", which stands for every hash; but hashes may only be
    replaced by an explicit "Unknown". An empty list of keys has no special meaning.
    """
    after, before = _object_field(new, "status"), _object_field(old, "status")
    hashes, were = (
        set(each.get("persistedStorageVersionHashes") or ()) for each in (after, before)
    )
    is_reduced = bool((were or {UNKNOWN_HASH}) - hashes) and UNKNOWN_HASH not in hashes
    if is_reduced and hashes != were:
        return True
    keys, had = (
        set(each.get("persistedEncryptionKeys") or (IDENTITY,)) for each in (after, before)
    )
    return bool(had - keys)


def _verifier(state: Object) -> str:
    return _owned_annotations(state).get(VERIFIER_ANNOTATION, "")


def _always(_old: Object) -> str:
    return ""


class _Rules(NamedTuple):
    update: Callable[[Object, Object], str]
    delete: Callable[[Object], str]


_STATES_ROOT: Final = f"{OBJECTS_PREFIX}migration.k8s.io/storagestates/"
# By storage key prefix, because the stored object is protected, whatever its API group is called.
_RULES: Final = {
    f"{OBJECTS_PREFIX}leases/": _Rules(_lease_update, _lease_delete),
    f"{OBJECTS_PREFIX}storageversions/": _Rules(_report_update, _report_delete),
    f"{OBJECTS_PREFIX}kube-apiserver.internal.k8s.io/storageversions/": _Rules(
        _vote_update, _vote_delete
    ),
    # KEP-2343 4.19: anyone with the right may delete a state to reset it
    _STATES_ROOT: _Rules(_annotation_update, _always),
}


def _object_field(obj: Object, name: str) -> Object:
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


def _without_empty(value: Any) -> Any:
    """Return a value without empty parts: an empty field is equal to a missing one."""
    if isinstance(value, dict):
        inner = ((name, _without_empty(each)) for name, each in value.items())
        return {name: each for name, each in inner if each} or None
    if isinstance(value, list):
        return [_without_empty(each) for each in value] or None
    return value or None


def _owners(metadata: Object) -> set[str]:
    return {each.get("uid") or "" for each in metadata.get("ownerReferences") or ()}


def _finalizers(obj: Object) -> Iterable[str]:
    return _object_field(obj, "metadata").get("finalizers") or ()


def _without_finalizers(obj: Object) -> Any:
    ignored = dict.fromkeys(("finalizers", "managedFields", "resourceVersion"))
    return _without_empty({**obj, "metadata": {**_object_field(obj, "metadata"), **ignored}})


def _owned_annotations(obj: Object) -> dict[str, str]:
    annotations = _object_field(_object_field(obj, "metadata"), "annotations")
    return {
        name: value
        for name, value in annotations.items()
        if name.startswith(OWNED_ANNOTATION_PREFIX)
    }


def _held_by(entries: Any, what: str) -> str:
    if not entries:
        return ""
    servers = [str(each.get("apiServerID") or "") for each in entries if isinstance(each, dict)]
    more = len(servers) - SERVERS_SHOWN_MAX
    shown = ", ".join(servers[:SERVERS_SHOWN_MAX])
    return f"{what}: {shown}" + (f" + {more} more..." if more > 0 else "")
