"""Defaults of the core group besides pods, and of network, storage and scheduling.

Not here: addresses and ports that a server would have to hand out.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
_AFFINITY_SECONDS: Final = 10800
_BALANCED: Final = ("NodePort", "LoadBalancer")


def default_namespace(obj: Object, _version: str) -> None:
    metadata = child(obj, "metadata")
    # With a generated name it is not known yet; `prepare_create` runs when it is.
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


def default_service(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put_all(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    kind = spec.get("type")
    if spec.get("sessionAffinity") == "ClientIP":
        config = child(child(spec, "sessionAffinityConfig"), "clientIP")
        put(config, "timeoutSeconds", _AFFINITY_SECONDS)
    for port in items(spec, "ports"):
        put(port, "protocol", "TCP")
        if not port.get("targetPort") and port.get("port"):
            port["targetPort"] = port["port"]
    if kind != "ExternalName":
        put(spec, "internalTrafficPolicy", "Cluster")
    if kind in _BALANCED:
        put(spec, "externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        put(spec, "allocateLoadBalancerNodePorts", True)


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
    put(child(obj, "status"), "phase", "Pending")


def default_volume_claim(obj: Object, _version: str) -> None:
    put(child(obj, "spec"), "volumeMode", "Filesystem")
    put(child(obj, "status"), "phase", "Pending")


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
