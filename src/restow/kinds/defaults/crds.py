"""Defaults of a CustomResourceDefinition, and fields that every write of one maintains.

Objects may be stored in every version that `status.storedVersions` lists, so the storage version is
added to the list in the write that changes it. The finalizer is set at creation: a CRD is never
removed before its objects.

Not here: accepted names and conditions, which controllers of the server set.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_HTTPS_PORT: Final = 443


def default_definition(obj: Object, _version: str) -> None:
    """Set default names, derived from the kind, and the defaults of `conversion`."""
    spec = child(obj, "spec")
    names = child(spec, "names")
    kind = names.get("kind")
    if isinstance(kind, str) and kind:
        put_all(names, {"singular": kind.lower(), "listKind": f"{kind}List"})
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    webhook = given(given(spec, "conversion") or {}, "webhook")
    service = given(given(webhook or {}, "clientConfig") or {}, "service")
    if service is not None:
        put(service, "port", _HTTPS_PORT)


def begin(obj: Object) -> None:
    """Initialize a new CRD: no name is accepted yet."""
    _add_finalizer(obj)
    obj["status"] = {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _with_storage_version([], obj),
    }


def keep_from_old(new: Object, old: Object) -> None:
    """Keep the storage version in storedVersions, and the finalizer, in every update.

    Other versions can be removed from the list only by an update of the status, after a migration
    has verified that no object is stored in them.
    """
    status = new.get("status")
    status = status if isinstance(status, dict) else {}
    listed = status.get("storedVersions")
    listed = listed if isinstance(listed, list) else []
    wanted = _with_storage_version(listed, new)
    if wanted != listed:
        # The old object may share its parts with the new one; it must not change.
        new["status"] = {**status, "storedVersions": wanted}
    if not (given(old, "metadata") or {}).get("deletionTimestamp"):
        _add_finalizer(new)


def _with_storage_version(listed: list[Any], obj: Object) -> list[Any]:
    for version in items(given(obj, "spec") or {}, "versions"):
        if version.get("storage") is True:
            name = version.get("name")
            return listed if name in listed else [*listed, name]
    return listed


def _add_finalizer(obj: Object) -> None:
    metadata = child(obj, "metadata")
    finalizers = metadata.get("finalizers")
    finalizers = finalizers if isinstance(finalizers, list) else []
    if CLEANUP_FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
