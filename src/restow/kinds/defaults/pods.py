"""Defaults of pods, and of the pod templates of workloads.

Not here: fields that admission adds, such as a service account, a priority or tolerations.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.pod_resources import HUGE_PAGES, pod_amounts, qos_class
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
# The tolerations that the DefaultTolerationSeconds admission adds.
_UNWELL: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# The resources that a pod may set for all of its containers, besides huge pages.
_OF_PODS: Final = ("cpu", "memory")
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def default_template(obj: Object) -> None:
    """Set the defaults of the pod template in a spec."""
    template = child(obj, "template")
    child(template, "metadata")
    default_pod_spec(child(template, "spec"))


def default_pod(obj: Object, _version: str = "v1") -> None:
    """Set the defaults of a pod. Some are not set in templates, to keep old templates unchanged."""
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
    """Set the status of a new pod: Pending, and gated if it has scheduling gates. The QoS class
    follows from the resources of its containers, and never changes."""
    spec, status = child(obj, "spec"), child(obj, "status")
    put(status, "phase", "Pending")
    put(status, "qosClass", qos_class(spec))
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
    """Keep fields that admission set at creation, and that an update from a manifest lacks."""
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
    """Set the defaults of a pod spec, in a pod or in a template."""
    put_all(spec, _OF_SPEC)
    child(spec, "securityContext")
    _default_account(spec)
    for name in _CONTAINERS:
        for container in items(spec, name):
            _default_container(container)
    for volume in items(spec, "volumes"):
        default_pod_volume(volume)


def _default_account(spec: Object) -> None:
    """Copy the service account between its field and the deprecated one."""
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
    """Set the requests of the pod: those of its containers, or else its limits."""
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
    """Keep `podIP` and the first of `podIPs` equal; `podIP` wins."""
    if not status:
        return
    first, listed = status.get("podIP"), status.get("podIPs")
    found = listed[0].get("ip") if isinstance(listed, list) and listed else None
    if first and found != first:
        status["podIPs"] = [{"ip": first}]
    elif found and not first:
        status["podIP"] = found
