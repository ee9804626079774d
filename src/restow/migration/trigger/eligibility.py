"""Selects the resources in discovery that can be migrated, and the version to list them in.

Events are included: before an old version is dropped, they must be rewritten or expired too. Of
several groups that serve the same objects only one is selected: the one in whose version they are
stored.

Not here: reading discovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.version_hash import storage_version_hash

NEEDED_VERBS: Final = frozenset({"list", "update"})
"""The verbs to find every object and to rewrite it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredVersion:
    """One resource in one version, from discovery."""

    name: GroupVersionResource
    kind: str
    verbs: frozenset[str]
    hash: str = ""


def why_not(found: DiscoveredVersion) -> str:
    """Why a resource cannot be migrated; empty if it can."""
    if "/" in found.name.resource:
        return "it is a subresource"
    missing = sorted(NEEDED_VERBS - found.verbs)
    if missing:
        return f"it has no verb {', '.join(missing)}"
    return ""


def eligible(
    found: Iterable[DiscoveredVersion], preferred: Mapping[str, str]
) -> dict[GroupResource, DiscoveredVersion]:
    """Return each resource once: in its group's preferred version, or in the first listed one."""
    shown = list(found)
    chosen: dict[GroupResource, DiscoveredVersion] = {}
    for each in shown:
        if why_not(each):
            continue
        resource = each.name.group_resource
        if resource not in chosen or preferred.get(each.name.group) == each.name.version:
            chosen[resource] = each
    for resource in chosen.keys() - _homes(shown, chosen.values()):
        del chosen[resource]
    return chosen


def _homes(
    shown: Iterable[DiscoveredVersion], chosen: Iterable[DiscoveredVersion]
) -> set[GroupResource]:
    """Return the resources without those whose objects belong to another one.

    Resources with the same name and hash share their objects. Only one of them is returned: the one
    whose own group version has that hash, or else the first.
    """
    own = {
        each.name.group_resource
        for each in shown
        if each.hash == storage_version_hash(each.name.group_version.with_kind(each.kind))
    }
    homes: dict[tuple[str, str], GroupResource] = {}
    for each in chosen:
        name = each.name.group_resource
        # Without a hash it is not known whether it shares a store.
        place = (each.name.resource, each.hash or str(name))
        if place not in homes or (name in own and homes[place] not in own):
            homes[place] = name
    return set(homes.values())
