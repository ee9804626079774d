"""Validation of a pod spec, in a pod or in a pod template.

Only rules that matter to a client without nodes.

Not here: immutable fields of a pod (`workloads`), rules that need other objects, and those of
rarely used fields.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.name_formats import dns_label_problem, subdomain_problem
from restow.kinds.validation.fields import (
    Causes,
    Object,
    listed,
    port_problem,
    require,
    require_one_of,
)

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_CONTAINERS: Final = ("containers", "initContainers")


def check_pod_spec(
    causes: Causes,
    spec: Object,
    *,
    field: str,
    restart: tuple[str, ...],
    claims: tuple[str, ...] = (),
) -> None:
    """Validate a pod spec. `restart` are the allowed restart policies, `claims` the names of
    volumes that exist in addition to those in the spec."""
    if not spec.get("containers"):
        causes.required(f"{field}.containers")
    require_one_of(causes, spec, field=field, name="restartPolicy", values=restart)
    for name, rule in (("hostname", dns_label_problem), ("nodeName", subdomain_problem)):
        text = spec.get(name)
        if text and (problem := rule(text)):
            causes.invalid(f"{field}.{name}", text, problem)
    volumes = _check_volumes(causes, spec, field) | set(claims)
    names: set[str] = set()
    for each in _CONTAINERS:
        for place, container in listed(spec, each, f"{field}.{each}"):
            _check_container_name(causes, container, field=place, names=names)
            _check_container(causes, container, field=place, volumes=volumes)


def _check_volumes(causes: Causes, spec: Object, field: str) -> set[Any]:
    """Validate the volumes; return their names."""
    volumes: set[Any] = set()
    for place, volume in listed(spec, "volumes", f"{field}.volumes"):
        require(causes, volume, field=place, names=("name",))
        if volume.get("name") in volumes:
            causes.duplicate(f"{place}.name", volume.get("name"))
        volumes.add(volume.get("name"))
    return volumes


def _check_container_name(
    causes: Causes, container: Object, *, field: str, names: set[str]
) -> None:
    require(causes, container, field=field, names=("name", "image"))
    name = container.get("name") or ""
    problem = dns_label_problem(name) if name else None
    if problem is not None:
        causes.invalid(f"{field}.name", name, problem)
    elif name in names:
        causes.duplicate(f"{field}.name", name)
    names.add(name)


def _check_container(causes: Causes, container: Object, *, field: str, volumes: set[Any]) -> None:
    require_one_of(causes, container, field=field, name="imagePullPolicy", values=_PULL_POLICIES)
    for place, port in listed(container, "ports", f"{field}.ports"):
        number = port.get("containerPort")
        if not number:
            causes.required(f"{place}.containerPort")
        elif problem := port_problem(number, f"{place}.containerPort"):
            causes.append(problem)
    for place, variable in listed(container, "env", f"{field}.env"):
        require(causes, variable, field=place, names=("name",))
    for place, mount in listed(container, "volumeMounts", f"{field}.volumeMounts"):
        require(causes, mount, field=place, names=("name", "mountPath"))
        if mount.get("name") and mount["name"] not in volumes:
            causes.not_found(f"{place}.name", mount["name"])
