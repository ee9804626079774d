"""How long what is deleted has to end: of kinds that run somewhere, and so cannot go at once.

A delete marks such an object and says until when. It goes away by another delete that gives it no
time, by whoever has ended it; so it is from the first if it was never given to a node, or is over.
The time may be made shorter later, never longer. Pure.

Not here: finalizers, which hold any object (`restow.registry.strategy`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from restow.registry.resource import Object

GRACE_SECONDS_MAX: Final = 2**31 - 1
"""A time beyond that is none that a calendar has."""
_OVER: Final = ("Succeeded", "Failed")


def give_time(obj: Object, *, asked: int | None, now: datetime) -> bool:
    """Mark a fresh copy of an object as one that is to end; whether it may go at once.

    `asked` is how long a client wants it to have; None: as long as it says itself.
    """
    metadata = obj["metadata"]
    given = metadata.get("deletionGracePeriodSeconds") or 0
    if metadata.get("deletionTimestamp"):
        if given and asked is not None and asked < given:
            end = _moment(metadata["deletionTimestamp"]) - timedelta(seconds=given - asked)
            _mark(metadata, end, asked)
            given = asked
        return not given
    seconds = _seconds(obj, asked)
    _mark(metadata, now + timedelta(seconds=seconds), seconds)
    if metadata.get("generation"):
        metadata["generation"] += 1
    return not seconds


def is_ending(metadata: dict[str, Any]) -> bool:
    """Whether an object that is deleted still has time, and so stays without finalizers too."""
    return bool(metadata.get("deletionGracePeriodSeconds"))


def _seconds(obj: Object, asked: int | None) -> int:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or state.get("phase") in _OVER:
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


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
