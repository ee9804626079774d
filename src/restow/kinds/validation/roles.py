"""Validation of roles and bindings.

Not here: escalation checks (`restow.admission.escalation`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.name_formats import path_segment_problem, subdomain_problem
from restow.kinds.validation.fields import Causes, Object, listed, part, require
from restow.kinds.validation.match_rules import check_selector

_RBAC: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")
_SELECTORS: Final = "aggregationRule.clusterRoleSelectors"


def validate_role(causes: Causes, new: Object, _old: Object | None) -> None:
    in_namespace = bool(part(new, "metadata").get("namespace"))
    for field, rule in listed(new, "rules", "rules"):
        _check_rule(causes, rule, field=field, in_namespace=in_namespace)


def validate_cluster_role(causes: Causes, new: Object, old: Object | None) -> None:
    validate_role(causes, new, old)
    rule = new.get("aggregationRule")
    if isinstance(rule, dict):
        if not rule.get("clusterRoleSelectors"):
            why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            causes.required(_SELECTORS, why)
        for field, selector in listed(rule, "clusterRoleSelectors", _SELECTORS):
            check_selector(causes, selector, field)


def validate_role_binding(causes: Causes, new: Object, old: Object | None) -> None:
    role = part(new, "roleRef")
    in_namespace = bool(part(new, "metadata").get("namespace"))
    if role.get("apiGroup") != _RBAC:
        causes.not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (_RBAC,))
    kinds = ("Role", "ClusterRole") if in_namespace else ("ClusterRole",)
    if role.get("kind") not in kinds:
        causes.not_supported("roleRef.kind", role.get("kind", ""), kinds)
    require(causes, role, field="roleRef", names=("name",))
    name = role.get("name") or ""
    if problem := path_segment_problem(name):
        causes.invalid("roleRef.name", name, problem)
    for field, subject in listed(new, "subjects", "subjects"):
        _check_subject(causes, subject, field=field, in_namespace=in_namespace)
    if old is not None and role != part(old, "roleRef"):
        # kube-apiserver shows the Go names of the fields here.
        shown = {each: role.get(each[:1].lower() + each[1:], "") for each in ("Kind", "Name")}
        shown = {"APIGroup": role.get("apiGroup", ""), **shown}
        causes.invalid("roleRef", shown, "cannot change roleRef")


def _check_rule(causes: Causes, rule: Object, *, field: str, in_namespace: bool) -> None:
    if not rule.get("verbs"):
        causes.required(f"{field}.verbs", "verbs must contain at least one value")
    paths = rule.get("nonResourceURLs")
    if paths:
        if in_namespace:
            why = "namespaced rules cannot apply to non-resource URLs"
            causes.invalid(f"{field}.nonResourceURLs", paths, why)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            causes.invalid(f"{field}.nonResourceURLs", paths, why)
        return
    for name, noun in (("apiGroups", "api group"), ("resources", "resource")):
        if not rule.get(name):
            causes.required(f"{field}.{name}", f"resource rules must supply at least one {noun}")


def _check_subject(causes: Causes, subject: Object, *, field: str, in_namespace: bool) -> None:
    require(causes, subject, field=field, names=("name",))
    group = subject.get("apiGroup", "")
    if subject.get("kind") not in _SUBJECTS:
        causes.not_supported(f"{field}.kind", subject.get("kind", ""), _SUBJECTS)
    elif subject["kind"] == "ServiceAccount":
        name = subject.get("name") or ""
        if name and (problem := subdomain_problem(name)):
            causes.invalid(f"{field}.name", name, problem)
        if group:
            causes.not_supported(f"{field}.apiGroup", group, ("",))
        if not in_namespace:
            require(causes, subject, field=field, names=("namespace",))
    elif group != _RBAC:
        causes.not_supported(f"{field}.apiGroup", group, (_RBAC,))
