"""Columns of pods. Their status is one word made from many fields, so they have a file.

Not here: what owns pods; that is in `rows_workloads`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from restow.serving.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.serving.tables.values import (
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


def _pod(obj: Mapping[str, Any], now: datetime) -> list[object]:
    statuses = items(obj, "status", "containerStatuses")
    sidecars = _sidecar_statuses(obj)
    running = sum(1 for status in [*statuses, *sidecars] if _ready_and_running(status))
    total = len(items(obj, "spec", "containers")) + len(sidecars)
    return [
        text(obj, "metadata", "name"),
        f"{running}/{total}",
        _status(obj),
        _restarts([*statuses, *sidecars], now),
        age(obj, now),
        text(obj, "status", "podIP") or NONE,
        text(obj, "spec", "nodeName") or NONE,
        text(obj, "status", "nominatedNodeName") or NONE,
        _readiness_gates(obj),
    ]


def _sidecar_statuses(obj: Mapping[str, Any]) -> list[Any]:
    """Statuses of the init containers that keep running beside the others."""
    names = {
        text(container, "name")
        for container in items(obj, "spec", "initContainers")
        if text(container, "restartPolicy") == "Always"
    }
    statuses = items(obj, "status", "initContainerStatuses")
    return [status for status in statuses if text(status, "name") in names]


def _ready_and_running(status: object) -> bool:
    return read(status, "ready") is True and isinstance(read(status, "state", "running"), dict)


def _restarts(statuses: list[Any], now: datetime) -> str:
    total = sum(number(status, "restartCount") for status in statuses)
    ends = [moment(read(s, "lastState", "terminated", "finishedAt")) for s in statuses]
    known = [end for end in ends if end is not None]
    if not total or not known:
        return str(total)
    return f"{total} ({human_duration(now - max(known))} ago)"


def _readiness_gates(obj: Mapping[str, Any]) -> str:
    gates = items(obj, "spec", "readinessGates")
    if not gates:
        return NONE
    open_gates = sum(
        text(condition(obj, text(gate, "conditionType")), "status") == "True" for gate in gates
    )
    return f"{open_gates}/{len(gates)}"


def _status(obj: Mapping[str, Any]) -> str:
    phase = text(obj, "status", "phase")
    word = text(obj, "status", "reason") or phase
    if text(condition(obj, "PodScheduled"), "reason") == "SchedulingGated":
        word = "SchedulingGated"
    starting = _init_status(obj)
    word = starting or _containers_status(obj, word)
    if read(obj, "metadata", "deletionTimestamp") is not None:
        if text(obj, "status", "reason") == "NodeLost":
            return "Unknown"
        if phase not in ("Failed", "Succeeded"):
            return "Terminating"
    return word


def _init_status(obj: Mapping[str, Any]) -> str:
    """The word for a pod whose init containers are not done, or nothing."""
    specs = items(obj, "spec", "initContainers")
    always = {text(spec, "name") for spec in specs if text(spec, "restartPolicy") == "Always"}
    for position, status in enumerate(items(obj, "status", "initContainerStatuses")):
        state = mapping(status, "state")
        ended, waiting = state.get("terminated"), state.get("waiting")
        if isinstance(ended, dict) and number(ended, "exitCode") == 0:
            continue
        if text(status, "name") in always and read(status, "started") is True:
            continue
        if isinstance(ended, dict):
            return f"Init:{_end_of(ended)}"
        reason = text(waiting, "reason")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{position}/{len(specs)}"
    return ""


def _containers_status(obj: Mapping[str, Any], word: str) -> str:
    has_running = False
    # The first container decides, so it is looked at last.
    for status in reversed(items(obj, "status", "containerStatuses")):
        state = mapping(status, "state")
        waiting, ended = text(state, "waiting", "reason"), state.get("terminated")
        if waiting:
            word = waiting
        elif isinstance(ended, dict):
            word = _end_of(ended)
        elif _ready_and_running(status):
            has_running = True
    if word == "Completed" and has_running:
        ready = text(condition(obj, "Ready"), "status") == "True"
        return "Running" if ready else "NotReady"
    return word


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
