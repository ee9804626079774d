"""Validation of the core group except pods.

Not here: rules of metadata, which are the same for all kinds.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import orjson

from restow.apimachinery import quantity
from restow.apimachinery.metadata_rules import label_problems
from restow.apimachinery.name_formats import dns_label_problem, qualified_name_problem
from restow.kinds.validation.addresses import (
    address_problem,
    port_name_problem,
    special_address_problem,
)
from restow.kinds.validation.fields import (
    Causes,
    Object,
    keep,
    listed,
    part,
    port_problem,
    require,
    require_one_of,
)
from restow.kinds.validation.volume_rules import (
    VOLUME_SOURCES,
    check_access_modes,
    check_size,
)

# Limit of the data of a ConfigMap or Secret in total.
DATA_SIZE_MAX: Final = 1024 * 1024
_KEY_LENGTH_MAX: Final = 253
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
# Keys that do not begin with a dot, joined with a character that no key may contain.
_PLAIN_KEYS: Final = re.compile(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]*(?:/[-_a-zA-Z0-9][-._a-zA-Z0-9]*)*")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_FROZEN: Final = "field is immutable when `immutable` is set"
# Required keys of a Secret by its type.
_SECRET_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_SECRETS: Final = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")
_ACCOUNT_ANNOTATION: Final = "kubernetes.io/service-account.name"
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def validate_config_map(causes: Causes, new: Object, old: Object | None) -> None:
    data, binary = part(new, "data"), part(new, "binaryData")
    for field, values in (("data", data), ("binaryData", binary)):
        _check_keys(causes, field, values)
    for name in data.keys() & binary.keys() if binary else ():
        causes.invalid(f"data[{name}]", name, "duplicate of key present in binaryData")
    size = _size("".join(data.values())) + sum(map(_decoded_size, binary.values()))
    if size > DATA_SIZE_MAX:
        causes.too_long("", length_max=DATA_SIZE_MAX)
    _check_immutable(causes, new, old, names=("data", "binaryData"))


def validate_secret(causes: Causes, new: Object, old: Object | None) -> None:
    data = part(new, "data")
    _check_keys(causes, "data", data)
    if sum(map(_decoded_size, data.values())) > DATA_SIZE_MAX:
        causes.too_long("data", length_max=DATA_SIZE_MAX)
    kind = new.get("type")
    for name in _SECRET_KEYS.get(kind or "", ()):
        if name not in data:
            causes.required(f"data[{name}]")
        elif kind in _JSON_SECRETS and (old is None or part(old, "data").get(name) != data[name]):
            _check_json(causes, data[name], f"data[{name}]")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        causes.required("data[username]")
        causes.required("data[password]")
    if kind == "kubernetes.io/service-account-token" and not part(
        new, "metadata", "annotations"
    ).get(_ACCOUNT_ANNOTATION):
        causes.required(f"metadata.annotations[{_ACCOUNT_ANNOTATION}]")
    if old is not None:
        keep(causes, new, old, field="", names=("type",))
    _check_immutable(causes, new, old, names=("data",))


def _check_json(causes: Causes, value: str, field: str) -> None:
    try:
        orjson.loads(base64.b64decode(value))
    except ValueError:
        # Neither the value nor the parser's error is shown: both are secret.
        causes.invalid(field, "<secret contents redacted>", "is no valid JSON")


def _check_keys(causes: Causes, field: str, values: Object) -> None:
    if not values or _are_plain(values):
        return
    for name in values:
        if len(name) > _KEY_LENGTH_MAX:
            why = f"must be no more than {_KEY_LENGTH_MAX} characters"
            causes.invalid(f"{field}[{name[:64]}...]", name, why)
        elif not _KEY.fullmatch(name):
            causes.invalid(f"{field}[{name}]", name, _KEY_RULE)
        elif name in (".", "..") or name.startswith(".."):
            why = "must not be '.'" if name == "." else "must not start with '..'"
            causes.invalid(f"{field}[{name}]", name, why)


def _are_plain(names: Object) -> bool:
    """Whether all keys are simple, valid ones: checked together, since errors are rare."""
    joined = "/".join(names)
    return (
        joined.count("/") == len(names) - 1  # otherwise a key contains one
        and _PLAIN_KEYS.fullmatch(joined) is not None
        and max(map(len, names)) <= _KEY_LENGTH_MAX
    )


def _check_immutable(
    causes: Causes, new: Object, old: Object | None, *, names: tuple[str, ...]
) -> None:
    if old is None or old.get("immutable") is not True:
        return
    if new.get("immutable") is not True:
        causes.forbidden("immutable", _FROZEN)
    for name in names:
        if (new.get(name) or {}) != (old.get(name) or {}):
            causes.forbidden(name, _FROZEN)


def _size(text: Any) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _decoded_size(text: Any) -> int:
    """The size of decoded base64, computed without decoding it."""
    return len(text) * 3 // 4


def validate_namespace(causes: Causes, new: Object, _old: Object | None) -> None:
    finalizers = part(new, "spec").get("finalizers")
    for each in finalizers if isinstance(finalizers, list) else ():
        if problem := qualified_name_problem(str(each)):
            causes.invalid("spec.finalizers", each, problem)


def validate_node(causes: Causes, new: Object, old: Object | None) -> None:
    if old is None:
        return
    spec, before = part(new, "spec"), part(old, "spec")
    ranges, known = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if known and ranges != known:
        why = 'node updates may not change podCIDR except from "" to valid'
        causes.forbidden("spec.podCIDRs", why)
    name, known_name = spec.get("providerID"), before.get("providerID")
    if known_name and name != known_name:
        why = "field cannot be modified once set" if name else "field cannot be cleared once set"
        causes.invalid("spec.providerID", None, why)


def validate_service(causes: Causes, new: Object, _old: Object | None) -> None:
    spec = part(new, "spec")
    require_one_of(causes, spec, field="spec", name="type", values=_SERVICE_TYPES)
    require_one_of(causes, spec, field="spec", name="sessionAffinity", values=("ClientIP", "None"))
    is_external = spec.get("type") == "ExternalName"
    if is_external and not spec.get("externalName"):
        causes.required("spec.externalName")
    causes += label_problems(part(spec, "selector"), "spec.selector")
    _check_service_addresses(causes, spec)
    ports = list(listed(spec, "ports", "spec.ports"))
    if not ports and not is_external and spec.get("clusterIP") != "None":
        causes.required("spec.ports")
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for field, port in ports:
        _check_service_port(causes, port, field=field, is_only=len(ports) == 1, names=names)
        number = (port.get("protocol"), port.get("port"))
        if number in numbers:
            causes.duplicate(field, port)
        numbers.add(number)


def _check_service_addresses(causes: Causes, spec: Object) -> None:
    own = spec.get("clusterIP")
    if own and own != "None" and (problem := address_problem(own)):
        causes.invalid("spec.clusterIPs[0]", own, problem)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        if problem := address_problem(address) or special_address_problem(address):
            causes.invalid(f"spec.externalIPs[{index}]", address, problem)


def _check_service_port(
    causes: Causes, port: Object, *, field: str, is_only: bool, names: set[str]
) -> None:
    name = port.get("name") or ""
    if not name and not is_only:
        causes.required(f"{field}.name")
    elif name:
        if problem := dns_label_problem(name):
            causes.invalid(f"{field}.name", name, problem)
        elif name in names:
            causes.duplicate(f"{field}.name", name)
        names.add(name)
    problem_of_port = port_problem(port.get("port"), f"{field}.port")
    if problem_of_port is not None:
        causes.append(problem_of_port)
    target = port.get("targetPort")
    if isinstance(target, int):
        problem_of_port = port_problem(target, f"{field}.targetPort")
        if problem_of_port is not None:
            causes.append(problem_of_port)
    elif target and (problem := port_name_problem(target)):
        causes.invalid(f"{field}.targetPort", target, problem)
    require_one_of(causes, port, field=field, name="protocol", values=_PROTOCOLS)


def validate_volume_claim(causes: Causes, new: Object, old: Object | None) -> None:
    if old is not None:
        _check_claim_change(causes, part(new, "spec"), part(old, "spec"), part(old, "status"))


def _check_claim_change(causes: Causes, spec: Object, before: Object, status: Object) -> None:
    """Allow a claim to grow once it is bound, and to get the name of its volume."""
    fixed, fixed_before = dict(spec), dict(before)
    if not before.get("volumeName"):
        fixed_before.pop("volumeName", None)
        fixed.pop("volumeName", None)
    if status.get("phase") == "Bound":
        for each in (fixed, fixed_before):
            each.pop("volumeAttributesClassName", None)
            resources = {k: v for k, v in part(each, "resources").items() if k != "requests"}
            each["resources"] = resources
        size, size_before = (
            part(each, "resources", "requests").get("storage") or "0" for each in (spec, before)
        )
        if quantity.parse(str(size)) < quantity.parse(str(size_before)):
            why = "field can not be less than status.capacity"
            causes.forbidden("spec.resources.requests.storage", why)
    if fixed != fixed_before:
        why = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for bound claims"
        )
        causes.forbidden("spec", why)


def validate_volume(causes: Causes, new: Object, old: Object | None) -> None:
    spec = part(new, "spec")
    check_access_modes(causes, "spec.accessModes", spec.get("accessModes"))
    check_size(causes, "spec.capacity", spec.get("capacity"))
    sources = [name for name in spec if name in VOLUME_SOURCES]
    if not sources:
        causes.required("spec", "must specify a volume type")
    if "local" in sources and spec.get("nodeAffinity") is None:
        causes.required("spec.nodeAffinity", "Local volume requires node affinity")
    if old is not None:
        before = part(old, "spec")
        if {k: spec[k] for k in sources} != {k: before[k] for k in before if k in VOLUME_SOURCES}:
            why = "spec.persistentvolumesource is immutable after creation"
            causes.forbidden("spec.persistentvolumesource", why)
        keep(causes, spec, before, field="spec", names=("volumeMode",))


def validate_endpoints(causes: Causes, new: Object, _old: Object | None) -> None:
    for field, subset in listed(new, "subsets", "subsets"):
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.required(field, "must specify `addresses` or `notReadyAddresses`")
        for each in ("addresses", "notReadyAddresses"):
            for place, address in listed(subset, each, f"{field}.{each}"):
                require(causes, address, field=place, names=("ip",))
                found = address.get("ip") or ""
                # Loopback addresses are valid here: a local server may be an endpoint.
                if found and (problem := address_problem(found)):
                    causes.invalid(f"{place}.ip", found, problem)
        for place, port in listed(subset, "ports", f"{field}.ports"):
            problem_of_port = port_problem(port.get("port"), f"{place}.port")
            if problem_of_port is not None:
                causes.append(problem_of_port)
