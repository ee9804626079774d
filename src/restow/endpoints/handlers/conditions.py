"""Status conditions of objects: one of each type, with the time of its last transition. Pure."""

from __future__ import annotations

from typing import Any

from restow.registry.resource import Object


def condition_of(state: Object, kind: str) -> dict[str, Any] | None:
    """The condition of one type, if there is one."""
    for each in state.get("conditions") or ():
        if isinstance(each, dict) and each.get("type") == kind:
            return each
    return None


def with_condition(
    state: Object, wanted: dict[str, Any], *, now: str, is_probed: bool = False
) -> Object:
    """A status with a condition that replaces the one of its type, or is appended.

    `is_probed`: for condition types that also have `lastProbeTime`.
    """
    kind = wanted["type"]
    before = condition_of(state, kind)
    fresh = {**wanted, "lastTransitionTime": now}
    if is_probed:
        fresh["lastProbeTime"] = None
    if before is not None and before.get("status") == wanted["status"]:
        fresh["lastTransitionTime"] = before.get("lastTransitionTime") or now
    conditions = list(state.get("conditions") or ())
    if before is None:
        conditions.append(fresh)
    else:
        conditions = [fresh if each is before else each for each in conditions]
    return {**state, "conditions": conditions}
