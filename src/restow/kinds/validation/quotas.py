"""Validation of ResourceQuota: resource names, quantities, and scopes.

Not here: usage (`restow.apimachinery.quota_usage`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from restow.apimachinery import quantity
from restow.apimachinery.name_formats import qualified_name_problem
from restow.kinds.validation.fields import Causes, Object, part

_WHOLE: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_COMPUTE: Final = frozenset(
    {"cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"}
)
_STANDARD: Final = (
    _WHOLE
    | _COMPUTE
    | {
        "ephemeral-storage",
        "limits.ephemeral-storage",
        "requests.ephemeral-storage",
        "requests.storage",
    }
)
_PREFIXES: Final = ("hugepages-", "requests.hugepages-")
_OF_PODS: Final = frozenset({"pods"}) | _COMPUTE
# The resources that each scope may be combined with.
_SCOPES: Final = {
    "BestEffort": frozenset({"pods"}),
    "CrossNamespacePodAffinity": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "Terminating": _OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_WITH_VALUES: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})
_OPPOSITES: Final = (
    frozenset({"BestEffort", "NotBestEffort"}),
    frozenset({"NotTerminating", "Terminating"}),
)
_EXISTS_ONLY: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
    " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
    " ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_IMMUTABLE: Final = "field is immutable"


def validate_quota(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    _check_values(causes, part(spec, "hard"), "spec.hard")
    for name in ("hard", "used"):
        _check_values(causes, part(new, "status", name), f"status.{name}")
    hard, scopes = part(spec, "hard"), spec.get("scopes") or []
    for scope in dict.fromkeys(scopes):  # each once
        _check_scope(causes, scope, hard, field="spec.scopes", own="spec.scopes", shown=scopes)
    _check_opposites(causes, scopes, "spec.scopes", scopes)
    _check_selector(causes, spec)
    if old is not None and set(scopes) != set(part(old, "spec").get("scopes") or []):
        causes.invalid("spec.scopes", scopes, _IMMUTABLE)


def _check_values(causes: Causes, values: Object, field: str) -> None:
    for name, value in values.items():
        place = f"{field}[{name}]"
        if problem := qualified_name_problem(name):
            causes.invalid(place, name, problem)
        elif "/" not in name and name not in _STANDARD and not name.startswith(_PREFIXES):
            causes.invalid(place, name, "must be a standard resource for quota")
        try:
            number = quantity.parse(str(value))
        except ValueError:
            continue  # types were checked before
        if number < 0:
            causes.invalid(place, value, "must be greater than or equal to 0")
        if name in _WHOLE and number.denominator != 1:
            causes.invalid(place, value, "must be an integer")


def _check_scope(
    causes: Causes, scope: str, hard: Object, *, field: str, own: str, shown: Any
) -> None:
    """`own` is the field path of the scope, `field` that of its parent."""
    if scope not in _SCOPES:
        causes.invalid(own, shown if own == field else scope, "unsupported scope")
        return
    for name in sorted(hard):
        is_standard = name in _STANDARD or name.startswith(_PREFIXES)
        if is_standard and name not in _SCOPES[scope]:
            causes.invalid(field, shown, "unsupported scope applied to resource")


def _check_opposites(causes: Causes, scopes: Iterable[str], field: str, shown: Any) -> None:
    for pair in _OPPOSITES:
        if pair <= set(scopes):
            causes.invalid(field, shown, "conflicting scopes")


def _check_selector(causes: Causes, spec: Object) -> None:
    selector, field = part(spec, "scopeSelector"), "spec.scopeSelector.matchExpressions"
    requirements = selector.get("matchExpressions") or []
    scopes = [each.get("scopeName") or "" for each in requirements]
    hard, own = part(spec, "hard"), f"{field}.scopeName"
    seen: set[str] = set()
    for scope, each in zip(scopes, requirements, strict=True):
        operator, values = each.get("operator") or "", each.get("values") or []
        if scope not in seen:
            _check_scope(causes, scope, hard, field=field, own=own, shown=selector)
        seen.add(scope)
        if scope in _SCOPES and scope not in _WITH_VALUES and operator != "Exists":
            causes.invalid(f"{field}.operator", operator, _EXISTS_ONLY)
        if operator in ("In", "NotIn") and not values:
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            causes.required(f"{field}.values", why)
        elif operator in ("Exists", "DoesNotExist") and values:
            why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            causes.invalid(f"{field}.values", values, why)
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            causes.invalid(f"{field}.operator", operator, "not a valid selector operator")
    _check_opposites(causes, scopes, field, spec.get("scopes") or [])
