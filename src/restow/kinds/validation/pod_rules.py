"""Validation rules of single fields of pods and pod templates.

Only rows: the rules by struct and field, with the messages of kube-apiserver.

Not here: rules that involve several fields of a pod (`pods`), and volumes (`volume_rules`).
"""

from __future__ import annotations

import re
from typing import Any, Final

from restow.apimachinery.metadata_rules import annotation_problems, label_problems
from restow.apimachinery.name_formats import (
    dns_label_problem,
    label_value_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.kinds.validation.addresses import address_problem, port_name_problem
from restow.kinds.validation.container_rules import (
    check_container,
    check_containers,
    check_resources,
)
from restow.kinds.validation.fields import Causes
from restow.kinds.validation.match_rules import check_selector
from restow.kinds.validation.rules import (
    Fields,
    amounts,
    both,
    distinct_by,
    each,
    filled,
    filled_number,
    given_one_of,
    matching,
    needed,
    needed_because,
    not_negative,
    number,
    one_of,
    positive,
    text,
)

_PORT_MAX: Final = 65535
_KEY_LENGTH_MAX: Final = 253
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SEARCH_PART: Final = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH: Final = re.compile(rf"{_SEARCH_PART}(\.{_SEARCH_PART})*")
_SEARCH_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or"
    " '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used"
    f" for validation is '{_SEARCH_PART}(\\.{_SEARCH_PART})*')"
)
_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_WITH_VALUES: Final = ("In", "NotIn")
_NUMBERED: Final = ("Gt", "Lt")

_SYSCTL_RULE: Final = f"must have at most 253 characters and match regex ^{_SYSCTL}$"
_HEADER_RULE: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name',"
    " regex used for validation is '[-A-Za-z0-9]+')"
)
_RESOURCES: Final = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_WEIGHT_MAX: Final = 100
_POD_FIELDS: Final = frozenset(
    {
        *("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace"),
        *("metadata.uid", "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName"),
        *("spec.schedulerName", "status.phase", "status.hostIP", "status.hostIPs"),
        *("status.podIP", "status.podIPs", "spec.hostNetwork"),
    }
)
_KEYED_FIELD: Final = re.compile(r"metadata\.(?:annotations|labels)\['.+'\]")

id_number: Final = number(0)
port: Final = number(1, _PORT_MAX)
# Old clients may omit the name; such a reference finds nothing.
name_of_reference: Final = text(subdomain_problem)


def _resource_problem(value: str) -> str | None:
    if value in _RESOURCES or value.startswith(("limits.hugepages-", "requests.hugepages-")):
        return None
    return "supported values: " + ", ".join(f'"{name}"' for name in _RESOURCES)


def _local_path_problem(value: str) -> str | None:
    if value.startswith("/"):
        return "must be a relative path"
    return "must not contain '..'" if ".." in value.split("/") else None


def _weight(causes: Causes, field: str, value: Any) -> None:
    if not 1 <= (value or 0) <= _WEIGHT_MAX:
        causes.invalid(field, value, f"must be in the range 1-{_WEIGHT_MAX}")


def option_named(causes: Causes, field: str, value: Any) -> None:
    """Require the name of a DNS option."""
    if not value.get("name"):
        causes.required(field, "must not be empty")


def key_problem(value: str) -> str | None:
    """Return why a key of a ConfigMap or Secret is invalid; None if it is valid."""
    if len(value) > _KEY_LENGTH_MAX:
        return f"must be no more than {_KEY_LENGTH_MAX} characters"
    if not _KEY.fullmatch(value):
        return _KEY_RULE
    if value == ".":
        return "must not be '.'"
    return "must not start with '..'" if value.startswith("..") else None


def _search_problem(value: str) -> str | None:
    value = value.removesuffix(".") if len(value) > 1 else value
    if len(value) > _KEY_LENGTH_MAX:
        return f"must be no more than {_KEY_LENGTH_MAX} characters"
    return None if value == "." or _SEARCH.fullmatch(value) else _SEARCH_RULE


def _handler(causes: Causes, field: str, value: Any) -> None:
    """Require exactly one handler in a probe or lifecycle hook."""
    found = [name for name in _HANDLERS if value.get(name) is not None]
    if not found:
        causes.required(field, "must specify a handler type")
    for name in found[1:]:
        causes.forbidden(f"{field}.{name}", "may not specify more than 1 handler type")


def _port_or_name(causes: Causes, field: str, value: Any) -> None:
    if isinstance(value, str):
        if problem := port_name_problem(value):
            causes.invalid(field, value, problem)
    else:
        port(causes, field, value or 0)


def _node_labels(causes: Causes, field: str, value: Any) -> None:
    causes += label_problems(value or {}, field)


_TOLERATING: Final = ("Equal", "Exists", "Lt", "Gt")
_effect: Final = given_one_of("NoSchedule", "PreferNoSchedule", "NoExecute")


