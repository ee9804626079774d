"""Metrics of autoscalers in their two forms: that of `autoscaling/v2`, and the older one.

The older form is that of `v2beta1`, and of the annotations in which `v1` keeps what it has no
fields for. The new form can express more: the caller must check the round trip. A metric of an
unknown type is left unchanged.

Not here: the location of the metrics in an object (`horizontal_pod_autoscaler`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.conversion import Object

CPU: Final = "cpu"
RESOURCE: Final = "Resource"
# The field of a metric that holds its source, by the metric's type.
_MEMBERS: Final = {
    "Object": "object",
    "Pods": "pods",
    RESOURCE: "resource",
    "ContainerResource": "containerResource",
    "External": "external",
}
# In the older form the value of an object's metric is required.
_NO_VALUE: Final = "0"


def cpu_utilization(percent: int) -> Object:
    """Return the metric for `targetCPUUtilizationPercentage` of `v1`."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": RESOURCE, "resource": {"name": CPU, "target": target}}


def cpu_percent(metric: Object) -> int | None:
    """Return `targetCPUUtilizationPercentage` for a metric; None if it would lose information."""
    target = (metric.get("resource") or {}).get("target") or {}
    percent = target.get("averageUtilization")
    if isinstance(percent, int) and metric == cpu_utilization(percent):
        return percent
    return None


def current_cpu(percent: int) -> Object:
    """Return the status for `currentCPUUtilizationPercentage` of `v1`."""
    current = {"averageUtilization": percent}
    return {"type": RESOURCE, "resource": {"name": CPU, "current": current}}


def current_cpu_percent(metric: Object) -> int | None:
    """Return `currentCPUUtilizationPercentage` for a CPU status, whatever else it contains."""
    source = metric.get("resource") or {}
    if metric.get("type") != RESOURCE or source.get("name") != CPU:
        return None
    percent = (source.get("current") or {}).get("averageUtilization")
    return percent if isinstance(percent, int) else None


def older_spec(metric: Object) -> Object:
    """A metric's specification in the older form."""
    if metric["type"] not in _MEMBERS:
        return metric
    kind, source = _split(metric)
    target = source.get("target") or {}
    older = _older_identity(kind, source)
    match kind:
        case "Resource" | "ContainerResource":
            _put(older, "targetAverageUtilization", target.get("averageUtilization"))
            _put(older, "targetAverageValue", target.get("averageValue"))
        case "Pods":
            _put(older, "targetAverageValue", target.get("averageValue"))
        case "Object":
            older["targetValue"] = target.get("value", _NO_VALUE)
            _put(older, "averageValue", target.get("averageValue"))
        case _:
            _put(older, "targetValue", target.get("value"))
            _put(older, "targetAverageValue", target.get("averageValue"))
    return {"type": kind, _MEMBERS[kind]: older}


def newer_spec(metric: Object) -> Object:
    """A metric's specification in the newer form."""
    if metric["type"] not in _MEMBERS:
        return metric
    kind, source = _split(metric)
    newer = _newer_identity(kind, source)
    value = source.get("targetValue")
    average = source.get("averageValue" if kind == "Object" else "targetAverageValue")
    utilization = source.get("targetAverageUtilization")
    if kind == "Object" and average is not None and value == _NO_VALUE:
        value = None
    target: Object = {"type": "AverageValue"}
    if utilization is not None:
        target["type"] = "Utilization"
    elif average is None and kind in ("Object", "External"):
        target["type"] = "Value"
    _put(target, "value", value)
    _put(target, "averageValue", average)
    _put(target, "averageUtilization", utilization)
    newer["target"] = target
    return {"type": kind, _MEMBERS[kind]: newer}


def older_status(metric: Object) -> Object:
    """A metric's current value in the older form."""
    if metric["type"] not in _MEMBERS:
        return metric
    kind, source = _split(metric)
    current = source.get("current") or {}
    older = _older_identity(kind, source)
    average = "averageValue" if kind == "Object" else "currentAverageValue"
    _put(older, "currentAverageUtilization", current.get("averageUtilization"))
    _put(older, "currentValue", current.get("value"))
    _put(older, average, current.get("averageValue"))
    return {"type": kind, _MEMBERS[kind]: older}


def newer_status(metric: Object) -> Object:
    """A metric's current value in the newer form."""
    if metric["type"] not in _MEMBERS:
        return metric
    kind, source = _split(metric)
    newer = _newer_identity(kind, source)
    current: Object = {}
    average = "averageValue" if kind == "Object" else "currentAverageValue"
    _put(current, "value", source.get("currentValue"))
    _put(current, "averageValue", source.get(average))
    _put(current, "averageUtilization", source.get("currentAverageUtilization"))
    newer["current"] = current
    return {"type": kind, _MEMBERS[kind]: newer}


def _older_identity(kind: str, source: Object) -> Object:
    if kind in (RESOURCE, "ContainerResource"):
        return _named(source)
    metric = source.get("metric") or {}
    older: Object = {}
    if kind == "Object":
        _put(older, "target", source.get("describedObject"))
    _put(older, "metricName", metric.get("name"))
    _put(older, "metricSelector" if kind == "External" else "selector", metric.get("selector"))
    return older


def _newer_identity(kind: str, source: Object) -> Object:
    if kind in (RESOURCE, "ContainerResource"):
        return _named(source)
    metric: Object = {}
    _put(metric, "name", source.get("metricName"))
    _put(metric, "selector", source.get("metricSelector" if kind == "External" else "selector"))
    newer: Object = {"metric": metric}
    if kind == "Object":
        _put(newer, "describedObject", source.get("target"))
    return newer


def _named(source: Object) -> Object:
    named: Object = {}
    _put(named, "name", source.get("name"))
    _put(named, "container", source.get("container"))
    return named


def _split(metric: Object) -> tuple[str, Object]:
    """Return the type of a metric and its source; an absent source is empty."""
    kind = metric["type"]
    return kind, metric.get(_MEMBERS[kind]) or {}


def _put(obj: Object, name: str, value: Any) -> None:
    if value is not None:
        obj[name] = value
