"""Defaults of the kinds of `resource.k8s.io`: resource claims and resource slices.

Not here: the allocation of devices.
"""

from __future__ import annotations

from restow.kinds.defaults.fields import Object, child, given, items, put


def default_claim(obj: Object, _version: str) -> None:
    _default_claim_spec(child(obj, "spec"))


def default_claim_template(obj: Object, _version: str) -> None:
    _default_claim_spec(child(child(obj, "spec"), "spec"))


def begin_slice(obj: Object) -> None:
    """Set the time at which each taint was added."""
    since = child(obj, "metadata").get("creationTimestamp")
    for device in items(child(obj, "spec"), "devices"):
        for taint in items(device, "taints"):
            put(taint, "timeAdded", since)


def _default_claim_spec(spec: Object) -> None:
    for request in items(given(spec, "devices") or {}, "requests"):
        exactly = given(request, "exactly")
        for each in (*items(request, "firstAvailable"), *([exactly] if exactly else ())):
            put(each, "allocationMode", "ExactCount")
            if each["allocationMode"] == "ExactCount" and not each.get("count"):
                each["count"] = 1
            for toleration in items(each, "tolerations"):
                put(toleration, "operator", "Equal")
