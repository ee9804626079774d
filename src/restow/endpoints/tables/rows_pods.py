"""Columns of pods, with the status that kubectl shows, computed from many fields.

Not here: the controllers of pods; see `rows_workloads`.
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
class _ContainersState:
    """The combined result of some container statuses."""

    status_text: str = ""
    """The text of the STATUS column, as far as these containers determine it."""
    ready: int = 0
    restarts: int = 0
    ends: tuple[datetime, ...] = ()
    """When restarted containers had terminated."""


def _pod(obj: Mapping[str, Any], now: datetime) -> list[object]:
    specs = items(obj, "spec", "initContainers")
    sidecars = {text(each, "name") for each in specs if text(each, "restartPolicy") == "Always"}
    early, beside = _init_state(obj, specs, sidecars)
    merged = early
    if not early.status_text or text(condition(obj, "Initialized"), "status") == "True":
        usual = _containers_state(obj, early.status_text or _phase_status(obj))
        merged = _ContainersState(
            usual.status_text,
            early.ready + usual.ready,
            beside.restarts + usual.restarts,
            beside.ends + usual.ends,
        )
    total = len(items(obj, "spec", "containers")) + len(sidecars)
    return [
        text(obj, "metadata", "name"),
        f"{merged.ready}/{total}",
        _deletion_status(obj) or merged.status_text,
        _restarts(merged, now),
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


def _restarts(merged: _ContainersState, now: datetime) -> str:
    if not merged.restarts or not merged.ends:
        return str(merged.restarts)
    return f"{merged.restarts} ({human_duration(now - max(merged.ends))} ago)"


def _readiness_gates(obj: Mapping[str, Any]) -> str:
    gates = items(obj, "spec", "readinessGates")
    if not gates:
        return NONE
    open_gates = sum(
        text(condition(obj, text(gate, "conditionType")), "status") == "True" for gate in gates
    )
    return f"{open_gates}/{len(gates)}"


def _phase_status(obj: Mapping[str, Any]) -> str:
    status_text = text(obj, "status", "reason") or text(obj, "status", "phase")
    is_gated = text(condition(obj, "PodScheduled"), "reason") == "SchedulingGated"
    return "SchedulingGated" if is_gated else status_text


def _deletion_status(obj: Mapping[str, Any]) -> str:
    """The status of a pod that is being deleted, or an empty string."""
    if read(obj, "metadata", "deletionTimestamp") is None:
        return ""
    if text(obj, "status", "reason") == "NodeLost":
        return "Unknown"
    is_over = text(obj, "status", "phase") in ("Failed", "Succeeded")
    return "" if is_over else "Terminating"


def _init_state(
    obj: Mapping[str, Any], specs: list[Any], sidecars: set[str]
) -> tuple[_ContainersState, _ContainersState]:
    """Init containers up to the first that has not finished; and the sidecars among them, which
    keep running."""
    status_text, ready = "", 0
    every, beside = _ContainersState(), _ContainersState()
    for position, status in enumerate(items(obj, "status", "initContainerStatuses")):
        is_sidecar = text(status, "name") in sidecars
        every = _more(every, status)
        beside = _more(beside, status) if is_sidecar else beside
        status_text = _init_status(status, position, len(specs))
        if status_text and is_sidecar and read(status, "started") is True:
            status_text = ""
            ready += read(status, "ready") is True
        if status_text:
            break
    return _ContainersState(status_text, ready, every.restarts, every.ends), beside


def _more(merged: _ContainersState, status: object) -> _ContainersState:
    restarts = merged.restarts + number(status, "restartCount")
    return _ContainersState(restarts=restarts, ends=merged.ends + _ends(status))


def _init_status(status: object, position: int, count: int) -> str:
    """The status of a pod while one of its init containers has not finished, or an empty string."""
    state = mapping(status, "state")
    ended, reason = state.get("terminated"), text(state, "waiting", "reason")
    if isinstance(ended, dict):
        return f"Init:{_end_of(ended)}" if number(ended, "exitCode") else ""
    if reason and reason != "PodInitializing":
        return f"Init:{reason}"
    return f"Init:{position}/{count}"


def _containers_state(obj: Mapping[str, Any], status_text: str) -> _ContainersState:
    ready, error = 0, ""
    merged = _ContainersState()
    # The first container determines the status, so it is processed last.
    for status in reversed(items(obj, "status", "containerStatuses")):
        merged = _more(merged, status)
        state = mapping(status, "state")
        waiting, ended = text(state, "waiting", "reason"), state.get("terminated")
        if waiting:
            status_text = waiting
        elif isinstance(ended, dict):
            status_text = _end_of(ended)
            error = status_text if number(ended, "exitCode") else error
        elif _ready_and_running(status):
            ready += 1
    if status_text == "Completed":
        if ready and text(condition(obj, "Ready"), "status") == "True":
            status_text = "Running"
        elif error or ready:
            status_text = error or "NotReady"
    return _ContainersState(status_text, ready, merged.restarts, merged.ends)


def _end_of(ended: Mapping[str, Any]) -> str:
    if reason := text(ended, "reason"):
        return reason
    if signal := number(ended, "signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{number(ended, 'exitCode')}"


def _completed(obj: Mapping[str, Any]) -> list[dict[str, str]]:
    """Completed pods have a row condition, so that clients can hide them."""
    phase = text(obj, "status", "phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    return [
        {
            "type": "Completed",
            "status": "True",
            "reason": phase,
            "message": f"The pod has completed: {phase.lower()}.",
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
            wide("Nominated Node", about="Node where pods are preempted for it."),
            wide("Readiness Gates", about="Gates that pass, of all."),
        ],
        _pod,
        _completed,
    ),
}
