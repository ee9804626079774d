"""Defaults of the core group besides pods and services, and of network, storage and scheduling.

Not here: addresses and ports that a server would allocate.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all
from restow.kinds.defaults.volumes import default_source

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


def default_namespace(obj: Object, _version: str) -> None:
    metadata = child(obj, "metadata")
    # A generated name is not known yet; `prepare_create` sets the label then.
    if metadata.get("name"):
        child(metadata, "labels")[NAMESPACE_LABEL] = metadata["name"]


def default_secret(obj: Object, _version: str) -> None:
    put(obj, "type", "Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        data = child(obj, "data")
        for name, text in plain.items():
            if isinstance(text, str):
                data[name] = b64encode(text.encode(errors="replace")).decode()


def default_endpoints(obj: Object, _version: str) -> None:
    for subset in items(obj, "subsets"):
        for port in items(subset, "ports"):
            put(port, "protocol", "TCP")


def default_endpoint_slice(obj: Object, version: str) -> None:
    if version == "v1beta1":
        put(obj, "addressType", "IPv4")
    for port in items(obj, "ports"):
        put(port, "protocol", "TCP")
        if port.get("name") is None:
            port["name"] = ""


def default_volume(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put_all(spec, {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
    default_source(spec)
    put(child(obj, "status"), "phase", "Pending")


def begin_volume(obj: Object) -> None:
    """Set the phase of a new volume, and the time of the transition."""
    since = child(obj, "metadata").get("creationTimestamp")
    put_all(child(obj, "status"), {"phase": "Pending", "lastPhaseTransitionTime": since})


def default_volume_claim(obj: Object, _version: str) -> None:
    put(child(obj, "spec"), "volumeMode", "Filesystem")
    put(child(obj, "status"), "phase", "Pending")


def join_data_sources(obj: Object) -> None:
    """Copy the data source of a claim between its two fields, if only one is set.

    Only `dataSourceRef` can name a source in another namespace.
    """
    spec = child(obj, "spec")
    source, reference = given(spec, "dataSource"), given(spec, "dataSourceRef")
    if (source is None) == (reference is None):
        return
    if reference is None:
        obj["spec"] = {**spec, "dataSourceRef": dict(source or {})}
    elif not reference.get("namespace"):
        kept = {name: value for name, value in reference.items() if name != "namespace"}
        obj["spec"] = {**spec, "dataSource": kept}


def default_node(obj: Object, _version: str) -> None:
    spec = given(obj, "spec") or {}
    first, listed = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if first and listed[:1] != [first]:
        spec["podCIDRs"] = [first]
    elif listed and not first:
        spec["podCIDR"] = listed[0]
    status = given(obj, "status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def default_limit_range(obj: Object, _version: str) -> None:
    for limit in items(child(obj, "spec"), "limits"):
        if limit.get("type") != "Container":
            continue
        for target, sources in (("default", ("max",)), ("defaultRequest", ("default", "min"))):
            for source in sources:
                for name, quantity in (given(limit, source) or {}).items():
                    child(limit, target).setdefault(name, quantity)


def default_storage_class(obj: Object, _version: str) -> None:
    put_all(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})


def default_csi_driver(obj: Object, _version: str) -> None:
    put_all(
        child(obj, "spec"),
        {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent"],
            "requiresRepublish": False,
            "seLinuxMount": False,
        },
    )


def default_priority_class(obj: Object, _version: str) -> None:
    put(obj, "preemptionPolicy", "PreemptLowerPriority")


def default_network_policy(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in items(spec, direction):
            for port in items(rule, "ports"):
                put(port, "protocol", "TCP")


def default_ingress(obj: Object, version: str) -> None:
    if version != "v1beta1":
        return
    for rule in items(child(obj, "spec"), "rules"):
        for path in items(given(rule, "http") or {}, "paths"):
            put(path, "pathType", "ImplementationSpecific")


def default_ingress_class(obj: Object, _version: str) -> None:
    parameters = given(given(obj, "spec") or {}, "parameters")
    if parameters is not None:
        put(parameters, "scope", "Cluster")
