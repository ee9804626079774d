"""Graceful deletion: the grace period of objects that run on a node, which are not deleted at once.

A delete marks such an object with the end of its grace period. It is removed by another delete with
a grace period of 0, sent by the kubelet. An object that was never scheduled to a node, or that has
finished, is removed at once. A later delete may shorten the grace period, never extend it. Pure.

Not here: finalizers, which apply to every object (`restow.registry.strategy`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from restow.registry.resource import Object

GRACE_SECONDS_MAX: Final = 2**31 - 1
"""A longer grace period would exceed the range of dates."""
_FINISHED: Final = ("Succeeded", "Failed")


def start_grace_period(obj: Object, *, asked: int | None, now: datetime) -> bool:
    """Set the deletion timestamp and grace period of an object; return whether to remove it at
    once.

    The object must be a copy. `asked` is the grace period in the DeleteOptions, in seconds; None
    selects `spec.terminationGracePeriodSeconds`.
    """
    metadata = obj["metadata"]
    given = metadata.get("deletionGracePeriodSeconds") or 0
    if metadata.get("deletionTimestamp"):
        if given and asked is not None and asked < given:
            end = _parse_time(metadata["deletionTimestamp"]) - timedelta(seconds=given - asked)
            _mark(metadata, end, asked)
            given = asked
        return not given
    seconds = _seconds(obj, asked)
    _mark(metadata, now + timedelta(seconds=seconds), seconds)
    if metadata.get("generation"):
        metadata["generation"] += 1
    return not seconds


def is_ending(metadata: dict[str, Any]) -> bool:
    """Whether a deleted object is in its grace period, and so stays even without finalizers."""
    return bool(metadata.get("deletionGracePeriodSeconds"))


def _seconds(obj: Object, asked: int | None) -> int:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or state.get("phase") in _FINISHED:
        return 0
    wanted = asked
    if wanted is None:
        own = spec.get("terminationGracePeriodSeconds")
        wanted = own if isinstance(own, int) else 0
    return 1 if wanted < 0 else min(wanted, GRACE_SECONDS_MAX)


def _mark(metadata: dict[str, Any], end: datetime, seconds: int) -> None:
    text = end.isoformat(timespec="seconds").replace("+00:00", "Z")
    metadata["deletionTimestamp"] = text
    metadata["deletionGracePeriodSeconds"] = seconds


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
