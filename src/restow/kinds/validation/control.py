"""Rules of the kinds that steer a server, and of network, storage and scheduling.

Not here: what needs a compiled schema or expression, which is where those are compiled; and the
requests to migrate what is stored (`migrations`).
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery import field_errors as errors
from restow.kinds.validation.fields import (
    Causes,
    Object,
    keep,
    listed,
    part,
    require,
    require_one_of,
)

_PRIORITY_MAX: Final = 1_000_000_000


def validate_lease(new: Object, _old: Object | None) -> Causes:
    causes: Causes = []
    spec = part(new, "spec")
    seconds = spec.get("leaseDurationSeconds")
    if isinstance(seconds, int) and seconds <= 0:
        why = "must be greater than 0"
        causes.append(errors.invalid("spec.leaseDurationSeconds", seconds, why))
    transitions = spec.get("leaseTransitions")
    if isinstance(transitions, int) and transitions < 0:
        why = "must be greater than or equal to 0"
        causes.append(errors.invalid("spec.leaseTransitions", transitions, why))
    # An empty holder is how a client gives its lease back.
    return causes


def validate_priority_class(new: Object, old: Object | None) -> Causes:
    causes: Causes = []
    value = new.get("value") or 0
    is_system = (part(new, "metadata").get("name") or "").startswith("system-")
    if value > _PRIORITY_MAX and not is_system:
        why = f"maximum allowed value of a user defined priority is {_PRIORITY_MAX}"
        causes.append(errors.forbidden("value", why))
    if old is not None and value != (old.get("value") or 0):
        causes.append(errors.forbidden("value", "may not be changed in an update."))
    return causes


def validate_storage_class(new: Object, old: Object | None) -> Causes:
    causes: Causes = []
    require(causes, new, field="", names=("provisioner",))
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if (new.get(name) or None) != (old.get(name) or None):
                causes.append(errors.forbidden(name, "updates to this field are forbidden."))
    return causes


def validate_runtime_class(new: Object, old: Object | None) -> Causes:
    causes: Causes = []
    require(causes, new, field="", names=("handler",))
    if old is not None:
        keep(causes, new, old, field="", names=("handler",))
    return causes


def validate_ingress(new: Object, _old: Object | None) -> Causes:
    causes: Causes = []
    spec = part(new, "spec")
    if not spec.get("rules") and not spec.get("defaultBackend"):
        why = "either `defaultBackend` or `rules` must be specified"
        causes.append(errors.invalid("spec", spec, why))
    for field, rule in listed(spec, "rules", "spec.rules"):
        for place, path in listed(part(rule, "http"), "paths", f"{field}.http.paths"):
            if not path.get("pathType"):
                causes.append(errors.required(f"{place}.pathType", "pathType must be specified"))
    return causes


def validate_endpoint_slice(new: Object, old: Object | None) -> Causes:
    causes: Causes = []
    require(causes, new, field="", names=("addressType",))
    require_one_of(causes, new, field="", name="addressType", values=("FQDN", "IPv4", "IPv6"))
    for field, endpoint in listed(new, "endpoints", "endpoints"):
        if not endpoint.get("addresses"):
            why = "must contain at least 1 address"
            causes.append(errors.required(f"{field}.addresses", why))
    if old is not None:
        keep(causes, new, old, field="", names=("addressType",))
    return causes
