"""Validation of APIServices.

As in Kubernetes, the certificates in a caBundle are not parsed: some clients store a placeholder
that another controller replaces. Not here: reachability of the service.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from restow.apimachinery import field_errors as errors
from restow.apimachinery.name_formats import dns_1035_label_problem, subdomain_problem
from restow.kinds.validation.fields import Causes, Object, listed, part, port_problem

GROUP_PRIORITY_MAX: Final = 20_000
VERSION_PRIORITY_MAX: Final = 1_000
_STATUSES: Final = ("True", "False", "Unknown")


def validate_api_service(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    _check_names(causes, part(new, "metadata").get("name"), spec)
    _check_priority(causes, spec, name="groupPriorityMinimum", value_max=GROUP_PRIORITY_MAX)
    _check_priority(causes, spec, name="versionPriority", value_max=VERSION_PRIORITY_MAX)
    if isinstance(spec.get("service"), dict):
        _check_service(causes, spec)
    else:
        _check_local(causes, spec)
    for field, condition in listed(part(new, "status"), "conditions", "status.conditions"):
        found = condition.get("status", "")
        if found not in _STATUSES:
            causes.not_supported(f"{field}.status", found, _STATUSES)


def _check_names(causes: Causes, name: Any, spec: Object) -> None:
    group, version = spec.get("group") or "", spec.get("version") or ""
    wanted = f"{version}.{group}"
    if name != wanted:
        why = f'must be `spec.version+"."+spec.group`: {errors.shown(wanted)}'
        causes.invalid("metadata.name", name, why)
    if not group and version != "v1":
        why = "only v1 may have an empty group and it better be legacy kube"
        causes.required("spec.group", why)
    if group and (problem := subdomain_problem(group)):
        causes.invalid("spec.group", group, problem)
    if problem := dns_1035_label_problem(version):
        causes.invalid("spec.version", version, problem)


def _check_priority(causes: Causes, spec: Object, *, name: str, value_max: int) -> None:
    value = spec.get(name) or 0
    if not 0 < value <= value_max:
        causes.invalid(f"spec.{name}", value, f"must be positive and less than {value_max}")


def _check_local(causes: Causes, spec: Object) -> None:
    """Reject TLS settings: a local APIService makes no connection."""
    if spec.get("caBundle"):
        shown = f"{_bundle_size(spec['caBundle'])} bytes"
        causes.invalid("spec.caBundle", shown, "local APIServices may not have a caBundle")
    if spec.get("insecureSkipTLSVerify"):
        why = "local APIServices may not have insecureSkipTLSVerify"
        causes.invalid("spec.insecureSkipTLSVerify", value=True, why=why)


def _check_service(causes: Causes, spec: Object) -> None:
    service = part(spec, "service")
    for name in ("namespace", "name"):
        if not service.get(name):
            causes.required(f"spec.service.{name}")
    port = service.get("port") or 0
    if port_problem(port, "") is not None:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        causes.invalid("spec.service.port", port, why)
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        why = "may not be true if caBundle is present"
        causes.invalid("spec.insecureSkipTLSVerify", value=True, why=why)


def _bundle_size(bundle: str) -> int:
    try:
        return len(base64.b64decode(bundle))
    except (binascii.Error, ValueError):
        return 0
