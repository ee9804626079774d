"""Which of the resources in discovery can be migrated, and in which version they are asked for.

Events are not left out: whoever drops an old version needs them rewritten, or expired, too.

Not here: reading discovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from restow.machinery.names import GroupResource, GroupVersionResource

NEEDED_VERBS: Final = frozenset({"list", "update"})
"""To find every object, and to write it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """One resource in one version, as discovery shows it."""

    name: GroupVersionResource
    kind: str
    verbs: frozenset[str]
    hash: str = ""


def why_not(found: Discovered) -> str:
    """Why a resource cannot be migrated; empty if it can."""
    if "/" in found.name.resource:
        return "it is a subresource"
    missing = sorted(NEEDED_VERBS - found.verbs)
    if missing:
        return f"it has no verb {', '.join(missing)}"
    return ""


def eligible(
    found: Iterable[Discovered], preferred: Mapping[str, str]
) -> dict[GroupResource, Discovered]:
    """Each resource once: in the version its group prefers, or else the first that is shown."""
    chosen: dict[GroupResource, Discovered] = {}
    for each in found:
        if why_not(each):
            continue
        resource = each.name.group_resource
        if resource not in chosen or preferred.get(each.name.group) == each.name.version:
            chosen[resource] = each
    return chosen
