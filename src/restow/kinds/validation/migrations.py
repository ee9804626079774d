"""Validation of StorageVersionMigrations, of both groups.

`storagemigration.k8s.io` has the rules and messages of kube-apiserver. `migration.k8s.io` is a
custom resource with hardly any rules elsewhere: objects of its known clients are valid here as
well, and lists and texts have limits.

Not here: processing of migrations (controllers).
"""

from __future__ import annotations

import re
from typing import Final

from restow.apimachinery.name_formats import (
    dns_1035_label_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.kinds.validation.fields import (
    Causes,
    Object,
    check_length,
    keep,
    listed,
    part,
    require,
    require_not_negative,
    require_one_of,
)

_RESOURCE_VERSION: Final = re.compile(r"[1-9][0-9]*")
_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_CONDITION_STATUS: Final = ("True", "False", "Unknown")
REASON_LENGTH_MAX: Final = 1024
MESSAGE_LENGTH_MAX: Final = 32768

CONDITIONS_MAX: Final = 64
ERROR_LENGTH_MAX: Final = 256 * 1024
"""Other migrators write the errors of a whole page into one message."""
TOKEN_LENGTH_MAX: Final = 64 * 1024
FAILED_OBJECTS_MAX: Final = 100
FAILED_TEXT_LENGTH_MAX: Final = 1024
_COUNTS: Final = ("pass", "scanned", "rewritten", "unchanged", "failed", "remaining", "secondsLeft")


def validate_migration(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate a migration of `storagemigration.k8s.io`, whose spec is immutable."""
    _check_resource(causes, part(new, "spec", "resource"))
    status = part(new, "status")
    version = status.get("resourceVersion")
    if version and not _RESOURCE_VERSION.fullmatch(version):
        why = f"resource version is not well formed: {version[:512]}"
        causes.invalid("status.resourceVersion", version, why)
    _check_conditions(causes, status)
    if old is not None:
        keep(causes, new, old, field="", names=("spec",))
        before = part(old, "status")
        if before.get("resourceVersion"):
            keep(causes, status, before, field="status", names=("resourceVersion",))
        _check_final_conditions(causes, status, before)


def validate_old_migration(causes: Causes, new: Object, old: Object | None) -> None:
    """Validate one of `migration.k8s.io`: the resource is immutable, the token may change."""
    spec = part(new, "spec")
    resource = part(spec, "resource")
    if old is None:
        _check_resource(causes, resource)
        _check_label(causes, "spec.resource.version", resource.get("version") or "")
    elif resource != part(old, "spec", "resource"):
        causes.immutable("spec.resource", resource)
    check_length(causes, spec, field="spec", names=("continueToken",), length_max=TOKEN_LENGTH_MAX)
    status = part(new, "status")
    if status != part(old, "status"):
        _check_old_conditions(causes, status)
        require_not_negative(
            causes, part(status, "progress"), field="status.progress", names=_COUNTS
        )
        _check_rate(causes, part(status, "progress").get("objectsPerSecond"))
        _check_failed_objects(causes, status)


def _check_resource(causes: Causes, resource: Object) -> None:
    name, group = resource.get("resource") or "", resource.get("group") or ""
    if not name:
        causes.required("spec.resource.resource", "resource is required to be set")
    _check_label(causes, "spec.resource.resource", name)
    problem = subdomain_problem(group) if group else None
    if problem is not None:
        causes.invalid("spec.resource.group", group, problem)


def _check_label(causes: Causes, field: str, text: str) -> None:
    problem = dns_1035_label_problem(text) if text else None
    if problem is not None:
        causes.invalid(field, text, problem)


# Conditions of `storagemigration.k8s.io`.


def _check_conditions(causes: Causes, status: Object) -> None:
    seen: set[str] = set()
    for field, condition in listed(status, "conditions", "status.conditions"):
        require(causes, condition, field=field, names=("type", "reason", "lastTransitionTime"))
        if condition.get("status") not in _CONDITION_STATUS:
            given = condition.get("status") or ""
            causes.not_supported(f"{field}.status", given, _CONDITION_STATUS)
        kind = condition.get("type") or ""
        problem = qualified_name_problem(kind) if kind else None
        if problem is not None:
            causes.invalid(f"{field}.type", kind, problem)
        causes.once(f"{field}.type", kind, seen)
        require_not_negative(causes, condition, field=field, names=("observedGeneration",))
        check_length(
            causes, condition, field=field, names=("message",), length_max=MESSAGE_LENGTH_MAX
        )
        _check_reason(causes, f"{field}.reason", condition.get("reason") or "")


def _check_reason(causes: Causes, field: str, reason: str) -> None:
    if len(reason) > REASON_LENGTH_MAX:
        causes.too_long(field, length_max=REASON_LENGTH_MAX)
    elif reason and not _CONDITION_REASON.fullmatch(reason):
        why = (
            "a condition reason must start with alphabetic character, optionally followed by a "
            "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_'"
        )
        causes.invalid(field, reason, why)


def _check_final_conditions(causes: Causes, status: Object, before: Object) -> None:
    is_true, was_true = _true_conditions(status), _true_conditions(before)
    conditions = status.get("conditions") or []
    if {"Succeeded", "Failed"} <= is_true:
        why = "Both success and failed conditions cannot be true at the same time"
        causes.invalid("status.conditions", conditions, why)
    for kind, word in (("Succeeded", "Success"), ("Failed", "Failed")):
        if kind in was_true and kind not in is_true:
            why = f"{word} condition cannot be set to false once it is true"
            causes.invalid("status.conditions", conditions, why)


def _true_conditions(status: Object) -> set[str]:
    return {
        condition.get("type") or ""
        for _, condition in listed(status, "conditions", "")
        if condition.get("status") == "True"
    }


# The status of `migration.k8s.io`.


def _check_old_conditions(causes: Causes, status: Object) -> None:
    """Validate conditions of any type, not only the three that migrators write."""
    _check_count(causes, status, "conditions", CONDITIONS_MAX)
    seen: set[str] = set()
    for field, condition in listed(status, "conditions", "status.conditions"):
        require(causes, condition, field=field, names=("type", "status"))
        require_one_of(causes, condition, field=field, name="status", values=_CONDITION_STATUS)
        kind = condition.get("type") or ""
        causes.once(f"{field}.type", kind, seen)
        check_length(
            causes, condition, field=field, names=("type", "reason"), length_max=REASON_LENGTH_MAX
        )
        check_length(
            causes, condition, field=field, names=("message",), length_max=ERROR_LENGTH_MAX
        )


def _check_rate(causes: Causes, rate: object) -> None:
    if isinstance(rate, int | float) and rate < 0:
        why = "must be greater than or equal to 0"
        causes.invalid("status.progress.objectsPerSecond", rate, why)


def _check_failed_objects(causes: Causes, status: Object) -> None:
    _check_count(causes, status, "failedObjects", FAILED_OBJECTS_MAX)
    for field, failed in listed(status, "failedObjects", "status.failedObjects"):
        require(causes, failed, field=field, names=("name",))
        check_length(
            causes,
            failed,
            field=field,
            names=("namespace", "name", "reason", "message"),
            length_max=FAILED_TEXT_LENGTH_MAX,
        )


def _check_count(causes: Causes, status: Object, name: str, count_max: int) -> None:
    count = len(status.get(name) or ())
    if count > count_max:
        causes.too_many(f"status.{name}", count=count, count_max=count_max)
