"""Validation of containers and their resources, in pods and in pod templates.

Each rule involves several fields: ports, mounts and variables of one container, the ports of all
containers, requests and limits.

Not here: rules of single fields (`pod_rules`), names and images of containers (`pods`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery import quantity
from restow.apimachinery.name_formats import qualified_name_problem
from restow.apimachinery.pod_resources import HUGE_PAGES, is_extended
from restow.kinds.validation.fields import Causes, listed
from restow.kinds.validation.rules import given_one_of, one_of

_VARIABLE: Final = re.compile(r"[ -<>-~]+")
_VARIABLE_RULE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other "
    "than '='"
)
_NOT_EARLY: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_EARLY_RULE: Final = "may not be set for init containers without restartPolicy=Always"
_OF_CONTAINERS: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD: Final = _OF_CONTAINERS | {
    *("storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("requests.storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"),
    *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
}
_when_ended: Final = one_of("File", "FallbackToLogsOnError")
_restarted: Final = given_one_of("Always", "Never", "OnFailure")


def check_containers(causes: Causes, field: str, spec: Any) -> None:
    """Validate the containers of a pod together: host ports, init containers, shared namespaces."""
    taken: set[str] = set()
    for place, container in listed(spec, "containers", f"{field}.containers"):
        _check_host_ports(causes, container, place, taken)
        if spec.get("hostNetwork"):
            _check_same_ports(causes, container, place)
    for place, container in listed(spec, "initContainers", f"{field}.initContainers"):
        # Init containers run one by one, so they may use the same host ports.
        _check_host_ports(causes, container, place, set())
        if container.get("restartPolicy") != "Always":
            causes += [
                errors.forbidden(f"{place}.{name}", _NOT_EARLY_RULE)
                for name in _NOT_EARLY
                if container.get(name) is not None
            ]
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        where = f"{field}.securityContext.shareProcessNamespace"
        causes.invalid(where, True, why)


def _check_host_ports(causes: Causes, container: Any, field: str, taken: set[str]) -> None:
    for place, port in listed(container, "ports", f"{field}.ports"):
        number = port.get("hostPort")
        if number:
            named = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{number}"
            causes.once(f"{place}.hostPort", named, taken)


def _check_same_ports(causes: Causes, container: Any, field: str) -> None:
    for place, port in listed(container, "ports", f"{field}.ports"):
        number = port.get("hostPort")
        if number and number != port.get("containerPort"):
            why = "must match `containerPort` when `hostNetwork` is true"
            causes.invalid(f"{place}.hostPort", number, why)


def check_container(causes: Causes, field: str, container: Any) -> None:
    """Validate one container."""
    image = container.get("image")
    if image and image != image.strip():
        causes.invalid(f"{field}.image", image, "must not have leading or trailing whitespace")
    policy = container.get("terminationMessagePolicy")
    _when_ended(causes, f"{field}.terminationMessagePolicy", policy)
    _restarted(causes, f"{field}.restartPolicy", container.get("restartPolicy"))
    names: set[Any] = set()
    for place, port in listed(container, "ports", f"{field}.ports"):
        if port.get("name") and port["name"] in names:
            causes.duplicate(f"{place}.name", port["name"])
        names.add(port.get("name"))
    paths: set[Any] = set()
    for place, mount in listed(container, "volumeMounts", f"{field}.volumeMounts"):
        path = mount.get("mountPath")
        if path and path in paths:
            causes.invalid(f"{place}.mountPath", path, "must be unique")
        paths.add(path)
    for place, variable in listed(container, "env", f"{field}.env"):
        _check_variable(causes, variable, place)


def _check_variable(causes: Causes, variable: Any, field: str) -> None:
    name, source = variable.get("name"), variable.get("valueFrom")
    if name and not _VARIABLE.fullmatch(name):
        causes.invalid(f"{field}.name", name, _VARIABLE_RULE)
    if not source:
        return
    if variable.get("value"):
        causes.invalid(f"{field}.valueFrom", "", "may not be specified when `value` is not empty")
    elif sum(value is not None for value in source.values()) > 1:
        why = "may not have more than one field specified at a time"
        causes.invalid(f"{field}.valueFrom", "", why)


def check_resources(causes: Causes, field: str, value: Any) -> None:
    """Validate names, quantities and order of requests and limits."""
    limits, requests = value.get("limits") or {}, value.get("requests") or {}
    if not limits and not requests:
        return
    for part, found in (("limits", limits), ("requests", requests)):
        for name, amount in found.items():
            check_amount(causes, f"{field}.{part}[{name}]", name, amount)
    for name, asked in requests.items():
        limit = limits.get(name)
        if limit is None:
            if is_whole(name):
                why = "Limit must be set for non overcommitable resources"
                causes.required(f"{field}.limits", why)
        elif limit != asked:
            _check_order(causes, f"{field}.requests", name, asked, limit)
    names = limits.keys() | requests.keys()
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        causes.forbidden(field, "HugePages require cpu or memory")


def _check_order(causes: Causes, field: str, name: str, asked: Any, limit: Any) -> None:
    wanted, most = quantity.parse(str(asked)), quantity.parse(str(limit))
    if wanted > most and not is_whole(name):
        causes.invalid(field, asked, f"must be less than or equal to {name} limit of {limit}")
    elif wanted != most and is_whole(name):
        causes.invalid(field, asked, f"must be equal to {name} limit of {limit}")


def check_amount(causes: Causes, field: str, name: str, amount: Any) -> None:
    """Validate the quantity of one resource of a container."""
    if problem := qualified_name_problem(name):
        causes.invalid(field, name, problem)
    elif "/" not in name and name not in _OF_CONTAINERS and not name.startswith(HUGE_PAGES):
        if name not in _STANDARD:
            causes.invalid(field, name, "must be a standard resource type or fully qualified")
        causes.invalid(field, name, "must be a standard resource for containers")
    elif is_extended(name) and quantity.parse(str(amount)).denominator != 1:
        causes.invalid(field, amount, "must be an integer")


def is_whole(name: str) -> bool:
    """Whether a resource cannot be overcommitted, and its quantities are integers."""
    return is_extended(name) or name.startswith(HUGE_PAGES)
