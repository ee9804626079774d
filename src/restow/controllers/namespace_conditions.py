"""Conditions of a namespace that is being deleted. Pure functions.

Types and reasons are those of Kubernetes. Not here: the deletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Condition = dict[str, Any]

_FAILURES_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class Leftovers:
    """The remaining contents of a namespace after a deletion pass."""

    counts: dict[str, int] = field(default_factory=dict)
    """The number of remaining objects, by `plural.group`."""
    finalizers: dict[str, int] = field(default_factory=dict)
    """The number of objects that have each finalizer."""
    failures: list[str] = field(default_factory=list)
    """Objects that could not be deleted, and why."""
    unknown: list[str] = field(default_factory=list)
    """Resources that are stored in the namespace but not hosted by this server."""
    undiscovered: dict[str, str] = field(default_factory=dict)
    """Group versions of aggregated servers whose contents are unknown, and why."""
    is_busy: bool = False
    """Whether an object was written during the pass and is left to the next one."""

    def note_busy(self) -> None:
        self.is_busy = True

    def __bool__(self) -> bool:
        return bool(self.counts or self.failures or self.undiscovered)


def conditions_of(left: Leftovers) -> list[Condition]:
    """Return the conditions that describe the remaining contents."""
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
    """Merge conditions; the time of the last change is kept if the status is the same."""
    before = {each.get("type"): each for each in old}
    ours = {each["type"] for each in new}
    merged = [each for each in old if each.get("type") not in ours]
    for each in new:
        known = before.get(each["type"]) or {}
        same = known.get("status") == each["status"] and known.get("lastTransitionTime")
        merged.append({**each, "lastTransitionTime": same or now})
    return merged


def _undiscovered(left: Leftovers) -> str:
    """Return which kinds could not be discovered; empty if all could."""
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
        texts.append(f"not hosted by the server that deletes the contents of namespaces: {unknown}")
    return "; ".join(texts)


def _failed(left: Leftovers) -> str:
    """Return which objects could not be deleted; empty if all could."""
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
