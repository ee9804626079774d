"""Validation of horizontal pod autoscalers: replica bounds, scale target, and metrics.

Not here: rules of single fields (`kind_rules`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery import quantity
from restow.kinds.validation.fields import Causes, Object, listed, part, require, require_one_of

# The only scalable kind in the core group.
_OF_CORE: Final = "ReplicationController"
_FOR_ZERO: Final = ("Object", "External")
_TARGET_TYPES: Final = ("Utilization", "Value", "AverageValue")
_OF_RESOURCE: Final = (
    ("averageUtilization", "averageValue"),
    "must set either a target raw value or a target utilization",
)
# The required target fields of each type of metric, and the error without them.
_TARGETS: Final = {
    "ContainerResource": _OF_RESOURCE,
    "External": (
        ("averageValue", "value"),
        "must set either a target value for metric or a per-pod target",
    ),
    "Object": (("averageValue", "value"), "must set either a target value or averageValue"),
    "Pods": (("averageValue",), "must specify a positive target averageValue"),
    "Resource": _OF_RESOURCE,
}
_METRIC_TYPES: Final = ("ContainerResource", "External", "Object", "Pods", "Resource")


def validate_autoscaler(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    smallest, largest = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if smallest is not None and smallest < 1:
        causes.invalid("spec.minReplicas", smallest, "must be greater than or equal to 1")
        metrics = [metric.get("type") for _, metric in listed(spec, "metrics", "")]
        if smallest == 0 and not any(each in _FOR_ZERO for each in metrics):
            why = (
                "must specify at least one Object or External metric to support scaling to zero "
                "replicas"
            )
            causes.forbidden("spec.metrics", why)
    if largest < 1:
        causes.invalid("spec.maxReplicas", largest, "must be greater than 0")
    elif smallest is not None and largest < smallest:
        why = "must be greater than or equal to `minReplicas`"
        causes.invalid("spec.maxReplicas", largest, why)
    target = part(spec, "scaleTargetRef")
    require(causes, target, field="spec.scaleTargetRef", names=("kind", "name"))
    if old is None or target != part(old, "spec", "scaleTargetRef"):
        _check_target_version(causes, target)
    for field, metric in listed(spec, "metrics", "spec.metrics"):
        if not metric.get("type"):
            causes.required(f"{field}.type", "must specify a metric source type")
        require_one_of(causes, metric, field=field, name="type", values=_METRIC_TYPES)
        _check_metric(causes, metric, field)


def _check_target_version(causes: Causes, target: Object) -> None:
    version = target.get("apiVersion") or ""
    where = "spec.scaleTargetRef.apiVersion"
    if version.count("/") > 1:
        causes.invalid(where, version, f"unexpected GroupVersion string: {version}")
    elif not version.partition("/")[1] and target.get("kind") != _OF_CORE:
        causes.invalid(where, version, "apiVersion must specify API group")


def _check_metric(causes: Causes, metric: Object, field: str) -> None:
    kind = metric.get("type")
    if kind not in _METRIC_TYPES:
        return
    name = f"{kind[0].lower()}{kind[1:]}"
    if metric.get(name) is None:
        causes.required(f"{field}.{name}", "must populate information for the given metric source")
        return
    target, where = part(metric, name, "target"), f"{field}.{name}.target"
    if target.get("type") not in _TARGET_TYPES:
        why = "must be either Utilization, Value, or AverageValue"
        causes.invalid(f"{where}.type", target.get("type") or "", why)
    for each in ("value", "averageValue"):
        if target.get(each) is not None and quantity.parse(str(target[each])) <= 0:
            causes.invalid(f"{where}.{each}", target[each], "must be positive")
    wanted, why = _TARGETS[kind]
    if not any(target.get(each) is not None for each in wanted):
        causes.required(f"{where}.{wanted[0]}", why)
