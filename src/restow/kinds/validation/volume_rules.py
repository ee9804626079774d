"""Validation rules of single fields of volumes, claims and attachments.

Only rows: the rules by struct and field, with the messages of kube-apiserver. The volumes of pods
and PersistentVolumes share most kinds of sources, under two names.

Not here: rules that involve several fields or the old object.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import quantity
from restow.apimachinery.metadata_rules import label_problems
from restow.apimachinery.name_formats import (
    dns_label_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.kinds.validation.fields import Causes
from restow.kinds.validation.rules import (
    Fields,
    Rule,
    both,
    distinct_by,
    filled,
    given_one_of,
    matching,
    needed,
    not_negative,
    number,
    one_of,
    present,
    present_because,
    some_of,
    text,
    whole_one_of,
)

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
# The kinds of sources of a PersistentVolume.
VOLUME_SOURCES: Final = frozenset(
    {
        *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc"),
        *("flexVolume", "flocker", "gcePersistentDisk", "glusterfs", "hostPath", "iscsi"),
        *("local", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO"),
        *("storageos", "vsphereVolume"),
    }
)
# In the order of validation: all but the first are reported as too many.
_POD_SOURCES: Final = (
    *("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret"),
    *("nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs"),
    *("quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume"),
    *("photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO"),
    *("csi", "ephemeral", "image"),
)
_PERSISTENT_SOURCES: Final = (
    *("hostPath", "gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "flocker", "nfs"),
    *("rbd", "quobyte", "cephfs", "iscsi", "cinder", "fc", "flexVolume", "azureFile"),
    *("vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "scaleIO", "local"),
    *("storageos", "csi"),
)
_DRIVER_LENGTH_MAX: Final = 63
_FILE_MODE_MAX: Final = 0o777
_LUN_MAX: Final = 255
_HOST_PATHS: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_ISCSI_NAME: Final = (
    r"iqn\.\d{4}-\d{2}\.[-a-z0-9.]+(:[^,;*&$|\s]+)?|eui.[0-9A-Fa-f]{16}|naa.[0-9A-Fa-f]{32}"
)


def driver_problem(value: str) -> str | None:
    """Return why the name of a storage or device driver is invalid; None if it is valid."""
    if len(value) > _DRIVER_LENGTH_MAX:
        return f"must be no more than {_DRIVER_LENGTH_MAX} characters"
    return subdomain_problem(value.lower())


def _one_source_of(names: tuple[str, ...]) -> Rule:
    def check(causes: Causes, field: str, value: Any) -> None:
        found = [name for name in names if value.get(name) is not None] if len(value) > 1 else []
        for name in found[1:]:
            causes.forbidden(f"{field}.{name}", "may not specify more than 1 volume type")

    return check


def _file_mode(causes: Causes, field: str, value: Any) -> None:
    if isinstance(value, int) and not 0 <= value <= _FILE_MODE_MAX:
        causes.invalid(field, value, "must be a number between 0 and 0777 (octal), both inclusive")


def _absolute(causes: Causes, field: str, value: Any) -> None:
    if not value:
        causes.required(field)
    if not (value or "").startswith("/"):
        causes.invalid(field, value or "", "must be an absolute path")


def _no_way_back(causes: Causes, field: str, value: Any) -> None:
    if not value:
        causes.required(field)
    elif ".." in value.split("/"):
        causes.invalid(field, value, "must not contain '..'")


def _one_reference(causes: Causes, field: str, value: Any) -> None:
    """Require a field reference or a resource reference in a file of a downward API volume."""
    where = field.rpartition(".items[")[0]
    if not value.get("path"):
        causes.required(f"{where}.path")
    if value.get("fieldRef") is None and value.get("resourceFieldRef") is None:
        causes.required(where, "one of fieldRef and resourceFieldRef is required")


def check_access_modes(causes: Causes, field: str, value: Any) -> None:
    """Require at least one access mode, and only known ones."""
    if not value:
        causes.required(field, "at least 1 access mode is required")
    for mode in value or ():
        if mode not in ACCESS_MODES:
            causes.not_supported(field, mode, ACCESS_MODES)


def _claim(causes: Causes, field: str, value: Any) -> None:
    resources = value.get("resources") or {}
    size = (resources.get("requests") or {}).get("storage")
    where = f"{field}.resources[storage]"
    if size is None:
        causes.required(where)
    elif quantity.parse(str(size)) <= 0:
        causes.invalid(where, str(size), "must be greater than zero")
    source, reference = value.get("dataSource"), value.get("dataSourceRef")
    for name, found in (("dataSource", source), ("dataSourceRef", reference)):
        if found is not None:
            _check_source(causes, f"{field}.{name}", found)
    if source is not None and reference is not None and source != reference:
        causes.invalid(field, field, "must match dataSourceRef")


def _check_source(causes: Causes, field: str, source: Any) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            causes.required(f"{field}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.invalid(field, source.get("kind") or "", why)
    if group and (problem := subdomain_problem(group)):
        causes.invalid(f"{field}.apiGroup", group, problem)


def claim_labels(causes: Causes, field: str, value: Any) -> None:
    """Validate the labels of a claim template."""
    labels = (value.get("metadata") or {}).get("labels")
    if labels:
        causes += label_problems(labels, f"{field}.metadata.labels")


def check_size(causes: Causes, field: str, value: Any) -> None:
    """Require a positive storage capacity."""
    if not value:
        causes.required(field)
    for name, amount in (value or {}).items():
        if name != "storage":
            causes.not_supported(field, name, ("storage",))
        elif quantity.parse(str(amount)) <= 0:
            causes.invalid(f"{field}[{name}]", str(amount), "must be greater than zero")


def _flocker(causes: Causes, field: str, value: Any) -> None:
    if not value.get("datasetName") and not value.get("datasetUUID"):
        causes.required(field, "one of datasetName and datasetUUID is required")


def _channel(causes: Causes, field: str, value: Any) -> None:
    if bool(value.get("targetWWNs")) == bool(value.get("wwids")):
        why = "must specify either targetWWNs or wwids, but not both"
        causes.required(f"{field}.targetWWNs", why)
    if value.get("targetWWNs") and value.get("lun") is None:
        causes.required(f"{field}.lun", "lun is required if targetWWNs is specified")


_LUN: Final = number(0, _LUN_MAX)
_OF_SOURCES: Final[dict[str, Fields]] = {
    "AWSElasticBlockStore": {"volumeID": needed},
    "AzureDisk": {"diskName": needed, "diskURI": needed},
    "AzureFile": {"secretName": needed, "shareName": needed},
    "CephFS": {"monitors": needed},
    "Cinder": {"volumeID": needed},
    "CSI": {"driver": both(needed, text(driver_problem))},
    "FC": {"": _channel, "lun": _LUN},
    "Flex": {"driver": needed},
    "Flocker": {"": _flocker},
    "GCEPersistentDisk": {"pdName": needed},
    "Glusterfs": {"endpoints": needed, "path": needed},
    "HostPath": {"path": _no_way_back, "type": one_of(*_HOST_PATHS)},
    "ISCSI": {
        "targetPortal": needed,
        "iqn": both(
            needed, matching(_ISCSI_NAME, "must be valid format starting with iqn, eui, or naa")
        ),
        "lun": _LUN,
    },
    "NFS": {"server": needed, "path": _absolute},
    "PhotonPersistentDisk": {"pdID": needed},
    "Portworx": {"volumeID": needed},
    "Quobyte": {"registry": needed, "volume": needed},
    "RBD": {"monitors": needed, "image": needed},
    "ScaleIO": {"gateway": needed, "system": needed, "volumeName": needed},
    "StorageOS": {"volumeName": both(needed, text(dns_label_problem))},
    "VsphereVirtualDisk": {"volumePath": needed},
}
_OF_PODS: Final[dict[str, Fields]] = {
    "core/Volume": {
        "": _one_source_of(_POD_SOURCES),
        "name": both(needed, text(dns_label_problem)),
    },
    "core/ConfigMapVolumeSource": {"name": needed, "defaultMode": _file_mode},
    "core/SecretVolumeSource": {"secretName": needed, "defaultMode": _file_mode},
    "core/ConfigMapProjection": {"name": needed},
    "core/SecretProjection": {"name": needed},
    "core/DownwardAPIVolumeFile": {"": _one_reference, "mode": _file_mode},
    "core/DownwardAPIVolumeSource": {"defaultMode": _file_mode},
    "core/ProjectedVolumeSource": {"defaultMode": _file_mode},
    "core/KeyToPath": {
        "key": needed,
        "path": _no_way_back,
        "mode": _file_mode,
    },
    "core/ServiceAccountTokenProjection": {
        "path": needed,
        "expirationSeconds": number(600, 2**32),
    },
    "core/PersistentVolumeClaimVolumeSource": {"claimName": needed},
    "core/EphemeralVolumeSource": {"volumeClaimTemplate": present},
    "core/PersistentVolumeClaimTemplate": {"": claim_labels},
    "core/ImageVolumeSource": {"pullPolicy": one_of("Always", "IfNotPresent", "Never")},
    "core/PersistentVolumeClaimSpec": {
        "": _claim,
        "accessModes": check_access_modes,
        "storageClassName": text(subdomain_problem),
        "volumeAttributesClassName": text(subdomain_problem),
        "volumeMode": one_of("Block", "Filesystem"),
    },
}
_OF_STORAGE: Final[dict[str, Fields]] = {
    "core/PersistentVolumeSpec": {
        "": _one_source_of(_PERSISTENT_SOURCES),
        "persistentVolumeReclaimPolicy": one_of("Delete", "Recycle", "Retain"),
        "storageClassName": text(subdomain_problem),
        "volumeMode": one_of("Block", "Filesystem"),
        "volumeAttributesClassName": text(subdomain_problem),
    },
    "core/CSIPersistentVolumeSource": {"volumeHandle": needed},
    "core/LocalVolumeSource": {"path": _no_way_back},
    "core/VolumeNodeAffinity": {
        "required": present_because("must specify required node constraints"),
    },
    "storage/StorageClass": {
        "provisioner": text(lambda value: qualified_name_problem(value.lower())),
        "reclaimPolicy": given_one_of("Delete", "Retain"),
        "volumeBindingMode": one_of("Immediate", "WaitForFirstConsumer"),
    },
    "storage/CSIDriverSpec": {
        "fsGroupPolicy": one_of("File", "None", "ReadWriteOnceWithFSType"),
        "volumeLifecycleModes": whole_one_of("Persistent", "Ephemeral"),
    },
    "storage/CSINodeSpec": {"drivers": distinct_by("name")},
    "storage/CSINodeDriver": {"name": both(needed, text(driver_problem)), "nodeID": needed},
    "storage/VolumeNodeResources": {"count": not_negative},
    "storage/CSIStorageCapacity": {"storageClassName": filled(subdomain_problem)},
    "storage/VolumeAttachmentSpec": {
        "attacher": both(needed, text(driver_problem)),
        "nodeName": filled(subdomain_problem),
    },
    "storage/VolumeAttachmentSource": {
        "": some_of(
            "inlineVolumeSpec",
            "persistentVolumeName",
            why="must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
    },
    "storage/VolumeAttributesClass": {"driverName": needed},
}


def _both_names() -> dict[str, Fields]:
    made: dict[str, Fields] = {}
    for name, fields in _OF_SOURCES.items():
        for suffix in ("VolumeSource", "PersistentVolumeSource"):
            made[f"core/{name}{suffix}"] = fields
    return made


RULES: Final[dict[str, Fields]] = _both_names() | _OF_PODS
for _name, _fields in _OF_STORAGE.items():
    RULES[_name] = {**RULES.get(_name, {}), **_fields}
