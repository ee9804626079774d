"""Validation of kinds that configure a server, and of network, storage and scheduling.

Not here: rules that need a compiled schema or expression, which are where those are compiled; and
migrations (`migrations`).
"""

from __future__ import annotations

from typing import Final

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


def validate_lease(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    seconds = spec.get("leaseDurationSeconds")
    if isinstance(seconds, int) and seconds <= 0:
        causes.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if isinstance(transitions, int) and transitions < 0:
        causes.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
    # An empty holder is valid: clients release a lease with it.


def validate_priority_class(causes: Causes, new: Object, old: Object | None) -> None:
    value = new.get("value") or 0
    is_system = (part(new, "metadata").get("name") or "").startswith("system-")
    if value > _PRIORITY_MAX and not is_system:
        why = f"maximum allowed value of a user defined priority is {_PRIORITY_MAX}"
        causes.forbidden("value", why)
    if old is not None and value != (old.get("value") or 0):
        causes.forbidden("value", "may not be changed in an update.")


def validate_storage_class(causes: Causes, new: Object, old: Object | None) -> None:
    require(causes, new, field="", names=("provisioner",))
    if old is not None:
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            if (new.get(name) or None) != (old.get(name) or None):
                causes.forbidden(name, "updates to this field are forbidden.")


def validate_runtime_class(causes: Causes, new: Object, old: Object | None) -> None:
    require(causes, new, field="", names=("handler",))
    if old is not None:
        keep(causes, new, old, field="", names=("handler",))


def validate_ingress(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    if not spec.get("rules") and not spec.get("defaultBackend"):
        causes.invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
    for field, rule in listed(spec, "rules", "spec.rules"):
        for place, path in listed(part(rule, "http"), "paths", f"{field}.http.paths"):
            if not path.get("pathType"):
                causes.required(f"{place}.pathType", "pathType must be specified")


def validate_endpoint_slice(causes: Causes, new: Object, old: Object | None) -> None:
    require(causes, new, field="", names=("addressType",))
    require_one_of(causes, new, field="", name="addressType", values=("FQDN", "IPv4", "IPv6"))
    for field, endpoint in listed(new, "endpoints", "endpoints"):
        if not endpoint.get("addresses"):
            causes.required(f"{field}.addresses", "must contain at least 1 address")
    if old is not None:
        keep(causes, new, old, field="", names=("addressType",))
