"""Horizontal pod autoscalers: `autoscaling/v2` is the hub; `v1` and `v2beta1` have fewer fields.

Values without a field in an older version are kept in the annotations that Kubernetes uses. The
older form of metrics cannot express every value and order: where the round trip would change them,
the newer form is kept in an annotation of restow as well. It is used only while the older fields
are unchanged, so an edit through an old version is never undone.

Not here: the two forms of metrics (`autoscaling_metrics`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from restow.apimachinery.conversion import SAME_SHAPE, Converter, Object, Spoke, part_of
from restow.kinds.conversions import autoscaling_metrics as forms

METRICS_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT_METRICS_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/behavior"
EXACT_ANNOTATION: Final = "restow.internal/autoscaling-v2"

RESERVED_ANNOTATIONS: Final = frozenset(
    (
        METRICS_ANNOTATION,
        CURRENT_METRICS_ANNOTATION,
        CONDITIONS_ANNOTATION,
        BEHAVIOR_ANNOTATION,
        EXACT_ANNOTATION,
    )
)
# Metrics are five levels deep, behaviours four. Deeper JSON was not written by a conversion.
_DEPTH_MAX: Final = 16
_UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)


class _Parts:
    """Copies of the parts of an object that a conversion changes; empty ones are left out again."""

    def __init__(self, obj: Object) -> None:
        self._obj = obj
        self._metadata = part_of(obj, "metadata")
        self.annotations = dict(part_of(self._metadata, "annotations"))
        self.spec = dict(part_of(obj, "spec"))
        self.status = dict(part_of(obj, "status"))

    def put_text(self, annotation: str, value: Any) -> None:
        """Store a value as JSON in an annotation, unless it is empty."""
        if value:
            self.annotations[annotation] = orjson.dumps(value).decode()

    def take(self, annotation: str) -> Any:
        """Remove an annotation and return its value. One that is not valid JSON stays."""
        text = self.annotations.get(annotation)
        if not isinstance(text, str):
            return None
        try:
            value = orjson.loads(text)
        except ValueError:
            return None
        if not value or not _is_shallow(value, _DEPTH_MAX):
            return None
        del self.annotations[annotation]
        return value

    def drop_reserved(self) -> None:
        """Remove annotations that would be misread in the conversion back."""
        for name in RESERVED_ANNOTATIONS.intersection(self.annotations):
            del self.annotations[name]

    def joined(self) -> Object:
        """Return a new object with the changed parts."""
        metadata = {**self._metadata, "annotations": self.annotations}
        if not self.annotations:
            del metadata["annotations"]
        changed = {**self._obj, "metadata": metadata, "spec": self.spec, "status": self.status}
        for name in ("metadata", "spec", "status"):
            if not changed[name] and name not in self._obj:
                del changed[name]
        return changed


def _v1_to_v2(autoscaler: Object) -> Object:
    parts = _Parts(autoscaler)
    exact = _exact_parts(parts.take(EXACT_ANNOTATION))

    older = _read_list(parts, METRICS_ANNOTATION, forms.newer_spec)
    percent = parts.spec.pop("targetCPUUtilizationPercentage", None)
    metrics = _join_specs(percent, older)
    kept = exact.get("metrics")
    if kept is not None and _survives(_split_specs, kept, (percent, older)):
        metrics = kept
    _put(parts.spec, "metrics", metrics)
    _put(parts.spec, "behavior", _read_behavior(parts))

    older = _read_list(parts, CURRENT_METRICS_ANNOTATION, forms.newer_status)
    percent = parts.status.pop("currentCPUUtilizationPercentage", None)
    current = _join_statuses(percent, older)
    kept = exact.get("currentMetrics")
    if kept is not None and _survives(_split_statuses, kept, (percent, older)):
        current = kept
    _put(parts.status, "currentMetrics", current)
    _put(parts.status, "conditions", _read_list(parts, CONDITIONS_ANNOTATION, dict))
    return parts.joined()


def _v2_to_v1(autoscaler: Object) -> Object:
    parts = _Parts(autoscaler)
    parts.drop_reserved()
    exact: Object = {}

    metrics = parts.spec.pop("metrics", None) or []
    percent, older = _split_specs(metrics)
    _put(parts.spec, "targetCPUUtilizationPercentage", percent)
    parts.put_text(METRICS_ANNOTATION, older)
    if _join_specs(percent, older) != metrics:
        exact["metrics"] = metrics
    parts.put_text(BEHAVIOR_ANNOTATION, _written_behavior(parts.spec.pop("behavior", None)))

    current = parts.status.pop("currentMetrics", None) or []
    percent, older = _split_statuses(current)
    _put(parts.status, "currentCPUUtilizationPercentage", percent)
    parts.put_text(CURRENT_METRICS_ANNOTATION, older)
    if _join_statuses(percent, older) != current:
        exact["currentMetrics"] = current
    parts.put_text(CONDITIONS_ANNOTATION, parts.status.pop("conditions", None))
    parts.put_text(EXACT_ANNOTATION, exact)
    return parts.joined()


def _v2beta1_to_v2(autoscaler: Object) -> Object:
    parts = _Parts(autoscaler)
    exact = _exact_parts(parts.take(EXACT_ANNOTATION))
    for part, name, newer, older in (
        (parts.spec, "metrics", forms.newer_spec, forms.older_spec),
        (parts.status, "currentMetrics", forms.newer_status, forms.older_status),
    ):
        given = part.get(name) or []
        kept = exact.get(name)
        if kept is not None and _survives(_each(older), kept, given):
            part[name] = kept
        elif given:
            part[name] = [newer(metric) for metric in given]
    _put(parts.spec, "behavior", _read_behavior(parts))
    return parts.joined()


def _v2_to_v2beta1(autoscaler: Object) -> Object:
    parts = _Parts(autoscaler)
    parts.drop_reserved()
    exact: Object = {}
    for part, name, newer, older in (
        (parts.spec, "metrics", forms.newer_spec, forms.older_spec),
        (parts.status, "currentMetrics", forms.newer_status, forms.older_status),
    ):
        given = part.get(name)
        if not given:
            continue
        part[name] = [older(metric) for metric in given]
        if [newer(metric) for metric in part[name]] != given:
            exact[name] = given
    parts.put_text(BEHAVIOR_ANNOTATION, _written_behavior(parts.spec.pop("behavior", None)))
    parts.put_text(EXACT_ANNOTATION, exact)
    return parts.joined()


def _split_specs(metrics: list[Object]) -> tuple[int | None, list[Object]]:
    """Return the CPU percentage, and all other metrics in the older form.

    The last metric that fits becomes the percentage, because `_join_specs` appends it.
    """
    for index in range(len(metrics) - 1, -1, -1):
        percent = forms.cpu_percent(metrics[index])
        if percent is not None:
            others = metrics[:index] + metrics[index + 1 :]
            return percent, [forms.older_spec(metric) for metric in others]
    return None, [forms.older_spec(metric) for metric in metrics]


def _join_specs(percent: int | None, older: list[Object]) -> list[Object]:
    metrics = [forms.newer_spec(metric) for metric in older]
    return metrics if percent is None else [*metrics, forms.cpu_utilization(percent)]


def _split_statuses(metrics: list[Object]) -> tuple[int | None, list[Object]]:
    """Return the CPU percentage, and all metrics unless the percentage is sufficient."""
    percents = [forms.current_cpu_percent(metric) for metric in metrics]
    percent = next((each for each in reversed(percents) if each is not None), None)
    if percent is not None and metrics == [forms.current_cpu(percent)]:
        return percent, []
    return percent, [forms.older_status(metric) for metric in metrics]


def _join_statuses(percent: int | None, older: list[Object]) -> list[Object]:
    if older or percent is None:
        return [forms.newer_status(metric) for metric in older]
    return [forms.current_cpu(percent)]


def _read_list(parts: _Parts, annotation: str, read: Callable[[Object], Object]) -> list[Object]:
    """Take a list of objects from an annotation. One that cannot be converted stays there."""
    text = parts.annotations.get(annotation)
    found = parts.take(annotation)
    if found is None:
        return []
    try:
        if not isinstance(found, list):
            raise TypeError("not a list")
        for each in found:
            read(each)
    except _UNREADABLE:
        parts.annotations[annotation] = text
        return []
    return found


def _exact_parts(found: Any) -> dict[str, list[Object]]:
    """The kept lists in the newer form, if they have the expected types."""
    if not isinstance(found, dict):
        return {}
    return {
        name: metrics
        for name, metrics in found.items()
        if isinstance(metrics, list) and all(isinstance(metric, dict) for metric in metrics)
    }


def _survives(convert: Callable[[list[Object]], Any], kept: list[Object], older: Any) -> bool:
    """Whether the kept newer form still corresponds to the older fields."""
    try:
        return bool(convert(kept) == older)
    except _UNREADABLE:
        return False


def _each(convert: Callable[[Object], Object]) -> Callable[[list[Object]], list[Object]]:
    return lambda metrics: [convert(metric) for metric in metrics]


def _read_behavior(parts: _Parts) -> Object | None:
    text = parts.annotations.get(BEHAVIOR_ANNOTATION)
    found = parts.take(BEHAVIOR_ANNOTATION)
    if found is None:
        return None
    if not isinstance(found, dict):
        parts.annotations[BEHAVIOR_ANNOTATION] = text
        return None
    behavior: Object = _with_keys(found, _lower_first)
    return behavior


def _written_behavior(behavior: Object | None) -> Any:
    """Return the behavior with capitalized keys, as older servers write and expect it."""
    return _with_keys(behavior, _upper_first) if behavior else None


def _with_keys(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        members = {change(name): _with_keys(member, change) for name, member in value.items()}
        return {name: member for name, member in members.items() if member is not None}
    if isinstance(value, list):
        return [_with_keys(item, change) for item in value]
    return value


def _lower_first(name: str) -> str:
    return name[:1].lower() + name[1:]


def _upper_first(name: str) -> str:
    return name[:1].upper() + name[1:]


def _is_shallow(value: Any, depth_left: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return depth_left > 0 and all(_is_shallow(each, depth_left - 1) for each in value)


def _put(obj: Object, name: str, value: Any) -> None:
    if value is not None and value != []:
        obj[name] = value


CONVERTER: Final = Converter(
    "HorizontalPodAutoscaler.autoscaling",
    hub="autoscaling/v2",
    spokes={
        "autoscaling/v2beta2": SAME_SHAPE,
        "autoscaling/v1": Spoke(_v1_to_v2, _v2_to_v1),
        "autoscaling/v2beta1": Spoke(_v2beta1_to_v2, _v2_to_v2beta1),
    },
)
