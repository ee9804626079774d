"""Resource quotas: hard limits, used amounts, scopes, and the messages of violations.

A quota limits named resources in its namespace. Scopes restrict it to some pods, or to volume
claims by their attributes class; other objects have no scopes.

Pure. Not here: usage of objects (`quota_usage`), charging quotas
(`restow.admission.resource_quota`), and recalculation (`restow.controllers.quotas`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from restow.apimachinery import quantity
from restow.apimachinery.pod_resources import qos_class
from restow.apimachinery.quota_usage import (
    Number,
    Object,
    Usage,
    growth,
    is_varied,
    may_grow,
    names_of,
    resource_of,
    text,
    unsaid,
    usage_of,
)
from restow.apimachinery.quota_usage import part as _part

__all__ = [
    "PLURAL",
    "Number",
    "Object",
    "Quota",
    "Usage",
    "growth",
    "is_varied",
    "may_grow",
    "names_of",
    "read_quota",
    "resource_of",
    "text",
    "usage_of",
    "with_used",
]

PLURAL: Final = "resourcequotas"


class Quota(NamedTuple):
    """The hard limits and used amounts of a quota, for the resources that are supported."""

    name: str
    hard: Mapping[str, Number]
    """From the status: a quota is enforced once the controller has calculated it."""
    used: Mapping[str, Number]
    scopes: tuple[Object, ...] = ()

    def wanted(self, usage: Usage) -> dict[str, Number]:
        """Return the part of a usage that the quota limits."""
        return {name: more for name, more in usage.items() if more > 0 and name in self.hard}

    def problem(self, wanted: Usage) -> str:
        """Return why the usage may not be added; empty if it may."""
        if unknown := wanted.keys() - self.used.keys():
            return f"status unknown for quota: {self.name}, resources: {','.join(sorted(unknown))}"
        exceeded = sorted(
            name for name, more in wanted.items() if self.used[name] + more > self.hard[name]
        )
        if not exceeded:
            return ""
        requested, used, limited = (
            ",".join(f"{name}={text(name, values[name])}" for name in exceeded)
            for values in (wanted, self.used, self.hard)
        )
        return (
            f"exceeded quota: {self.name}, requested: {requested}, used: {used}, limited: {limited}"
        )

    def charged(self, wanted: Usage) -> Quota:
        more = {name: self.used[name] + added for name, added in wanted.items()}
        return self._replace(used={**self.used, **more})

    def is_about(self, group: str, plural: str, obj: Object) -> bool:
        """Report whether the quota's scopes select an object."""
        if not self.scopes:
            return True
        if (group, plural) == ("", "pods"):
            return all(_is_in_scope(each, obj) for each in self.scopes)
        if (group, plural) == ("", "persistentvolumeclaims"):
            return all(_is_claim_in_scope(each, obj) for each in self.scopes)
        return False

    def unmet(self, group: str, plural: str, obj: Object) -> str:
        """Return which required requests or limits an object lacks; empty if none."""
        if (group, plural) != ("", "pods"):
            return ""
        why = unsaid(obj, frozenset(self.hard))
        return f"failed quota: {self.name}: {why}" if why else ""


def read_quota(obj: Object) -> Quota:
    """Parse a ResourceQuota object, without unsupported resources."""
    spec, status = _part(obj, "spec"), _part(obj, "status")
    scopes = [{"scopeName": each, "operator": "Exists"} for each in spec.get("scopes") or ()]
    scopes += _part(spec, "scopeSelector").get("matchExpressions") or ()
    return Quota(
        name=_part(obj, "metadata").get("name") or "",
        hard=_numbers(_part(status, "hard")),
        used=_numbers(_part(status, "used")),
        scopes=tuple(scopes),
    )


def with_used(obj: Object, used: Usage) -> Object:
    """Return a ResourceQuota object with these used amounts; unsupported ones stay."""
    status = _part(obj, "status")
    texts = {name: text(name, value) for name, value in used.items()}
    return {**obj, "status": {**status, "used": {**_part(status, "used"), **texts}}}


def _numbers(values: Object) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for name, value in values.items():
        if resource_of(name) is not None:
            try:
                found[name] = quantity.parse(str(value))
            except ValueError:
                continue  # validated when it was written; an invalid quantity limits nothing
    return found


def _is_in_scope(requirement: Object, pod: Object) -> bool:
    spec = _part(pod, "spec")
    match requirement.get("scopeName"):
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "PriorityClass":
            return _is_selected(requirement, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return any(_is_cross_namespace(each) for each in _affinity_terms(spec))
        case _:
            return False


def _is_claim_in_scope(requirement: Object, claim: Object) -> bool:
    if requirement.get("scopeName") != "VolumeAttributesClass":
        return False
    status = _part(claim, "status")
    named = {
        _part(claim, "spec").get("volumeAttributesClassName") or "",
        status.get("currentVolumeAttributesClassName") or "",
        _part(status, "modifyVolumeStatus").get("targetVolumeAttributesClassName") or "",
    }
    return any(_is_selected(requirement, each) for each in named - {""} or {""})


def _is_best_effort(pod: Object) -> bool:
    """Report whether a pod is BestEffort; the class recorded in its status wins."""
    known = _part(pod, "status").get("qosClass") or qos_class(_part(pod, "spec"))
    return bool(known == "BestEffort")


def _affinity_terms(spec: Object) -> Iterator[Object]:
    affinity = _part(spec, "affinity")
    for name in ("podAffinity", "podAntiAffinity"):
        terms = _part(affinity, name)
        yield from terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield _part(each, "podAffinityTerm")


def _is_cross_namespace(term: Object) -> bool:
    """Report whether an affinity term selects pods of other namespaces."""
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _is_selected(requirement: Object, value: str) -> bool:
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "Exists":
            return bool(value)
        case "DoesNotExist":
            return not value
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case _:
            return False
