"""Defaults of pods, and of the templates from which workloads make pods.

Not here: what an admission step adds, such as a service account, a priority or tolerations.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.pod_resources import HUGE_PAGES, pod_amounts, service_class
from restow.kinds.defaults.fields import Object, child, given, items, put, put_all, put_numbers
from restow.kinds.defaults.images import pull_policy
from restow.kinds.defaults.volumes import default_field_ref, default_pod_volume

_OF_SPEC: Final = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}
_OF_CONTAINER: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_OF_PROBE: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
# How long a pod stays on a node that is not well, an admission step says.
_UNWELL: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# What a pod may say for all of its containers, besides large pages.
_OF_PODS: Final = ("cpu", "memory")
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def default_template(obj: Object) -> None:
    """The template in a specification."""
    template = child(obj, "template")
    child(template, "metadata")
    default_pod_spec(child(template, "spec"))


def default_pod(obj: Object, _version: str = "v1") -> None:
    """A pod of its own. Some of it no template gets, since old templates do not have it."""
    spec = child(obj, "spec")
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    on_host = spec.get("hostNetwork") is True
    for name in _CONTAINERS[:2]:
        for container in items(spec, name):
            _requests_from_limits(given(container, "resources"))
            for port in items(container, "ports") if on_host else ():
                if port.get("containerPort"):
                    put_numbers(port, {"hostPort": port["containerPort"]})
    _default_requests(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    default_pod_spec(spec)
    _default_addresses(given(obj, "status"))


def begin_pod(obj: Object) -> None:
    """A pod that is new: it waits, and for longer if there is a gate before it. Its class of
    service follows from what its containers ask for, and stays with it."""
    spec, status = child(obj, "spec"), child(obj, "status")
    put(status, "phase", "Pending")
    put(status, "qosClass", service_class(spec))
    if spec.get("schedulingGates"):
        gated = {
            "type": "PodScheduled",
            "status": "False",
            "lastTransitionTime": child(obj, "metadata").get("creationTimestamp"),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        put(status, "conditions", [gated])


def keep_from_old(new: Object, old: Object) -> None:
    """What a pod got when it was made, and who writes it again leaves out, as its manifest does."""
    before, after = given(old, "spec") or {}, given(new, "spec")
    if after is None or after is before:
        return
    found = {
        name: before[name]
        for name in ("priority", "preemptionPolicy")
        if after.get(name) is None and before.get(name) is not None
    }
    tolerated = {_tolerated(each) for each in items(after, "tolerations")}
    missing = [
        each
        for each in items(before, "tolerations")
        if each.get("key") in _UNWELL and _tolerated(each) not in tolerated
    ]
    if missing:
        found["tolerations"] = [*(after.get("tolerations") or []), *missing]
    if found:
        new["spec"] = {**after, **found}


def _tolerated(toleration: Object) -> tuple[object, object]:
    return toleration.get("key"), toleration.get("effect")


def default_pod_spec(spec: Object) -> None:
    """The specification of a pod, wherever it stands."""
    put_all(spec, _OF_SPEC)
    child(spec, "securityContext")
    _default_account(spec)
    for name in _CONTAINERS:
        for container in items(spec, name):
            _default_container(container)
    for volume in items(spec, "volumes"):
        default_pod_volume(volume)


def _default_account(spec: Object) -> None:
    """The field has an older name, and what was said by either is read by both."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_container(container: Object) -> None:
    put_all(container, _OF_CONTAINER)
    put(container, "imagePullPolicy", pull_policy(container.get("image")))
    child(container, "resources")
    for port in items(container, "ports"):
        put(port, "protocol", "TCP")
    for name in _PROBES:
        probe = given(container, name)
        if probe is not None:
            put_numbers(probe, _OF_PROBE)
            _default_handler(probe)
    lifecycle = given(container, "lifecycle") or {}
    for name in ("postStart", "preStop"):
        _default_handler(given(lifecycle, name) or {})
    for variable in items(container, "env"):
        source = given(variable, "valueFrom") or {}
        default_field_ref(source)
        put(given(source, "fileKeyRef") or {}, "optional", False)


def _default_handler(handler: Object) -> None:
    http = given(handler, "httpGet")
    if http is not None:
        put_all(http, {"path": "/", "scheme": "HTTP"})
    grpc = given(handler, "grpc")
    if grpc is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _requests_from_limits(resources: Object | None) -> None:
    limits = given(resources or {}, "limits")
    if limits:
        requests = child(resources or {}, "requests")
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def _default_requests(spec: Object) -> None:
    """What a pod asks for itself: as much as its containers do, or else as much as it may get."""
    resources = given(spec, "resources")
    if resources is None:
        return
    found = dict(given(resources, "requests") or {})
    containers = {name: list(items(spec, name)) for name in _CONTAINERS[:2]}
    for name, amount in pod_amounts({"spec": containers}, "requests").items():
        if name in _OF_PODS:
            found.setdefault(name, str(amount))
    for name, text in (given(resources, "limits") or {}).items():
        if name in _OF_PODS or name.startswith(HUGE_PAGES):
            found.setdefault(name, text)
    if found:
        resources["requests"] = found


def _default_addresses(status: Object | None) -> None:
    """A pod's first address stands in two fields; the older one wins."""
    if not status:
        return
    first, listed = status.get("podIP"), status.get("podIPs")
    found = listed[0].get("ip") if isinstance(listed, list) and listed else None
    if first and found != first:
        status["podIPs"] = [{"ip": first}]
    elif found and not first:
        status["podIP"] = found
