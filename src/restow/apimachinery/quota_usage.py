"""The usage of one object, by the resource names of quotas.

    count/RESOURCE.GROUP          every kind: one per object
    pods, services, …             older names for some kinds of the core group
    requests.cpu, limits.memory   requests and limits of pods, until they have terminated
    requests.storage              requests of volume claims; also per storage class

All amounts are exact. Pure. Not here: limits (`quotas`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from restow.apimachinery import quantity
from restow.apimachinery.pod_resources import (
    HUGE_PAGES,
    Amounts,
    amounts_in,
    amounts_of,
    is_extended,
    pod_amounts,
)

Object = dict[str, Any]
Number = int | Fraction
Usage = Mapping[str, Number]
"""Amounts by resource names of quotas."""

_COUNT: Final = "count/"
_OLD_NAMES: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_STORAGE: Final = "requests.storage"
_OF_CLASS: Final = ".storageclass.storage.k8s.io/"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_OF_PODS: Final = ("cpu", "memory", HUGE_PAGES)
_NODE_PORTS: Final = "services.nodeports"
_LOAD_BALANCERS: Final = "services.loadbalancers"
_CLAIMS: Final = "persistentvolumeclaims"
_PARTS: Final = {
    _NODE_PORTS: "services",
    _LOAD_BALANCERS: "services",
    _STORAGE: _CLAIMS,
    **{f"{side}{name}": "pods" for name in _COMPUTE for side in ("", _REQUESTS, _LIMITS)},
}
# Events are created automatically, and a quota must not prevent them.
_NEVER_COUNTED: Final = frozenset({("", "events"), ("events.k8s.io", "events")})
# Kinds whose objects differ in usage.
_VARIED: Final = frozenset({"pods", "services", _CLAIMS})
_ENDED: Final = frozenset({"Failed", "Succeeded"})
_BYTES: Final = ("memory", "storage")
# Resources for which containers must specify requests or limits if a quota limits them. Kubernetes
# requires it for no others, and considers this a mistake.
_MUST_SAY: Final = frozenset(
    f"{side}{name}" for name in ("cpu", "memory") for side in ("", _REQUESTS, _LIMITS)
)


def names_of(group: str, plural: str) -> frozenset[str]:
    """Return the names under which each object of a resource counts as one."""
    if (group, plural) in _NEVER_COUNTED:
        return frozenset()
    if group:
        return frozenset({f"{_COUNT}{plural}.{group}"})
    found = {f"{_COUNT}{plural}"}
    if plural in _OLD_NAMES:
        found.add(plural)
    return frozenset(found)


def resource_of(name: str) -> tuple[str, str] | None:
    """Return the group and plural that a quota name counts; None if it is unsupported."""
    if name.startswith(_COUNT):
        plural, _, group = name[len(_COUNT) :].partition(".")
        found = (group, plural)
        return None if found in _NEVER_COUNTED else found
    if name in _OLD_NAMES:
        return "", name
    if name in _PARTS:
        return "", _PARTS[name]
    of_class = name.partition(_OF_CLASS)[2]
    if of_class in (_STORAGE, _CLAIMS):
        return "", _CLAIMS
    requested = name.removeprefix(_REQUESTS)
    is_requested = name.startswith(_REQUESTS) and is_extended(requested)
    return ("", "pods") if is_requested or requested.startswith(HUGE_PAGES) else None


def is_varied(group: str, plural: str) -> bool:
    """Report whether usage depends on the object; each object of other resources counts one."""
    return not group and plural in _VARIED


def may_grow(group: str, plural: str, subresource: str = "") -> bool:
    """Report whether an update can increase the charged usage of an object."""
    if group or plural not in _VARIED:
        return False
    return subresource == ("resize" if plural == "pods" else "")


def usage_of(group: str, plural: str, obj: Object) -> dict[str, Number]:
    """Return the usage of one object."""
    used: dict[str, Number] = dict.fromkeys(names_of(group, plural), 1)
    if group:
        return used
    if plural == "pods":
        if part(obj, "status").get("phase") in _ENDED:
            return used | {"pods": 0}
        requests = pod_amounts(obj, "requests", of_pods=_OF_PODS)
        return used | _compute(requests, pod_amounts(obj, "limits", of_pods=_OF_PODS))
    if plural == "services":
        return used | _service_parts(part(obj, "spec"))
    return used | _claim_parts(obj) if plural == _CLAIMS else used


def growth(now: Usage, before: Usage) -> dict[str, Number]:
    """Return by how much usage increased; decreases are omitted."""
    return {name: more for name, used in now.items() if (more := used - before.get(name, 0)) > 0}


def unsaid(pod: Object, limited: frozenset[str]) -> str:
    """Return which requests or limits a pod's containers must specify, and do not; empty if
    none.
    """
    spec = part(pod, "spec")
    needed = limited & _MUST_SAY
    # The pod may specify them for all its containers.
    if not needed or amounts_of(spec, "requests") or amounts_of(spec, "limits"):
        return ""
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        specified = _compute(amounts_of(container, "requests"), amounts_of(container, "limits"))
        for name in needed - specified.keys():
            missing.setdefault(name, set()).add(container.get("name") or "")
    missing_texts = [f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing)]
    return f"must specify {'; '.join(missing_texts)}" if missing_texts else ""


def text(name: str, value: Number) -> str:
    """Format an amount for clients: bytes with binary suffixes if they are exact."""
    is_bytes = name.endswith(_BYTES) or HUGE_PAGES in name
    exact = Fraction(value)
    is_whole = exact.denominator == 1 and exact.numerator % 1024 == 0
    return quantity.write(exact, "binary" if is_bytes and is_whole else "decimal")


def part(obj: Object, name: str) -> Object:
    """Return a member of an object that is a mapping; empty if there is none."""
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


def _compute(requests: Amounts, limits: Amounts) -> dict[str, Number]:
    """Return the compute resource usage of a pod or container."""
    found: dict[str, Number] = {}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(HUGE_PAGES):
            found[name] = found[f"{_REQUESTS}{name}"] = amount.value
        elif is_extended(name):
            found[f"{_REQUESTS}{name}"] = amount.value
    limited = {f"{_LIMITS}{name}": limits[name].value for name in _COMPUTE if name in limits}
    return found | limited


def _service_parts(spec: Object) -> dict[str, Number]:
    ports = [each for each in spec.get("ports") or () if isinstance(each, dict)]
    is_balanced = spec.get("type") == "LoadBalancer"
    count = 0
    if is_balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        count = sum(1 for each in ports if each.get("nodePort"))
    elif is_balanced or spec.get("type") == "NodePort":
        count = len(ports)
    return {_NODE_PORTS: count, _LOAD_BALANCERS: int(is_balanced)}


def _claim_parts(claim: Object) -> dict[str, Number]:
    spec, metadata = part(claim, "spec"), part(claim, "metadata")
    requested = amounts_of(spec, "requests").get("storage")
    found: dict[str, Number] = {}
    if requested is not None:
        allocated = amounts_in(part(claim, "status").get("allocatedResources")).get("storage")
        greatest = max(requested.value, requested.value if allocated is None else allocated.value)
        found[_STORAGE] = math.ceil(greatest)
    named = part(metadata, "annotations").get(_OLD_CLASS) or spec.get("storageClassName")
    if named:
        of_class = {f"{named}{_OF_CLASS}{name}": used for name, used in found.items()}
        found |= {**of_class, f"{named}{_OF_CLASS}{_CLAIMS}": 1}
    return found
