"""Defaults of pods, and of the templates from which workloads make pods.

Not here: what an admission step adds, such as a service account.
"""

from __future__ import annotations

from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, put, put_all, put_numbers

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
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_FILE_MODE: Final = 0o644
# Volumes whose files have a mode.
_SOURCES_WITH_MODE: Final = ("secret", "configMap", "downwardAPI", "projected")
_TOKEN_SECONDS: Final = 3600


def default_template(obj: Object) -> None:
    """The template in a specification."""
    default_pod_spec(child(child(obj, "template"), "spec"))


def default_pod(obj: Object, _version: str = "v1") -> None:
    """A pod of its own."""
    spec = child(obj, "spec")
    for name in _CONTAINERS[:2]:
        for container in items(spec, name):
            _requests_from_limits(given(container, "resources"))
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    default_pod_spec(spec)


def default_pod_spec(spec: Object) -> None:
    """The specification of a pod, wherever it stands."""
    put_all(spec, _OF_SPEC)
    child(spec, "securityContext")
    on_host = spec.get("hostNetwork") is True
    for name in _CONTAINERS:
        for container in items(spec, name):
            _default_container(container, on_host=on_host)
    for volume in items(spec, "volumes"):
        _default_volume(volume)


def _default_container(container: Object, *, on_host: bool) -> None:
    put_all(container, _OF_CONTAINER)
    put(container, "imagePullPolicy", pull_policy(container.get("image")))
    for port in items(container, "ports"):
        put(port, "protocol", "TCP")
        if on_host and port.get("containerPort"):
            put_numbers(port, {"hostPort": port["containerPort"]})
    for name in _PROBES:
        probe = given(container, name)
        if probe is not None:
            put_numbers(probe, _OF_PROBE)
            _default_handler(probe)
    lifecycle = given(container, "lifecycle") or {}
    for name in ("postStart", "preStop"):
        _default_handler(given(lifecycle, name) or {})
    for variable in items(container, "env"):
        _default_field_ref(given(variable, "valueFrom") or {})


def _default_handler(handler: Object) -> None:
    http = given(handler, "httpGet")
    if http is not None:
        put_all(http, {"path": "/", "scheme": "HTTP"})
    grpc = given(handler, "grpc")
    if grpc is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _default_field_ref(source: Object) -> None:
    reference = given(source, "fieldRef")
    if reference is not None:
        put(reference, "apiVersion", "v1")


def _default_volume(volume: Object) -> None:
    if not any(name != "name" for name in volume):
        volume["emptyDir"] = {}
        return
    for name in _SOURCES_WITH_MODE:
        source = given(volume, name)
        if source is not None:
            put(source, "defaultMode", _FILE_MODE)
    host_path = given(volume, "hostPath")
    if host_path is not None and host_path.get("type") is None:
        host_path["type"] = ""
    for item in items(given(volume, "downwardAPI") or {}, "items"):
        _default_field_ref(item)
    for source in items(given(volume, "projected") or {}, "sources"):
        token = given(source, "serviceAccountToken")
        if token is not None:
            put(token, "expirationSeconds", _TOKEN_SECONDS)
        for item in items(given(source, "downwardAPI") or {}, "items"):
            _default_field_ref(item)
    claim = given(given(volume, "ephemeral") or {}, "volumeClaimTemplate")
    if claim is not None:
        put(child(claim, "spec"), "volumeMode", "Filesystem")


def _requests_from_limits(resources: Object | None) -> None:
    limits = given(resources or {}, "limits")
    if limits:
        requests = child(resources or {}, "requests")
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def pull_policy(image: Any) -> str:
    """An image that may change under its name is pulled each time."""
    if not isinstance(image, str) or not image:
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    if tag == "latest" or not (tag or digest):
        return "Always"
    return "IfNotPresent"
