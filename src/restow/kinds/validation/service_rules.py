"""Validation of services that involves several fields: most fields depend on the type.

Not here: rules of single fields (`kind_rules`), ports (`core`). Addresses and ports are not
allocated, so none is rejected because another service has it.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.kinds.validation.addresses import cidr_problem
from restow.kinds.validation.fields import Causes, listed

_EXTERNAL: Final = "ExternalName"
_BALANCED: Final = "LoadBalancer"
_OUTSIDE: Final = ("NodePort", _BALANCED)
_HEADLESS: Final = "None"
_BALANCED_ONLY: Final = "may only be used when `type` is 'LoadBalancer'"
_POLICIES: Final = ("Cluster", "Local")


def check_service(causes: Causes, field: str, spec: Any) -> None:
    """Validate a service as a whole."""
    kind = spec.get("type")
    _check_addresses(causes, field, spec)
    _check_traffic(causes, field, spec)
    if kind != _BALANCED:
        causes += [
            errors.forbidden(f"{field}.{name}", _BALANCED_ONLY)
            for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass")
            if spec.get(name) is not None
        ]
    # kube-apiserver spells it this way.
    ranges = f"{field}.LoadBalancerSourceRanges"
    if spec.get("loadBalancerSourceRanges") and kind != _BALANCED:
        causes.forbidden(ranges, _BALANCED_ONLY)
    for index, each in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        if problem := cidr_problem(each):
            causes.invalid(f"{ranges}[{index}]", each, problem)
    _check_node_ports(causes, field, spec)


def _check_addresses(causes: Causes, field: str, spec: Any) -> None:
    kind, own, found = spec.get("type"), spec.get("clusterIP"), spec.get("clusterIPs") or []
    if kind == _EXTERNAL:
        if own or found:
            causes.forbidden(f"{field}.clusterIPs", "may not be set for ExternalName services")
    elif kind in _OUTSIDE and own == _HEADLESS:
        why = f"may not be set to 'None' for {kind} services"
        causes.invalid(f"{field}.clusterIPs[0]", own, why)
    elif found and found[0] != own:
        why = "first value must match `clusterIP`" if own else "must be empty when `clusterIP` is"
        causes.invalid(f"{field}.clusterIPs", found, why)


def _check_traffic(causes: Causes, field: str, spec: Any) -> None:
    kind, policy = spec.get("type"), spec.get("externalTrafficPolicy")
    is_outside = kind in _OUTSIDE or (kind == "ClusterIP" and spec.get("externalIPs"))
    where = f"{field}.externalTrafficPolicy"
    if policy and not is_outside:
        causes.invalid(where, policy, "may only be set for externally-accessible services")
    elif policy is not None and policy not in _POLICIES:
        causes.not_supported(where, policy, _POLICIES)
    port = spec.get("healthCheckNodePort")
    if port and (kind != _BALANCED or policy != "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        causes.invalid(f"{field}.healthCheckNodePort", port, why)


def _check_node_ports(causes: Causes, field: str, spec: Any) -> None:
    kind, taken = spec.get("type"), set()
    for place, port in listed(spec, "ports", f"{field}.ports"):
        number = port.get("nodePort")
        if not number:
            continue
        named = (port.get("protocol"), number)
        if kind == "ClusterIP":
            causes.forbidden(f"{place}.nodePort", "may not be used when `type` is 'ClusterIP'")
        elif named in taken:
            causes.invalid(f"{place}.nodePort", number, "provided port is already allocated")
        taken.add(named)
