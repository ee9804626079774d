"""Columns of pods. Their status is one word made from many fields, so they have a file.

Not here: what owns pods; that is in `rows_workloads`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.endpoints.tables.values import (
    NONE,
    age,
    condition,
    human_duration,
    items,
    mapping,
    moment,
    number,
    read,
    text,
)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the statuses of some containers say together."""

    word: str = ""
    """The state of the pod, as far as it follows from them."""
    ready: int = 0
    restarts: int = 0
    ends: tuple[datetime, ...] = ()
    """When some of them ended before they were started again."""


def _pod(obj: Mapping[str, Any], now: datetime) -> list[object]:
    specs = items(obj, "spec", "initContainers")
    sidecars = {text(each, "name") for each in specs if text(each, "restartPolicy") == "Always"}
    early, beside = _early(obj, specs, sidecars)
    seen = early
    if not early.word or text(condition(obj, "Initialized"), "status") == "True":
        usual = _usual(obj, early.word or _base_word(obj))
        seen = _Seen(
            usual.word,
            early.ready + usual.ready,
            beside.restarts + usual.restarts,
            beside.ends + usual.ends,
        )
    total = len(items(obj, "spec", "containers")) + len(sidecars)
    return [
        text(obj, "metadata", "name"),
        f"{seen.ready}/{total}",
        _going_word(obj) or seen.word,
        _restarts(seen, now),
        age(obj, now),
        text(obj, "status", "podIP") or NONE,
        text(obj, "spec", "nodeName") or NONE,
        text(obj, "status", "nominatedNodeName") or NONE,
        _readiness_gates(obj),
    ]


def _ready_and_running(status: object) -> bool:
    return read(status, "ready") is True and isinstance(read(status, "state", "running"), dict)


def _ends(status: object) -> tuple[datetime, ...]:
    end = moment(read(status, "lastState", "terminated", "finishedAt"))
    return () if end is None else (end,)


def _restarts(seen: _Seen, now: datetime) -> str:
    if not seen.restarts or not seen.ends:
        return str(seen.restarts)
    return f"{seen.restarts} ({human_duration(now - max(seen.ends))} ago)"


def _readiness_gates(obj: Mapping[str, Any]) -> str:
    gates = items(obj, "spec", "readinessGates")
    if not gates:
        return NONE
    open_gates = sum(
        text(condition(obj, text(gate, "conditionType")), "status") == "True" for gate in gates
    )
    return f"{open_gates}/{len(gates)}"


def _base_word(obj: Mapping[str, Any]) -> str:
    word = text(obj, "status", "reason") or text(obj, "status", "phase")
    is_gated = text(condition(obj, "PodScheduled"), "reason") == "SchedulingGated"
    return "SchedulingGated" if is_gated else word


def _going_word(obj: Mapping[str, Any]) -> str:
    """The word for a pod that is being deleted, or nothing."""
    if read(obj, "metadata", "deletionTimestamp") is None:
        return ""
    if text(obj, "status", "reason") == "NodeLost":
        return "Unknown"
    is_over = text(obj, "status", "phase") in ("Failed", "Succeeded")
    return "" if is_over else "Terminating"


def _early(obj: Mapping[str, Any], specs: list[Any], sidecars: set[str]) -> tuple[_Seen, _Seen]:
    """All that run before the others, as far as the first that is not done; and those of them that
    keep running beside the others."""
    word, ready = "", 0
    every, beside = _Seen(), _Seen()
    for position, status in enumerate(items(obj, "status", "initContainerStatuses")):
        is_sidecar = text(status, "name") in sidecars
        every = _more(every, status)
        beside = _more(beside, status) if is_sidecar else beside
        word = _init_word(status, position, len(specs))
        if word and is_sidecar and read(status, "started") is True:
            word = ""
            ready += read(status, "ready") is True
        if word:
            break
    return _Seen(word, ready, every.restarts, every.ends), beside


def _more(seen: _Seen, status: object) -> _Seen:
    restarts = seen.restarts + number(status, "restartCount")
    return _Seen(restarts=restarts, ends=seen.ends + _ends(status))


def _init_word(status: object, position: int, count: int) -> str:
    """The word for a pod as long as one of its early containers is not done, or nothing."""
    state = mapping(status, "state")
    ended, reason = state.get("terminated"), text(state, "waiting", "reason")
    if isinstance(ended, dict):
        return f"Init:{_end_of(ended)}" if number(ended, "exitCode") else ""
    if reason and reason != "PodInitializing":
        return f"Init:{reason}"
    return f"Init:{position}/{count}"


def _usual(obj: Mapping[str, Any], word: str) -> _Seen:
    ready, error = 0, ""
    seen = _Seen()
    # The first container decides, so it is looked at last.
    for status in reversed(items(obj, "status", "containerStatuses")):
        seen = _more(seen, status)
        state = mapping(status, "state")
        waiting, ended = text(state, "waiting", "reason"), state.get("terminated")
        if waiting:
            word = waiting
        elif isinstance(ended, dict):
            word = _end_of(ended)
            error = word if number(ended, "exitCode") else error
        elif _ready_and_running(status):
            ready += 1
    if word == "Completed":
        if ready and text(condition(obj, "Ready"), "status") == "True":
            word = "Running"
        elif error or ready:
            word = error or "NotReady"
    return _Seen(word, ready, seen.restarts, seen.ends)


def _end_of(ended: Mapping[str, Any]) -> str:
    if reason := text(ended, "reason"):
        return reason
    if signal := number(ended, "signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{number(ended, 'exitCode')}"


def _completed(obj: Mapping[str, Any]) -> list[dict[str, str]]:
    """Pods that are over carry a mark, so that a client can leave them out."""
    phase = text(obj, "status", "phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    return [
        {
            "type": "Completed",
            "status": "True",
            "reason": phase,
            "message": f"The pod is over: {phase.lower()}.",
        }
    ]


COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("", "Pod"): TableColumns(
        [
            NAME,
            column("Ready", about="Containers that are ready, of all."),
            column("Status", about="State of the pod in one word."),
            column("Restarts", about="How often containers restarted, and when last."),
            AGE,
            wide("IP", about="Address of the pod."),
            wide("Node", about="Node that it runs on."),
            wide("Nominated Node", about="Node that is being cleared for it."),
            wide("Readiness Gates", about="Gates that are open, of all."),
        ],
        _pod,
        _completed,
    ),
}
