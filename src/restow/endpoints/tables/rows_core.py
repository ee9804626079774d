"""Columns of the data kinds of the core group, and of nodes, events and leases.

Not here: pods and workloads (`rows_pods`, `rows_workloads`), and cluster administration.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.endpoints.tables.values import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    containers,
    flag,
    items,
    labels,
    mapping,
    moment,
    number,
    read,
    scalar,
    since,
    some_of,
    text,
    texts,
)

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_NODE_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_NODE_ROLE_LABEL: Final = "kubernetes.io/role"


def _name(obj: Mapping[str, Any]) -> str:
    return text(obj, "metadata", "name")


def _name_and_age(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), age(obj, now)]


def _namespace(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), text(obj, "status", "phase"), age(obj, now)]


def _config_map(obj: Mapping[str, Any], now: datetime) -> list[object]:
    entries = len(mapping(obj, "data")) + len(mapping(obj, "binaryData"))
    return [_name(obj), entries, age(obj, now)]


def _secret(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), text(obj, "type"), len(mapping(obj, "data")), age(obj, now)]


def _resource_quota(obj: Mapping[str, Any], now: datetime) -> list[object]:
    hard, used = mapping(obj, "status", "hard"), mapping(obj, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        share = f"{resource}: {scalar(used.get(resource)) or '0'}/{scalar(hard[resource])}"
        (limits if resource.startswith("limits.") else requests).append(share)
    return [_name(obj), ", ".join(requests), ", ".join(limits), age(obj, now)]


def _lease(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), text(obj, "spec", "holderIdentity"), age(obj, now)]


def _event(obj: Mapping[str, Any], now: datetime) -> list[object]:
    """One event, with the fields of the core group or of events.k8s.io."""
    series = mapping(obj, "series")
    first = _first_time(obj, "firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    last = _first_time(obj, "lastTimestamp", "deprecatedLastTimestamp") or first
    count = number(obj, "count") or number(obj, "deprecatedCount") or 1
    if series:
        last = series.get("lastObservedTime") or last
        count = number(series, "count") or count
    about = mapping(obj, "involvedObject") or mapping(obj, "regarding")
    source = mapping(obj, "source") or mapping(obj, "deprecatedSource")
    component = text(source, "component") or text(obj, "reportingComponent")
    component = component or text(obj, "reportingController")
    host = text(source, "host") or text(obj, "reportingInstance")
    return [
        since(last, now),
        text(obj, "type"),
        text(obj, "reason"),
        f"{text(about, 'kind').lower()}/{text(about, 'name')}",
        text(about, "fieldPath"),
        ", ".join(part for part in (component, host) if part),
        (text(obj, "message") or text(obj, "note")).strip(),
        since(first, now),
        count,
        _name(obj),
    ]


def _first_time(obj: Mapping[str, Any], *fields: str) -> object:
    for field in fields:
        if moment(obj.get(field)) is not None:
            return obj[field]
    return None


def _service(obj: Mapping[str, Any], now: datetime) -> list[object]:
    ports = []
    for port in items(obj, "spec", "ports"):
        shown = scalar(read(port, "port"))
        if number(port, "nodePort"):
            shown = f"{shown}:{number(port, 'nodePort')}"
        ports.append(f"{shown}/{text(port, 'protocol') or 'TCP'}")
    return [
        _name(obj),
        text(obj, "spec", "type"),
        text(obj, "spec", "clusterIP") or NONE,
        _external_addresses(obj),
        ",".join(ports) or NONE,
        age(obj, now),
        labels(read(obj, "spec", "selector")),
    ]


def _external_addresses(obj: Mapping[str, Any]) -> str:
    own = texts(obj, "spec", "externalIPs")
    match text(obj, "spec", "type"):
        case "ExternalName":
            return text(obj, "spec", "externalName")
        case "LoadBalancer":
            return ",".join([*balancer_addresses(obj), *own]) or "<pending>"
        case _:
            return ",".join(own) or NONE


def balancer_addresses(obj: Mapping[str, Any]) -> list[str]:
    """The addresses of a load balancer: IP addresses, or host names if it has none."""
    points = items(obj, "status", "loadBalancer", "ingress")
    found = [text(point, "ip") or text(point, "hostname") for point in points]
    return [point for point in found if point]


def _endpoints(obj: Mapping[str, Any], now: datetime) -> list[object]:
    points: list[str] = []
    for subset in items(obj, "subsets"):
        ports = [scalar(read(port, "port")) for port in items(subset, "ports")]
        addresses = [text(address, "ip") for address in items(subset, "addresses")]
        if not ports:
            points += addresses
        hosts = [f"[{ip}]" if ":" in ip else ip for ip in addresses]
        points += [f"{host}:{port}" for port in ports for host in hosts]
    return [_name(obj), some_of(points), age(obj, now)]


def _persistent_volume(obj: Mapping[str, Any], now: datetime) -> list[object]:
    claim = mapping(obj, "spec", "claimRef")
    return [
        _name(obj),
        scalar(read(obj, "spec", "capacity", "storage")),
        _access_modes(read(obj, "spec", "accessModes")),
        text(obj, "spec", "persistentVolumeReclaimPolicy"),
        _volume_phase(obj),
        f"{text(claim, 'namespace')}/{text(claim, 'name')}" if claim else "",
        text(obj, "spec", "storageClassName"),
        text(obj, "spec", "volumeAttributesClassName") or UNSET,
        text(obj, "status", "reason"),
        age(obj, now),
        text(obj, "spec", "volumeMode") or UNSET,
    ]


def _persistent_volume_claim(obj: Mapping[str, Any], now: datetime) -> list[object]:
    bound = text(obj, "spec", "volumeName") != ""
    return [
        _name(obj),
        _volume_phase(obj),
        text(obj, "spec", "volumeName"),
        scalar(read(obj, "status", "capacity", "storage")) if bound else "",
        _access_modes(read(obj, "status", "accessModes")) if bound else "",
        text(obj, "spec", "storageClassName"),
        text(obj, "spec", "volumeAttributesClassName") or UNSET,
        age(obj, now),
        text(obj, "spec", "volumeMode") or UNSET,
    ]


def _volume_phase(obj: Mapping[str, Any]) -> str:
    if read(obj, "metadata", "deletionTimestamp") is not None:
        return "Terminating"
    return text(obj, "status", "phase")


def _access_modes(modes: object) -> str:
    given = texts(modes)
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _pod_template(obj: Mapping[str, Any], now: datetime) -> list[object]:
    del now  # this table has no age
    names, images = containers(read(obj, "template", "spec"))
    return [_name(obj), names, images, labels(read(obj, "template", "metadata", "labels"))]


def _node(obj: Mapping[str, Any], now: datetime) -> list[object]:
    info = mapping(obj, "status", "nodeInfo")
    addresses = {text(a, "type"): text(a, "address") for a in items(obj, "status", "addresses")}
    kernel = text(info, "kernelVersion") or UNKNOWN
    if architecture := text(info, "architecture"):
        kernel += f" ({architecture})"
    return [
        _name(obj),
        _node_status(obj),
        _node_roles(obj),
        age(obj, now),
        text(info, "kubeletVersion"),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        text(info, "osImage") or UNKNOWN,
        kernel,
        text(info, "containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(obj: Mapping[str, Any]) -> str:
    states = []
    for found in items(obj, "status", "conditions"):
        if text(found, "type") == "Ready":
            states.append("Ready" if text(found, "status") == "True" else "NotReady")
    states = states or ["Unknown"]
    if flag(obj, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    return ",".join(states)


def _node_roles(obj: Mapping[str, Any]) -> str:
    roles = set()
    for key, value in mapping(obj, "metadata", "labels").items():
        if key.startswith(_NODE_ROLE_PREFIX):
            roles.add(key.removeprefix(_NODE_ROLE_PREFIX))
        elif key == _NODE_ROLE_LABEL and isinstance(value, str):
            roles.add(value)
    roles.discard("")
    return ",".join(sorted(roles)) or NONE


_EVENT: Final = TableColumns(
    [
        column("Last Seen", about="Time since the event was last seen."),
        column("Type", about="Normal or Warning."),
        column("Reason", about="Short reason, for programs."),
        column("Object", about="What the event is about."),
        wide("Subobject", about="The field of the object."),
        wide("Source", about="Component that reported the event."),
        column("Message", about="What happened."),
        wide("First Seen", about="Time since the event was first seen."),
        wide("Count", about="How often it was seen."),
        column("Name", about="Name of the event itself.", priority=1, form="name"),
    ],
    _event,
)

COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("", "Namespace"): TableColumns(
        [NAME, column("Status", about="Phase of the namespace."), AGE], _namespace
    ),
    ("", "ConfigMap"): TableColumns(
        [NAME, column("Data", about="Number of entries."), AGE], _config_map
    ),
    ("", "Secret"): TableColumns(
        [
            NAME,
            column("Type", about="Type of the secret."),
            column("Data", about="Number of entries."),
            AGE,
        ],
        _secret,
    ),
    ("", "ServiceAccount"): TableColumns([NAME, AGE], _name_and_age),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "ResourceQuota"): TableColumns(
        [
            NAME,
            column("Request", about="Use and limit of requested resources."),
            column("Limit", about="Use and limit of resource limits."),
            AGE,
        ],
        _resource_quota,
    ),
    ("coordination.k8s.io", "Lease"): TableColumns(
        [NAME, column("Holder", about="Holder of the lease."), AGE], _lease
    ),
    ("", "Service"): TableColumns(
        [
            NAME,
            column("Type", about="How the service is exposed."),
            column("Cluster-IP", about="Address inside the cluster."),
            column("External-IP", about="Addresses outside the cluster."),
            column("Port(s)", about="Ports and protocols."),
            AGE,
            wide("Selector", about="Labels of the pods behind it."),
        ],
        _service,
    ),
    ("", "Endpoints"): TableColumns(
        [NAME, column("Endpoints", about="Addresses with their ports."), AGE], _endpoints
    ),
    ("", "PersistentVolume"): TableColumns(
        [
            NAME,
            column("Capacity", about="Size of the volume."),
            column("Access Modes", about="How it may be mounted."),
            column("Reclaim Policy", about="What happens when it is released."),
            column("Status", about="Phase of the volume."),
            column("Claim", about="The claim that it is bound to."),
            column("StorageClass", about="Class of the volume."),
            column("VolumeAttributesClass", about="Class of its attributes."),
            column("Reason", about="Why it failed."),
            AGE,
            wide("VolumeMode", about="File system or block device."),
        ],
        _persistent_volume,
    ),
    ("", "PersistentVolumeClaim"): TableColumns(
        [
            NAME,
            column("Status", about="Phase of the claim."),
            column("Volume", about="The volume that it is bound to."),
            column("Capacity", about="Size of that volume."),
            column("Access Modes", about="How it is mounted."),
            column("StorageClass", about="Requested class."),
            column("VolumeAttributesClass", about="Class of its attributes."),
            AGE,
            wide("VolumeMode", about="File system or block device."),
        ],
        _persistent_volume_claim,
    ),
    ("", "PodTemplate"): TableColumns(
        [
            NAME,
            column("Containers", about="Names of the containers."),
            column("Images", about="Images of the containers."),
            column("Pod Labels", about="Labels of the pods."),
        ],
        _pod_template,
    ),
    ("", "Node"): TableColumns(
        [
            NAME,
            column("Status", about="Whether the node is ready."),
            column("Roles", about="Roles from the node's labels."),
            AGE,
            column("Version", about="Version of its kubelet."),
            wide("Internal-IP", about="Address inside the cluster."),
            wide("External-IP", about="Address outside the cluster."),
            wide("OS-Image", about="Its operating system."),
            wide("Kernel-Version", about="Its kernel."),
            wide("Container-Runtime", about="Its container runtime."),
        ],
        _node,
    ),
}
