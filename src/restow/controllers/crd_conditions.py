"""Conditions of CRDs, with the reasons and messages of kube-apiserver. Pure.

Not here: which condition applies when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from restow.registry.custom.crds import ESTABLISHED, NAMES_ACCEPTED, TERMINATING

Condition = dict[str, Any]

APPROVAL_ANNOTATION: Final = "api-approved.kubernetes.io"
APPROVED: Final = "KubernetesAPIApprovalPolicyConformant"
_APPROVALS_AT: Final = "https://github.com/kubernetes/enhancements/pull/1111"
_PROTECTED: Final = ("k8s.io", "kubernetes.io")


def condition(kind: str, reason: str, message: str, *, holds: bool) -> Condition:
    """Return a condition without its lastTransitionTime."""
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "reason": reason, "message": message}


def names_accepted(reason: str, message: str, *, holds: bool) -> Condition:
    return condition(NAMES_ACCEPTED, reason, message, holds=holds)


NOT_ACCEPTED: Final = condition(
    ESTABLISHED, "NotAccepted", "not all names are accepted", holds=False
)
INSTALLING: Final = condition(
    ESTABLISHED, "Installing", "the initial names have been accepted", holds=False
)
IS_ESTABLISHED: Final = condition(
    ESTABLISHED, "InitialNamesAccepted", "the initial names have been accepted", holds=True
)
BAD_BUNDLE: Final = condition(
    ESTABLISHED, "InvalidCABundle", "The conversion webhook CABundle is invalid", holds=False
)
HOSTED_OTHERWISE: Final = condition(
    ESTABLISHED,
    "ServedByAggregatedServers",
    "aggregated servers serve a resource of this group and name, which has no definition",
    holds=False,
)

DELETION_PENDING: Final = condition(
    TERMINATING,
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    holds=True,
)
DELETION_IN_PROGRESS: Final = condition(
    TERMINATING,
    "InstanceDeletionInProgress",
    "CustomResource deletion is in progress",
    holds=True,
)
DELETION_UNCONFIRMED: Final = condition(
    TERMINATING,
    "InstanceDeletionCheck",
    "could not confirm zero CustomResources remaining: timed out waiting for the condition",
    holds=True,
)
DELETION_COMPLETED: Final = condition(
    TERMINATING, "InstanceDeletionCompleted", "removed all instances", holds=False
)
NEVER_ESTABLISHED: Final = condition(
    TERMINATING, "NeverEstablished", "resource was never established", holds=False
)
OVERLAPPING: Final = condition(
    TERMINATING,
    "OverlappingBuiltInResource",
    "instances overlap with built-in resources in storage",
    holds=False,
)


def not_listed(why: str) -> Condition:
    """The instances cannot be listed by this server."""
    return condition(
        TERMINATING, "InstanceDeletionFailed", f"could not list instances: {why}", holds=True
    )


def not_deleted(whys: Sequence[str]) -> Condition:
    """Some instances could not be deleted."""
    why = whys[0] if len(whys) == 1 else f"[{', '.join(whys)}]"
    return condition(
        TERMINATING, "InstanceDeletionFailed", f"could not issue all deletes: {why}", holds=True
    )


def is_protected(group: str) -> bool:
    """Whether the API group requires the approval annotation."""
    return any(group == each or group.endswith(f".{each}") for each in _PROTECTED)


def approval(annotations: Mapping[str, str]) -> Condition:
    """Return the condition about the approval of a CRD in a protected group."""
    text = annotations.get(APPROVAL_ANNOTATION) or ""
    about = f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}"'
    if not text:
        return condition(
            APPROVED, "MissingAnnotation", f"{about}, see {_APPROVALS_AT}", holds=False
        )
    if text.startswith("unapproved"):
        return condition(APPROVED, "UnapprovedAnnotation", f'not approved: "{text}"', holds=False)
    if _is_url(text):
        return condition(APPROVED, "ApprovedAnnotation", f"approved in {text}", holds=True)
    why = f'{about} with either a URL or a reason starting with "unapproved", see {_APPROVALS_AT}'
    return condition(APPROVED, "InvalidAnnotation", why, holds=False)


def set_conditions(
    old: Sequence[Condition], new: Iterable[Condition], *, now: str
) -> list[Condition]:
    """Return the conditions with some of them set, in their existing order.

    lastTransitionTime changes only with the status.
    """
    merged = {each.get("type"): each for each in old}
    for each in new:
        before = merged.get(each["type"]) or {}
        same = before.get("status") == each["status"] and before.get("lastTransitionTime")
        merged[each["type"]] = {**before, **each, "lastTransitionTime": same or now}
    return list(merged.values())


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) and text.isprintable()