def _toleration(causes: Causes, field: str, value: Any) -> None:
    operator, effect = value.get("operator") or "", value.get("effect") or ""
    if not value.get("key") and operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"'
        )
        causes.invalid(f"{field}.operator", operator, why)
    if value.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.invalid(f"{field}.effect", effect, why)
    if operator in ("", "Equal"):
        text(label_value_problem)(causes, f"{field}.operator", value.get("value"))
    elif operator == "Exists" and value.get("value"):
        why = "value must be empty when `operator` is 'Exists'"
        causes.invalid(f"{field}.operator", value["value"], why)
    elif operator != "Exists":
        # Lt and Gt are defined, but not enabled.
        named = _TOLERATING if operator in _TOLERATING else _TOLERATING[:2]
        causes.not_supported(f"{field}.operator", operator, named)
    _effect(causes, f"{field}.effect", effect)


def _requirement(causes: Causes, field: str, value: Any) -> None:
    """Validate a requirement of a node selector."""
    operator, values = value.get("operator") or "", value.get("values") or []
    where = f"{field}.values"
    if operator in _WITH_VALUES and not values:
        causes.required(where, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _NUMBERED and len(values) != 1:
        causes.required(where, "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator in ("Exists", "DoesNotExist") and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        causes.forbidden(where, why)
    elif operator not in (*_WITH_VALUES, *_NUMBERED, "Exists", "DoesNotExist"):
        causes.invalid(f"{field}.operator", operator, "not a valid selector operator")


def _template(causes: Causes, field: str, value: Any) -> None:
    labels = (value.get("metadata") or {}).get("labels")
    if labels:
        causes += label_problems(labels, f"{field}.labels")
    notes = (value.get("metadata") or {}).get("annotations")
    if notes:
        causes += annotation_problems(notes, f"{field}.annotations")
    if (value.get("spec") or {}).get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        causes.forbidden(f"{field}.spec.ephemeralContainers", why)


def _selector(causes: Causes, field: str, value: Any) -> None:
    check_selector(causes, value, field)


def _dns(causes: Causes, field: str, value: Any) -> None:
    """`dnsPolicy: None` requires `dnsConfig.nameservers`."""
    if value.get("dnsPolicy") != "None":
        return
    config = value.get("dnsConfig")
    if config is None:
        causes.required(f"{field}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    elif not config.get("nameservers"):
        why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.required(f"{field}.dnsConfig.nameservers", why)


def _environment(causes: Causes, field: str, value: Any) -> None:
    if not any(value.get(name) is not None for name in ("configMapRef", "secretRef")):
        where = field.rpartition("[")[0]
        causes.invalid(where, "", "must specify one of: `configMapRef` or `secretRef`")


def _resource_claim(causes: Causes, field: str, value: Any) -> None:
    names = ("resourceClaimName", "resourceClaimTemplateName")
    if not any(value.get(name) is not None for name in names):
        why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        causes.invalid(field, value.get("name") or "", why)
    for name in names:
        if value.get(name) is not None:
            filled(subdomain_problem)(causes, f"{field}.{name}", value[name])


def _field_label_problem(value: str) -> str | None:
    if value in _POD_FIELDS or _KEYED_FIELD.fullmatch(value):
        return None
    return f"error converting fieldPath: field label not supported: {value}"


def _probe(causes: Causes, field: str, value: Any) -> None:
    _handler(causes, field, value)
    if not field.endswith("readinessProbe") and value.get("successThreshold") not in (None, 1):
        found = value["successThreshold"]
        causes.invalid(f"{field}.successThreshold", found, "must be 1")
    if field.endswith("readinessProbe") and value.get("terminationGracePeriodSeconds") is not None:
        where = f"{field}.terminationGracePeriodSeconds"
        why = "must not be set for readinessProbes"
        causes.invalid(where, value["terminationGracePeriodSeconds"], why)


_KEY_SELECTOR: Final[Fields] = {
    "name": name_of_reference,
    "key": both(needed, text(key_problem)),
}
_ENV_SOURCES: Final = (
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
)
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def _env_source(causes: Causes, field: str, value: Any) -> None:
    if not any(value.get(name) is not None for name in _ENV_SOURCES):
        named = ", ".join(f"`{name}`" for name in _ENV_SOURCES[:-1])
        causes.invalid(field, "", f"must specify one of: {named} or `{_ENV_SOURCES[-1]}`")


RULES: Final[dict[str, Fields]] = {
    "meta/LabelSelector": {"": _selector},
    "core/PodTemplateSpec": {"": _template},
    "core/PodSpec": {
        "": both(_dns, check_containers),
        "activeDeadlineSeconds": number(1),
        "dnsPolicy": one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
        "nodeSelector": _node_labels,
        "schedulingGates": distinct_by("name"),
        "serviceAccountName": text(subdomain_problem),
        "subdomain": text(dns_label_problem),
        "preemptionPolicy": one_of("PreemptLowerPriority", "Never"),
    },
    "core/PodDNSConfig": {
        "nameservers": each(filled(address_problem)),
        "searches": each(filled(_search_problem)),
    },
    "core/PodDNSConfigOption": {"": option_named},
    "core/HostAlias": {
        "ip": filled(address_problem),
        "hostnames": each(filled(subdomain_problem)),
    },
    "core/PodReadinessGate": {"conditionType": filled(qualified_name_problem)},
    "core/PodSchedulingGate": {"name": filled(qualified_name_problem)},
    "core/PodOS": {"name": both(needed, one_of("linux", "windows"))},
    "core/Toleration": {"": _toleration, "key": text(qualified_name_problem)},
    "core/TopologySpreadConstraint": {
        "maxSkew": both(filled_number, positive),
        "minDomains": positive,
        "nodeAffinityPolicy": one_of("Honor", "Ignore"),
        "nodeTaintsPolicy": one_of("Honor", "Ignore"),
        "topologyKey": needed_because("can not be empty"),
        "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway"),
    },
    "core/NodeSelector": {
        "nodeSelectorTerms": needed_because("must have at least one node selector term"),
    },
    "core/NodeSelectorRequirement": {"": _requirement, "key": filled(qualified_name_problem)},
    "core/PreferredSchedulingTerm": {"weight": both(filled_number, _weight)},
    "core/WeightedPodAffinityTerm": {"weight": both(filled_number, _weight)},
    "core/PodAffinityTerm": {
        "topologyKey": both(needed_because("can not be empty"), text(qualified_name_problem)),
        "namespaces": each(filled(dns_label_problem)),
    },
    "core/PodSecurityContext": {
        "runAsUser": id_number,
        "runAsGroup": id_number,
        "fsGroup": id_number,
        "supplementalGroups": each(id_number),
        "fsGroupChangePolicy": one_of("Always", "OnRootMismatch"),
        "sysctls": distinct_by("name"),
    },
    "core/Sysctl": {"name": both(needed, matching(_SYSCTL, _SYSCTL_RULE))},
    "core/SeccompProfile": {
        "type": both(
            needed_because("type is required when seccompProfile is set"),
            given_one_of(*_PROFILES),
        ),
    },
    "core/AppArmorProfile": {
        "type": both(
            needed_because("type is required when appArmorProfile is set"),
            given_one_of(*_PROFILES),
        ),
    },
    "core/SecurityContext": {
        "runAsUser": id_number,
        "runAsGroup": id_number,
        "procMount": one_of("Default", "Unmasked"),
    },
    "core/ContainerPort": {
        "hostPort": number(0, _PORT_MAX),
        "name": text(port_name_problem),
        "protocol": one_of(*_PROTOCOLS),
    },
    "core/Container": {"": check_container},
    "core/ResourceRequirements": {"": check_resources, "limits": amounts, "requests": amounts},
    "core/EnvVarSource": {"": _env_source},
    "core/EnvFromSource": {"": _environment},
    "core/ConfigMapKeySelector": _KEY_SELECTOR,
    "core/SecretKeySelector": _KEY_SELECTOR,
    "core/ConfigMapEnvSource": {"name": both(needed, text(subdomain_problem))},
    "core/SecretEnvSource": {"name": both(needed, text(subdomain_problem))},
    "core/ObjectFieldSelector": {"fieldPath": both(needed, text(_field_label_problem))},
    "core/ResourceFieldSelector": {"resource": both(needed, text(_resource_problem))},
    "core/VolumeMount": {
        "mountPropagation": one_of("Bidirectional", "HostToContainer", "None"),
        "subPath": text(_local_path_problem),
        "subPathExpr": text(_local_path_problem),
    },
    "core/VolumeDevice": {"name": needed, "devicePath": needed},
    "core/PodResourceClaim": {"": _resource_claim, "name": both(needed, text(dns_label_problem))},
    "core/FileKeySelector": {
        "volumeName": both(needed, text(dns_label_problem)),
        "path": needed,
        "key": needed,
    },
    "core/Probe": {
        "": _probe,
        "initialDelaySeconds": not_negative,
        "timeoutSeconds": not_negative,
        "periodSeconds": not_negative,
        "successThreshold": not_negative,
        "failureThreshold": not_negative,
        "terminationGracePeriodSeconds": positive,
    },
    "core/LifecycleHandler": {"": _handler},
    "core/ExecAction": {"command": needed},
    "core/HTTPGetAction": {
        "port": _port_or_name,
        "scheme": one_of("HTTP", "HTTPS"),
    },
    "core/HTTPHeader": {"name": matching(r"[-A-Za-z0-9]+", _HEADER_RULE)},
    "core/TCPSocketAction": {"port": _port_or_name},
    "core/GRPCAction": {"port": both(filled_number, port)},
}
