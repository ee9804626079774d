"""Defaults of a CustomResourceDefinition, and what every write of one sees to.

Objects may be stored in every version that `status.storedVersions` lists, so the storage version
joins that list in the very write that makes it one. The finalizer is there from the first moment:
a definition never goes before its objects.

Not here: names that are accepted, and conditions; those are work of the server.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_HTTPS_PORT: Final = 443


def default_definition(obj: Object, _version: str) -> None:
    """Names follow from the kind, as clients expect to find them."""
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
    """A definition at its first moment: no name is accepted yet."""
    _hold(obj)
    obj["status"] = {
        "conditions": [],
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": _with_storage_version([], obj),
    }


def keep_from_old(new: Object, old: Object) -> None:
    """What no write takes away: the version in which objects are stored, and the finalizer.

    Other versions leave the list by a write of the status alone, which is for who has proved that
    nothing is stored in them any more.
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
        _hold(new)


def _with_storage_version(listed: list[Any], obj: Object) -> list[Any]:
    for version in items(given(obj, "spec") or {}, "versions"):
        if version.get("storage") is True:
            name = version.get("name")
            return listed if name in listed else [*listed, name]
    return listed


def _hold(obj: Object) -> None:
    metadata = child(obj, "metadata")
    finalizers = metadata.get("finalizers")
    finalizers = finalizers if isinstance(finalizers, list) else []
    if CLEANUP_FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
