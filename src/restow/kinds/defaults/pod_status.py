"""What is said of a pod from its first moment, before anything has run it.

Its class of service follows from what its containers ask for, and stays with it.

Not here: anything that comes later, which is for those who run pods.
"""

from __future__ import annotations

from typing import Final

from restow.kinds.defaults.fields import Object, child, given, items, put
from restow.machinery import quantity

_COUNTED: Final = ("cpu", "memory")


def begin_pod(obj: Object) -> None:
    """A pod that is new: it waits, and for longer if there is a gate before it."""
    spec, status = child(obj, "spec"), child(obj, "status")
    put(status, "phase", "Pending")
    put(status, "qosClass", class_of(spec))
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastTransitionTime": child(obj, "metadata").get("creationTimestamp"),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        put(status, "conditions", [gated])


def class_of(spec: Object) -> str:
    """`Guaranteed` if every container has as much as it may ask for, `BestEffort` if none asks."""
    asking = [spec] if given(spec, "resources") else _containers(spec)
    is_guaranteed, is_asking = bool(asking), False
    for each in asking:
        resources = given(each, "resources") or {}
        limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
        is_asking = is_asking or bool(limits or requests)
        if limits.keys() != set(_COUNTED) or limits != {**limits, **requests}:
            is_guaranteed = False
    if not is_asking:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


def _containers(spec: Object) -> list[Object]:
    return [*items(spec, "containers"), *items(spec, "initContainers")]


def _amounts(resources: Object, name: str) -> dict[str, str]:
    """Of what counts, all that is more than nothing."""
    found: dict[str, str] = {}
    for key, text in (given(resources, name) or {}).items():
        if key in _COUNTED and quantity.is_quantity(str(text)):
            amount = quantity.canonical(str(text))
            if amount != "0":
                found[key] = amount
    return found
