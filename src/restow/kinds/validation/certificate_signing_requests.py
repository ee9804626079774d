"""Validation of CertificateSigningRequests: spec, conditions, and certificate.

Stored values are not validated again: only the fields that a write changes.

Not here: who may approve (`restow.admission.certificate_signing`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.certificate_signing_requests import (
    check_certificates,
    decoded,
    parse_request,
)
from restow.kinds.validation.fields import Causes, Object, listed, part, require

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"

_CONDITIONS: Final = "status.conditions"
_CERTIFICATE: Final = "status.certificate"
_EXCLUSIVE: Final = "Approved and Denied conditions are mutually exclusive"


def validate_signing_request(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    require(causes, spec, field="spec", names=("request", "signerName", "usages"))
    if old is None and spec.get("request"):
        try:
            parse_request(decoded(spec["request"]))
        except ValueError as error:
            causes.invalid("spec.request", spec["request"], str(error))
    status, before = part(new, "status"), part(old, "status")
    if (status.get("conditions") or None) != (before.get("conditions") or None):
        _condition_problems(causes, status)
    certificate = status.get("certificate")
    if certificate and certificate != before.get("certificate"):
        try:
            check_certificates(decoded(certificate))
        except ValueError as error:
            causes.invalid(_CERTIFICATE, "<certificate data>", str(error))


def signing_change_problems(causes: Causes, new: Object, old: Object, *, subresource: str) -> None:
    """Check changes that are not allowed through this subresource, or not at all."""
    for kind in (APPROVED, DENIED, FAILED):
        now, before = _of_type(new, kind), _of_type(old, kind)
        if len(now) < len(before):
            why = f'updates may not remove a condition of type "{kind}"'
        elif subresource == "approval" or kind == FAILED or now == before:
            continue
        elif len(now) > len(before):
            why = f'updates may not add a condition of type "{kind}"'
        else:
            why = f'updates may not modify a condition of type "{kind}"'
        causes.forbidden(_CONDITIONS, why)
    certificate = part(new, "status").get("certificate") or None
    before_certificate = part(old, "status").get("certificate") or None
    if certificate != before_certificate:
        if subresource != "status":
            causes.forbidden(_CERTIFICATE, "updates may not set certificate content")
        elif before_certificate is not None:
            causes.forbidden(_CERTIFICATE, "updates may not modify existing certificate content")


def _condition_problems(causes: Causes, status: Object) -> None:
    seen: set[str] = set()
    for field, condition in listed(status, "conditions", _CONDITIONS):
        kind, holds = condition.get("type") or "", condition.get("status") or ""
        if not kind:
            causes.required(f"{field}.type")
        allowed = ("True",) if kind in (APPROVED, DENIED, FAILED) else ("False", "True", "Unknown")
        if not holds:
            causes.required(f"{field}.status")
        elif holds not in allowed:
            causes.not_supported(f"{field}.status", holds, allowed)
        other = {APPROVED: DENIED, DENIED: APPROVED}.get(kind)
        if other in seen:
            causes.invalid(_CONDITIONS, kind, _EXCLUSIVE)
        causes.once(f"{field}.type", kind, seen)


def _of_type(obj: Object, kind: str) -> list[Object]:
    conditions = listed(part(obj, "status"), "conditions", _CONDITIONS)
    return [each for _, each in conditions if each.get("type") == kind]
