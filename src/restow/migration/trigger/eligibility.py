"""Which of the resources in discovery can be migrated, and in which version they are asked for.

Events are not left out: whoever drops an old version needs them rewritten, or expired, too. But of
several groups that show the same objects only one is taken: the one in whose version they are
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
"""To find every object, and to write it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredVersion:
    """One resource in one version, as discovery shows it."""

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
    """Each resource once: in the version its group prefers, or else the first that is shown."""
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
    """Those that show objects of their own: of several with one name and one hash, the one whose
    group has the version that the hash is of."""
    own = {
        each.name.group_resource
        for each in shown
        if each.hash == storage_version_hash(each.name.group_version.with_kind(each.kind))
    }
    homes: dict[tuple[str, str], GroupResource] = {}
    for each in chosen:
        name = each.name.group_resource
        # Without a hash nobody knows with whom it is stored.
        place = (each.name.resource, each.hash or str(name))
        if place not in homes or (name in own and homes[place] not in own):
            homes[place] = name
    return set(homes.values())
