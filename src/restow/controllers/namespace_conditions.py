"""What a namespace that is being deleted says about how far that is. Pure functions.

Types and reasons are those that users of Kubernetes know and scripts look for. Not here: deleting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Condition = dict[str, Any]

_FAILURES_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class Leftovers:
    """What is still in a namespace after a pass over it."""

    counts: dict[str, int] = field(default_factory=dict)
    """Objects that are left, by `plural.group`."""
    finalizers: dict[str, int] = field(default_factory=dict)
    """In how many objects each finalizer is left."""
    failures: list[str] = field(default_factory=list)
    """What could not be deleted, and why."""
    unknown: list[str] = field(default_factory=list)
    """Resources that are stored in it and not hosted by this server."""
    undiscovered: dict[str, str] = field(default_factory=dict)
    """APIs of other servers of which nobody knows what is in it, and why."""
    is_busy: bool = False
    """Whether something was written during the pass, and so left to the next one."""

    def note_busy(self) -> None:
        self.is_busy = True

    def __bool__(self) -> bool:
        return bool(self.counts or self.failures or self.undiscovered)


def conditions_of(left: Leftovers) -> list[Condition]:
    """The conditions that describe this state."""
    undiscovered = _undiscovered(left)
    return [
        _condition(
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed" if undiscovered else "ResourcesDiscovered",
            undiscovered or "All resources successfully discovered",
            holds=bool(undiscovered),
        ),
        _condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        _condition(
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed" if left.failures else "ContentDeleted",
            _failed(left) or "All content successfully deleted, may be waiting on finalization",
            holds=bool(left.failures),
        ),
        _condition(
            "NamespaceContentRemaining",
            "SomeResourcesRemain" if left.counts else "ContentRemoved",
            _listed("Some resources are remaining", left.counts, "has {} resource instances")
            or "All content successfully removed",
            holds=bool(left.counts),
        ),
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if left.finalizers else "ContentHasNoFinalizers",
            _listed(
                "Some content in the namespace has finalizers remaining",
                left.finalizers,
                "in {} resource instances",
            )
            or "All content-preserving finalizers finished",
            holds=bool(left.finalizers),
        ),
    ]


def merge_conditions(
    old: Sequence[Condition], new: Sequence[Condition], now: str
) -> list[Condition]:
    """The new conditions, with the time of the last change of each; others stay as they are."""
    before = {each.get("type"): each for each in old}
    ours = {each["type"] for each in new}
    merged = [each for each in old if each.get("type") not in ours]
    for each in new:
        known = before.get(each["type"]) or {}
        same = known.get("status") == each["status"] and known.get("lastTransitionTime")
        merged.append({**each, "lastTransitionTime": same or now})
    return merged


def _undiscovered(left: Leftovers) -> str:
    """What is not known of the kinds that may be in a namespace; empty when all is."""
    texts: list[str] = []
    if left.undiscovered:
        failing = sorted(left.undiscovered.items())
        shown = ", ".join(f"{name}: {why}" for name, why in failing[:_FAILURES_SHOWN_MAX])
        texts.append(
            f"Discovery failed for some groups, {len(failing)} failing: unable to retrieve the"
            f" complete list of server APIs: {shown}"
        )
    if left.unknown:
        unknown = ", ".join(left.unknown)
        texts.append(f"not known to the server that empties namespaces: {unknown}")
    return "; ".join(texts)


def _failed(left: Leftovers) -> str:
    """What could not be deleted; empty when all could."""
    if not left.failures:
        return ""
    shown = ", ".join(sorted(left.failures)[:_FAILURES_SHOWN_MAX])
    return f"Failed to delete all resource types, {len(left.failures)} remaining: {shown}"


def _condition(kind: str, reason: str, message: str, *, holds: bool = False) -> Condition:
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _listed(title: str, counts: Mapping[str, int], text: str) -> str:
    parts = [f"{name} {text.format(count)}" for name, count in sorted(counts.items())]
    return f"{title}: {', '.join(parts)}" if parts else ""
