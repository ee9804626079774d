"""Validation of pods and workloads: apps, batch, policy.

Only rules that matter to a client without nodes: required and immutable fields.

Not here: rules that need other objects, and those of rarely used fields of a pod.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.metadata_rules import label_problems
from restow.kinds.validation.fields import (
    Causes,
    Object,
    is_empty_selector,
    keep,
    listed,
    part,
    require_not_negative,
    require_one_of,
    selects,
)
from restow.kinds.validation.match_rules import check_selector
from restow.kinds.validation.pods import RESTART_POLICIES, check_pod_spec
from restow.kinds.validation.schedules import schedule_problem, zone_problem

_CONTAINERS: Final = ("initContainers", "containers")
# Mutable fields of the spec of an existing pod.
_POD_MUTABLE: Final = (
    "activeDeadlineSeconds",
    "schedulingGates",
    "tolerations",
)
# Fields that are also mutable while the pod has scheduling gates.
_GATED_MUTABLE: Final = (*_POD_MUTABLE, "nodeSelector")
_POD_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_STATEFUL_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_CRON_JOB_NAME_MAX: Final = 52
_WHOLE: Final = 100


def validate_pod(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    check_pod_spec(causes, spec, field="spec", restart=RESTART_POLICIES)
    if old is None and spec.get("ephemeralContainers"):
        causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if old is not None:
        before = part(old, "spec")
        mutable = _GATED_MUTABLE if before.get("schedulingGates") else _POD_MUTABLE
        if _fixed_pod(spec, mutable) != _fixed_pod(before, mutable):
            causes.forbidden("spec", _POD_RULE)
        _check_pod_change(causes, spec, before)


def _check_pod_change(causes: Causes, spec: Object, before: Object) -> None:
    """Allow only new tolerations and only removal of scheduling gates. The node selector may be
    narrowed while there are gates; the deadline may be shortened at any time."""
    kept = [_without_seconds(each) for _, each in listed(spec, "tolerations", "")]
    if any(_without_seconds(each) not in kept for _, each in listed(before, "tolerations", "")):
        why = "existing toleration can not be modified except its tolerationSeconds"
        causes.forbidden("spec.tolerations", why)
    gates = {each.get("name") for _, each in listed(before, "schedulingGates", "")}
    for field, gate in listed(spec, "schedulingGates", "spec.schedulingGates"):
        if gate.get("name") not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            causes.forbidden(f"{field}.name", why)
    selector = part(spec, "nodeSelector")
    if gates and not selector.items() >= part(before, "nodeSelector").items():
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.invalid("spec.nodeSelector", selector, why)
    seconds, was = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if was is not None and (seconds is None or seconds > was):
        why = "must be less than or equal to previous value"
        if seconds is None:
            why = "must not update from a positive integer to nil value"
        causes.invalid("spec.activeDeadlineSeconds", seconds, why)


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _fixed_pod(spec: Object, mutable: tuple[str, ...]) -> Object:
    """The immutable part of a pod spec."""
    fixed = {name: value for name, value in spec.items() if name not in mutable}
    for name in _CONTAINERS:
        fixed[name] = [
            {key: value for key, value in container.items() if key != "image"}
            for _, container in listed(spec, name, name)
        ]
    return fixed


def validate_pod_template(causes: Causes, new: Object, _old: Object | None) -> None:
    check_pod_spec(
        causes, part(new, "template", "spec"), field="template.spec", restart=RESTART_POLICIES
    )


def _check_selected_template(causes: Causes, new: Object, *, kind: str) -> Object:
    """Validate what deployments, sets and the like have in common; return the spec."""
    spec = part(new, "spec")
    selector = part(spec, "selector")
    is_there = isinstance(spec.get("selector"), dict)
    # For daemon sets kube-apiserver reports a missing selector only as one that does not match.
    if not is_there and kind != "daemonset":
        causes.required("spec.selector")
    if is_there and is_empty_selector(selector):
        causes.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
    elif not is_there or not selects(selector, part(spec, "template", "metadata", "labels")):
        _refuse_labels(causes, spec)
    counted = ("replicas", "minReadySeconds", "revisionHistoryLimit")
    # For stateful sets kube-apiserver does not check revisionHistoryLimit.
    names = counted[:2] if kind == "statefulset" else counted
    require_not_negative(causes, spec, field="spec", names=names)
    claims = listed(spec, "volumeClaimTemplates", "")
    check_pod_spec(
        causes,
        part(spec, "template", "spec"),
        field="spec.template.spec",
        restart=("Always",),
        claims=tuple(part(claim, "metadata").get("name") or "" for _, claim in claims),
    )
    return spec


def _refuse_labels(causes: Causes, spec: Object) -> None:
    labels = part(spec, "template", "metadata").get("labels")
    why = "`selector` does not match template `labels`"
    causes.invalid("spec.template.metadata.labels", labels or None, why)


def validate_deployment(causes: Causes, new: Object, old: Object | None) -> None:
    spec = _check_selected_template(causes, new, kind="deployment")
    strategy = part(spec, "strategy")
    require_one_of(
        causes,
        strategy,
        field="spec.strategy",
        name="type",
        values=("Recreate", "RollingUpdate"),
    )
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        why = "may not be specified when strategy `type` is 'Recreate'"
        causes.forbidden("spec.strategy.rollingUpdate", why)
    _check_rolling_update(causes, part(strategy, "rollingUpdate"))
    deadline = spec.get("progressDeadlineSeconds")
    require_not_negative(causes, spec, field="spec", names=("progressDeadlineSeconds",))
    if isinstance(deadline, int) and deadline <= (spec.get("minReadySeconds") or 0):
        why = "must be greater than minReadySeconds"
        causes.invalid("spec.progressDeadlineSeconds", deadline, why)
    if old is not None:
        keep(causes, spec, part(old, "spec"), field="spec", names=("selector",))


def _check_rolling_update(causes: Causes, rolling: Object) -> None:
    field = "spec.strategy.rollingUpdate"
    for name in ("maxUnavailable", "maxSurge"):
        _check_amount(causes, rolling, field=field, name=name)
    absent, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if absent in (0, "0%") and surge in (0, "0%"):
        causes.invalid(f"{field}.maxUnavailable", absent, "may not be 0 when `maxSurge` is 0")


def _check_amount(causes: Causes, obj: Object, *, field: str, name: str) -> None:
    """Validate a number or a percentage."""
    require_not_negative(causes, obj, field=field, names=(name,))
    value = obj.get(name)
    if isinstance(value, str) and not _is_percentage(value):
        why = (
            "a valid percent string must be a numeric string followed by an ending '%'"
            " (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        causes.invalid(f"{field}.{name}", value, why)


def validate_replica_set(causes: Causes, new: Object, old: Object | None) -> None:
    # The messages are those of deployments in the reference too.
    spec = _check_selected_template(causes, new, kind="deployment")
    if old is not None:
        keep(causes, spec, part(old, "spec"), field="spec", names=("selector",))


def validate_daemon_set(causes: Causes, new: Object, old: Object | None) -> None:
    spec = _check_selected_template(causes, new, kind="daemonset")
    strategy, field = part(spec, "updateStrategy"), "spec.updateStrategy"
    kinds = ("RollingUpdate", "OnDelete")
    if strategy.get("type") not in kinds:
        causes.not_supported(field, strategy.get("type") or "", kinds)
    elif strategy["type"] == "RollingUpdate":
        _check_daemons(causes, part(strategy, "rollingUpdate"), f"{field}.rollingUpdate")
    if old is not None:
        keep(causes, spec, part(old, "spec"), field="spec", names=("selector",))


def _check_daemons(causes: Causes, rolling: Object, field: str) -> None:
    """Require exactly one of maxUnavailable and maxSurge."""
    for name in ("maxUnavailable", "maxSurge"):
        _check_amount(causes, rolling, field=field, name=name)
    absent, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    is_gone, is_more = absent not in (0, "0%", None), surge not in (0, "0%", None)
    if is_gone and is_more:
        causes.invalid(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif not is_gone and not is_more:
        causes.required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def validate_stateful_set(causes: Causes, new: Object, old: Object | None) -> None:
    spec = _check_selected_template(causes, new, kind="statefulset")
    management = spec.get("podManagementPolicy")
    if management is not None and management not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        causes.invalid("spec.podManagementPolicy", management, why)
    strategy = part(spec, "updateStrategy").get("type")
    if strategy is not None and strategy not in ("RollingUpdate", "OnDelete"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        causes.invalid("spec.updateStrategy", {"Type": strategy}, why)
    if old is None:
        return
    before = part(old, "spec")
    if any(
        spec.get(name) != before.get(name)
        for name in spec.keys() | before.keys()
        if name not in _STATEFUL_MUTABLE
    ):
        listed_names = ", ".join(f"'{name}'" for name in _STATEFUL_MUTABLE)
        why = f"updates to statefulset spec for fields other than {listed_names} are forbidden"
        causes.forbidden("spec", why)


def validate_replication_controller(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    selector = part(spec, "selector")
    labels = part(spec, "template", "metadata", "labels")
    require_not_negative(causes, spec, field="spec", names=("replicas", "minReadySeconds"))
    if not selector:
        causes.required("spec.selector")
    if spec.get("template") is None:
        causes.required("spec.template")
        return
    if selector and not selects({"matchLabels": selector}, labels):
        _refuse_labels(causes, spec)
    check_pod_spec(
        causes, part(spec, "template", "spec"), field="spec.template.spec", restart=("Always",)
    )


def _check_job_spec(causes: Causes, spec: Object, *, field: str) -> None:
    require_not_negative(
        causes,
        spec,
        field=field,
        names=(
            "parallelism",
            "completions",
            "backoffLimit",
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
        ),
    )
    require_one_of(
        causes, spec, field=field, name="completionMode", values=("NonIndexed", "Indexed")
    )
    pod = part(spec, "template", "spec")
    if pod.get("restartPolicy") in (None, "", "Always"):
        why = 'valid values: "OnFailure", "Never"'
        causes.required(f"{field}.template.spec.restartPolicy", why)
    check_pod_spec(causes, pod, field=f"{field}.template.spec", restart=RESTART_POLICIES)


def validate_job(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    _check_job_spec(causes, spec, field="spec")
    # Jobs that older releases stored have no selector, and stay valid.
    if old is None or part(old, "spec").get("selector") is not None:
        _check_job_selector(causes, new, is_new=old is None)
    if old is not None:
        before = part(old, "spec")
        # The template of a suspended job may still change.
        names = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
        if before.get("suspend") is not True:
            names.append("template")
        if before.get("completionMode") != "Indexed":
            names.append("completions")
        keep(causes, spec, before, field="spec", names=tuple(names))


def _check_job_selector(causes: Causes, new: Object, *, is_new: bool) -> None:
    """Require the generated selector, unless manualSelector is set: jobs must not share pods."""
    spec = part(new, "spec")
    selector = spec.get("selector")
    if selector is None:
        causes.required("spec.selector")
    elif is_new and spec.get("manualSelector") is not True:
        metadata = part(new, "metadata")
        own = {"controller-uid": metadata.get("uid"), "job-name": metadata.get("name")}
        made = own | {f"batch.kubernetes.io/{name}": value for name, value in own.items()}
        if not selects(selector, made):
            causes.invalid("spec.selector", selector, "`selector` not auto-generated")
    labels = part(spec, "template", "metadata", "labels")
    in_selector = Causes()
    check_selector(in_selector, selector or {}, "")
    if selector is None or not (selects(selector, labels) or in_selector):
        _refuse_labels(causes, spec)


def validate_cron_job(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    name = part(new, "metadata").get("name") or ""
    if old is None and len(name) > _CRON_JOB_NAME_MAX:
        # The names of its jobs get a suffix with the scheduled time.
        why = f"must be no more than {_CRON_JOB_NAME_MAX} characters"
        causes.invalid("metadata.name", name, why)
    schedule = spec.get("schedule")
    if not schedule:
        causes.required("spec.schedule")
    elif problem := schedule_problem(schedule):
        causes.invalid("spec.schedule", schedule, problem)
    zone = spec.get("timeZone")
    if zone is not None and (problem := zone_problem(zone)):
        causes.invalid("spec.timeZone", zone, problem)
    require_one_of(
        causes,
        spec,
        field="spec",
        name="concurrencyPolicy",
        values=("Allow", "Forbid", "Replace"),
    )
    require_not_negative(
        causes,
        spec,
        field="spec",
        names=(
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        ),
    )
    _check_job_spec(causes, part(spec, "jobTemplate", "spec"), field="spec.jobTemplate.spec")


def validate_budget(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        _check_amount(causes, spec, field="spec", name=name)
        value = spec.get(name)
        if isinstance(value, str) and _is_percentage(value) and _percent(value) > _WHOLE:
            causes.invalid(f"spec.{name}", value, f"must not be greater than {_WHOLE}%")
    causes += label_problems(part(spec, "selector", "matchLabels"), "spec.selector.matchLabels")


def _is_percentage(text: str) -> bool:
    digits = text.removesuffix("%")
    return digits != text and digits.isascii() and digits.isdigit()


def _percent(text: str) -> int:
    """Parse a percentage; a number with too many digits counts as more than 100."""
    digits = text.removesuffix("%").lstrip("0")
    return int(digits or "0") if len(digits) <= len(str(_WHOLE)) else _WHOLE + 1
