"""The built-in kinds, as tables by area, and lookups in them.

The tables are loaded on first use, because most commands need none of them.

Not here: behaviour. The code of a kind is in `conversions`, `defaults` or `validation`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from restow.apimachinery.names import GroupKind, GroupResource
from restow.kinds.kind import Kind

# The order in discovery: for an ambiguous resource name the first group wins. The numbers are the
# groupPriorityMinimum of the APIServices.
GROUP_PRIORITIES: Final = {
    "": 18000,
    "apiregistration.k8s.io": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "internal.apiserver.k8s.io": 16000,
    # Its resource is also in migration.k8s.io: the bare name means this group.
    "storagemigration.k8s.io": 15800,
    "migration.k8s.io": 15700,
    # Likewise: the bare name means the StorageVersions of internal.apiserver.k8s.io.
    "kube-apiserver.internal.k8s.io": 15600,
    "storage.restow.dev": 15500,
}
# Groups of custom resources, and of kinds that a release declares, come last.
PRIORITY_OF_OTHERS: Final = 1000
VERSION_PRIORITY_OF_OTHERS: Final = 100
# versionPriority of versions, where kube-apiserver differs from the usual numbers.
VERSION_PRIORITIES: Final = {
    ("", "v1"): 1,
    ("admissionregistration.k8s.io", "v1beta1"): 12,
    ("admissionregistration.k8s.io", "v1alpha1"): 9,
    ("autoscaling", "v2"): 30,
    ("autoscaling", "v2beta2"): 1,
    ("coordination.k8s.io", "v1beta1"): 13,
    ("coordination.k8s.io", "v1alpha2"): 12,
    ("discovery.k8s.io", "v1beta1"): 12,
    ("events.k8s.io", "v1beta1"): 5,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("flowcontrol.apiserver.k8s.io", "v1beta3"): 18,
    ("flowcontrol.apiserver.k8s.io", "v1beta2"): 15,
    ("flowcontrol.apiserver.k8s.io", "v1beta1"): 12,
    ("internal.apiserver.k8s.io", "v1alpha1"): 9,
    ("resource.k8s.io", "v1"): 21,
    ("resource.k8s.io", "v1beta2"): 15,
}
_PRIORITY_STABLE: Final = 15
_PRIORITY_BETA: Final = 9
_PRIORITY_ALPHA: Final = 1

_TABLES: Final = ("core", "workloads", "infrastructure", "access", "control")


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Every built-in kind, group by group in the order of discovery."""
    found: list[Kind] = []
    for table in _TABLES:
        found += import_module(f"{__name__}.{table}").KINDS
    return tuple(sorted(found, key=lambda kind: group_order(kind.group)))


@cache
def builtin_roots() -> dict[str, GroupResource]:
    """The resource of each part of a storage key that starts the keys of a built-in resource."""
    return {
        kind.key_prefix: kind.group_resource
        for kind in all_kinds()
        if kind.persisted and kind.cohabits_with is None
    }


def find_kind(group: str, kind: str) -> Kind | None:
    """Return a built-in kind by its group and kind."""
    return _by_kind().get(GroupKind(group, kind))


def has_group(group: str) -> bool:
    """Whether a group has built-in kinds."""
    return group in _groups()


def find_resource(group: str, plural: str) -> Kind | None:
    """Return a built-in kind by its group and plural."""
    return _by_resource().get(GroupResource(group, plural))


def group_order(group: str) -> tuple[int, str]:
    """Sort key: built-in groups by priority, then all others by name."""
    return -GROUP_PRIORITIES.get(group, PRIORITY_OF_OTHERS), group


def api_service_priorities(group: str, version: str) -> tuple[int, int]:
    """Return groupPriorityMinimum and versionPriority for the APIService of a group version."""
    if group not in GROUP_PRIORITIES:
        return PRIORITY_OF_OTHERS, VERSION_PRIORITY_OF_OTHERS
    priority = VERSION_PRIORITIES.get((group, version))
    if priority is None:
        priority = _PRIORITY_STABLE
        if "beta" in version:
            priority = _PRIORITY_BETA
        elif "alpha" in version:
            priority = _PRIORITY_ALPHA
    return GROUP_PRIORITIES[group], priority


@cache
def _by_kind() -> dict[GroupKind, Kind]:
    return {kind.group_kind: kind for kind in all_kinds()}


@cache
def _groups() -> frozenset[str]:
    return frozenset(kind.group for kind in all_kinds())


@cache
def _by_resource() -> dict[GroupResource, Kind]:
    return {kind.group_resource: kind for kind in all_kinds()}
