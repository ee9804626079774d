"""Defaults of workloads: apps, batch, autoscaling.

Some differ between versions, because a default of an old version could not be changed.

Not here: defaults of the pods in them (`pods`).
"""

from __future__ import annotations

from typing import Final

from restow.kinds.conversions.horizontal_pod_autoscaler import METRICS_ANNOTATION
from restow.kinds.defaults.fields import Object, child, given, items, own, put, put_all
from restow.kinds.defaults.pods import default_template

_HISTORY: Final = 10
_HISTORY_BEFORE: Final = 2
_PROGRESS_SECONDS: Final = 600
_CPU_PERCENT: Final = 80
_RETRIES: Final = 6
_RETRIES_PER_INDEX: Final = 2**31 - 1
_JOB_PREFIX: Final = "batch.kubernetes.io/"
_DIGITS_MAX: Final = 18
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def default_deployment(obj: Object, version: str) -> None:
    spec = child(obj, "spec")
    if version == "v1beta1":
        _select_own_labels(obj, spec)
    put_all(
        spec,
        {
            "replicas": 1,
            "revisionHistoryLimit": _HISTORY_BEFORE if version == "v1beta1" else _HISTORY,
            "progressDeadlineSeconds": _PROGRESS_SECONDS,
        },
    )
    strategy = child(spec, "strategy")
    put(strategy, "type", "RollingUpdate")
    if strategy.get("type") == "RollingUpdate":
        put_all(child(strategy, "rollingUpdate"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    default_template(spec)


def default_replica_set(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put(spec, "replicas", 1)
    default_template(spec)


def default_replication_controller(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    labels = _template_labels(spec)
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        _label_like_template(obj, labels)
    put(spec, "replicas", 1)
    if spec.get("template") is not None:
        default_template(spec)


def default_stateful_set(obj: Object, version: str) -> None:
    spec = child(obj, "spec")
    if version == "v1beta1":
        _select_own_labels(obj, spec)
    put_all(
        spec,
        {"podManagementPolicy": "OrderedReady", "replicas": 1, "revisionHistoryLimit": _HISTORY},
    )
    strategy = child(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "OnDelete" if version == "v1beta1" else "RollingUpdate"
        if version != "v1beta1":
            child(strategy, "rollingUpdate")
    rolling = given(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        put(rolling, "partition", 0)
    put_all(
        child(spec, "persistentVolumeClaimRetentionPolicy"),
        {"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    for claim in items(spec, "volumeClaimTemplates"):
        claim |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        put(child(claim, "spec"), "volumeMode", "Filesystem")
        put(child(claim, "status"), "phase", "Pending")
    default_template(spec)


def default_daemon_set(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put(spec, "revisionHistoryLimit", _HISTORY)
    strategy = child(spec, "updateStrategy")
    put(strategy, "type", "RollingUpdate")
    if strategy.get("type") == "RollingUpdate":
        put_all(child(strategy, "rollingUpdate"), {"maxUnavailable": 1, "maxSurge": 0})
    default_template(spec)


def begin_daemon_set(obj: Object) -> None:
    own(child(obj, "metadata"), "annotations")[_TEMPLATE_GENERATION] = "1"


def count_templates(new: Object, old: Object) -> None:
    """Count the changes of a daemon set's template in an annotation that old clients read."""
    metadata = child(new, "metadata")
    before = (given(given(old, "metadata") or {}, "annotations") or {}).get(_TEMPLATE_GENERATION)
    count = int(before) if isinstance(before, str) and _is_count(before) else 0
    if (given(new, "spec") or {}).get("template") != (given(old, "spec") or {}).get("template"):
        count += 1
    if count:
        annotations = given(metadata, "annotations") or {}
        metadata["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(count)}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def default_job(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    has_indexes = spec.get("backoffLimitPerIndex") is not None
    on_failure = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
    put_all(
        spec,
        {
            "parallelism": 1,
            "backoffLimit": _RETRIES_PER_INDEX if has_indexes else _RETRIES,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": on_failure,
        },
    )
    put(spec, "manualSelector", False)
    _default_failure_policy(spec)
    labels = _template_labels(spec)
    if labels:
        _label_like_template(obj, labels)
    default_template(spec)


def _default_failure_policy(spec: Object) -> None:
    for rule in items(given(spec, "podFailurePolicy") or {}, "rules"):
        for condition in items(rule, "onPodConditions"):
            put(condition, "status", "True")


def begin_job(obj: Object) -> None:
    """Select the pods of a job by its uid, unless its client has set a selector."""
    # A new job may be created from the parts of an old one, with another uid.
    spec, metadata = own(obj, "spec"), child(obj, "metadata")
    if spec.get("manualSelector") is True:
        return
    template = own(own(spec, "template"), "metadata")
    labels = own(template, "labels")
    # A job without labels has those of its pods.
    has_same_labels = (metadata.get("labels") or {}) == labels
    name, uid = metadata.get("name") or "", metadata.get("uid") or ""
    for prefix in ("", _JOB_PREFIX):
        labels.setdefault(f"{prefix}job-name", name)
        labels.setdefault(f"{prefix}controller-uid", uid)
    if has_same_labels:
        metadata["labels"] = dict(labels)
    selected = own(own(spec, "selector"), "matchLabels")
    selected.setdefault(f"{_JOB_PREFIX}controller-uid", uid)


def default_cron_job(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put_all(
        spec,
        {
            "concurrencyPolicy": "Allow",
            "suspend": False,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 1,
        },
    )
    # The job itself gets its defaults when it is created.
    job = child(child(spec, "jobTemplate"), "spec")
    _default_failure_policy(job)
    default_template(job)


def default_autoscaler(obj: Object, version: str) -> None:
    spec = child(obj, "spec")
    put(spec, "minReplicas", 1)
    if version == "v1":
        annotations = given(given(obj, "metadata") or {}, "annotations") or {}
        if METRICS_ANNOTATION not in annotations:
            put(spec, "targetCPUUtilizationPercentage", _CPU_PERCENT)
        return
    if not spec.get("metrics"):
        resource: Object = {"name": "cpu", "targetAverageUtilization": _CPU_PERCENT}
        if version != "v2beta1":
            target = {"type": "Utilization", "averageUtilization": _CPU_PERCENT}
            resource = {"name": "cpu", "target": target}
        spec["metrics"] = [{"type": "Resource", "resource": resource}]
    behavior = given(spec, "behavior")
    if behavior is not None:
        _default_behavior(behavior)


def _default_behavior(behavior: Object) -> None:
    pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    up = child(behavior, "scaleUp")
    put_all(up, {"stabilizationWindowSeconds": 0, "selectPolicy": "Max"})
    put(up, "policies", [pods, dict(percent)])
    down = child(behavior, "scaleDown")
    put(down, "selectPolicy", "Max")
    put(down, "policies", [percent])


def _template_labels(spec: Object) -> Object:
    template = given(spec, "template") or {}
    return given(given(template, "metadata") or {}, "labels") or {}


def _label_like_template(obj: Object, labels: Object) -> None:
    metadata = child(obj, "metadata")
    if not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _select_own_labels(obj: Object, spec: Object) -> None:
    """In `v1beta1`, the default selector is the labels of the template."""
    labels = _template_labels(spec)
    if labels:
        if spec.get("selector") is None:
            spec["selector"] = {"matchLabels": dict(labels)}
        _label_like_template(obj, labels)
