"""Defaults of volumes: in a pod, in a pod template, and as a PersistentVolume.

Not here: mounting.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all
from restow.kinds.defaults.images import pull_policy

_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
# Defaults of each kind of source. Some kinds exist in pods only.
_OF_SOURCE: Final[dict[str, dict[str, Any]]] = {
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "kind": "Shared",
        "readOnly": False,
    },
    "configMap": {"defaultMode": _FILE_MODE},
    "downwardAPI": {"defaultMode": _FILE_MODE},
    "iscsi": {"iscsiInterface": "default"},
    "projected": {"defaultMode": _FILE_MODE},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
    "secret": {"defaultMode": _FILE_MODE},
}


def default_pod_volume(volume: Object) -> None:
    """Set the defaults of a pod's volume; one without a source is an empty directory."""
    if not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
        return
    default_source(volume)
    for item in items(given(volume, "downwardAPI") or {}, "items"):
        default_field_ref(item)
    for source in items(given(volume, "projected") or {}, "sources"):
        _default_projection(source)
    claim = given(given(volume, "ephemeral") or {}, "volumeClaimTemplate")
    if claim is not None:
        put(child(claim, "spec"), "volumeMode", "Filesystem")
    image = given(volume, "image")
    if image is not None:
        put(image, "pullPolicy", pull_policy(image.get("reference")))


def default_source(volume: Object) -> None:
    """Set the defaults of a source, in a pod's volume or in a PersistentVolume."""
    for name, source in volume.items():
        if name == "hostPath" and isinstance(source, dict) and source.get("type") is None:
            source["type"] = ""
        elif name in _OF_SOURCE and isinstance(source, dict):
            put_all(source, _OF_SOURCE[name])


def default_field_ref(source: Object) -> None:
    """Set the default apiVersion of a reference to a field of the pod."""
    reference = given(source, "fieldRef")
    if reference is not None:
        put(reference, "apiVersion", "v1")


def _default_projection(source: Object) -> None:
    token = given(source, "serviceAccountToken")
    if token is not None:
        put(token, "expirationSeconds", _TOKEN_SECONDS)
    for item in items(given(source, "downwardAPI") or {}, "items"):
        default_field_ref(item)
