"""Conversion of built-in kinds between their versions, one file for each kind that needs code.

Most old versions differ from the new one only in name, and need none.

Not here: defaults. A conversion keeps all information and adds none.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from restow.apimachinery.conversion import Converter, renaming
from restow.apimachinery.errors import UnknownKind
from restow.apimachinery.names import GroupKind
from restow.kinds.builtin import all_kinds, find_kind
from restow.kinds.kind import Kind

# The module with the `CONVERTER` of a kind whose versions differ in more than their name.
_MODULES: Final = {
    GroupKind("", "Event"): "event",
    GroupKind("apps", "Deployment"): "deployment",
    GroupKind("autoscaling", "HorizontalPodAutoscaler"): "horizontal_pod_autoscaler",
    GroupKind("discovery.k8s.io", "EndpointSlice"): "endpoint_slice",
    GroupKind("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): "priority_level",
    GroupKind("networking.k8s.io", "Ingress"): "ingress",
    GroupKind("policy", "PodDisruptionBudget"): "pod_disruption_budget",
}


@cache
def converter_of(group: str, kind: str) -> Converter:
    """Return the converter of a built-in kind. Kinds that share a store share their converter."""
    found = find_kind(group, kind)
    if found is None:
        raise UnknownKind(f"no built-in kind {kind} in group {group!r}")
    if found.store != found.group_kind:
        return converter_of(*found.store)
    module = _MODULES.get(found.group_kind)
    if module is None:
        return renaming(f"{found.group_kind}", _api_versions(found))
    converter: Converter = import_module(f"{__name__}.{module}").CONVERTER
    return converter


def _api_versions(kind: Kind) -> list[str]:
    """All versions in the store of a kind, its own first."""
    names = [kind.api_version(version) for version in kind.versions]
    for other in all_kinds():
        if other.cohabits_with == kind.group_kind:
            names += [other.api_version(version) for version in other.versions]
    return names
