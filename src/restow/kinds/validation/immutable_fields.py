"""Immutable fields.

Only rows, and the function that applies them. Kinds whose fields may change under conditions have
functions of their own.

Not here: metadata, whose fields have the same rules for all kinds.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.validation.fields import Causes, Object

_RESOURCE: Final = "resource.k8s.io"
_STORAGE: Final = "storage.k8s.io"

_FROZEN: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("apps", "ControllerRevision"): ("data",),
    ("batch", "Job"): ("spec.successPolicy", "spec.managedBy"),
    ("networking.k8s.io", "IPAddress"): ("spec.parentRef",),
    (_RESOURCE, "ResourceClaim"): ("spec",),
    (_RESOURCE, "ResourceClaimTemplate"): ("spec",),
    (_RESOURCE, "ResourceSlice"): ("spec.driver", "spec.nodeName", "spec.pool.name"),
    ("scheduling.k8s.io", "PriorityClass"): ("preemptionPolicy",),
    (_STORAGE, "CSIDriver"): ("spec.attachRequired", "spec.volumeLifecycleModes"),
    (_STORAGE, "CSIStorageCapacity"): ("nodeTopology", "storageClassName"),
    (_STORAGE, "VolumeAttachment"): ("spec",),
    (_STORAGE, "VolumeAttributesClass"): ("driverName", "parameters"),
}


def immutable_problems(causes: Causes, group: str, kind: str, new: Object, old: Object) -> None:
    """Report changes of immutable fields."""
    for path in _FROZEN.get((group, kind), ()):
        value, before = _at(new, path), _at(old, path)
        # Empty and absent values are equal.
        if (value or None) != (before or None):
            causes.immutable(path, value)


def _at(obj: Object, path: str) -> Any:
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
