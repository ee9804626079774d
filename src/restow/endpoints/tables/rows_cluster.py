"""Columns of cluster administration kinds: access, admission, extension, flow control.

Not here: the data of users (`rows_core`), and storage versions (`rows_storage_versions`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.endpoints.tables.values import (
    NONE,
    UNSET,
    age,
    condition,
    human_duration,
    items,
    label_selector,
    mapping,
    number,
    read,
    text,
    texts,
)

# Seconds in a request are a signed 32-bit number; a longer duration is invalid.
_SECONDS_MAX: Final = 2**31 - 1


def _name(obj: Mapping[str, Any]) -> str:
    return text(obj, "metadata", "name")


def _binding(obj: Mapping[str, Any], now: datetime) -> list[object]:
    people: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in items(obj, "subjects"):
        kind, name = text(subject, "kind"), text(subject, "name")
        if kind == "ServiceAccount":
            name = f"{text(subject, 'namespace')}/{name}"
        people.get(kind, []).append(name)
    return [
        _name(obj),
        f"{text(obj, 'roleRef', 'kind')}/{text(obj, 'roleRef', 'name')}",
        age(obj, now),
        *(", ".join(names) for names in people.values()),
    ]


def _api_service(obj: Mapping[str, Any], now: datetime) -> list[object]:
    service = mapping(obj, "spec", "service")
    where = f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"
    found = condition(obj, "Available")
    status, reason = text(found, "status") or "Unknown", text(found, "reason")
    shown = f"{status} ({reason})" if status != "True" and reason else status
    return [_name(obj), where, shown, age(obj, now)]


def _webhooks(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), len(items(obj, "webhooks")), age(obj, now)]


def _admission_policy(obj: Mapping[str, Any], now: datetime) -> list[object]:
    parameters = mapping(obj, "spec", "paramKind")
    kind = f"{text(parameters, 'apiVersion')}/{text(parameters, 'kind')}" if parameters else UNSET
    rules = items(obj, "spec", "validations") or items(obj, "spec", "mutations")
    return [_name(obj), len(rules), kind, age(obj, now)]


def _admission_policy_binding(obj: Mapping[str, Any], now: datetime) -> list[object]:
    parameters = mapping(obj, "spec", "paramRef")
    namespace, name = text(parameters, "namespace"), text(parameters, "name")
    if name:
        shown = f"{namespace or '*'}/{name}"
    else:
        selector = parameters.get("selector")
        shown = UNSET if selector is None else label_selector(selector)
    return [_name(obj), text(obj, "spec", "policyName"), shown, age(obj, now)]


def _flow_schema(obj: Mapping[str, Any], now: datetime) -> list[object]:
    dangling = text(condition(obj, "Dangling"), "status")
    return [
        _name(obj),
        text(obj, "spec", "priorityLevelConfiguration", "name"),
        number(obj, "spec", "matchingPrecedence"),
        text(obj, "spec", "distinguisherMethod", "type") or NONE,
        age(obj, now),
        dangling if dangling in ("True", "False") else "?",
    ]


def _priority_level(obj: Mapping[str, Any], now: datetime) -> list[object]:
    limited = mapping(obj, "spec", "limited")
    queuing = mapping(limited, "limitResponse", "queuing")
    shares: object = read(limited, "nominalConcurrencyShares")
    if shares is None:
        shares = read(limited, "assuredConcurrencyShares")  # before v1beta3
    return [
        _name(obj),
        text(obj, "spec", "type"),
        _count_or_none(shares),
        *(_count_or_none(queuing.get(key)) for key in ("queues", "handSize", "queueLengthLimit")),
        age(obj, now),
    ]


def _count_or_none(value: object) -> object:
    return value if isinstance(value, int) and not isinstance(value, bool) else NONE


def _signing_request(obj: Mapping[str, Any], now: datetime) -> list[object]:
    seconds = number(obj, "spec", "expirationSeconds")
    duration = timedelta(seconds=min(max(seconds, 0), _SECONDS_MAX))
    return [
        _name(obj),
        age(obj, now),
        text(obj, "spec", "signerName") or NONE,
        text(obj, "spec", "username"),
        human_duration(duration) if seconds else NONE,
        _signing_state(obj),
    ]


def _signing_state(obj: Mapping[str, Any]) -> str:
    kinds = [text(found, "type") for found in items(obj, "status", "conditions")]
    if "Denied" in kinds:
        state = "Denied"
    elif "Approved" in kinds:
        state = "Approved"
    else:
        state = "Pending"
    if "Failed" in kinds:
        state += ",Failed"
    return state + ",Issued" if text(obj, "status", "certificate") else state


def _priority_class(obj: Mapping[str, Any], now: datetime) -> list[object]:
    is_default = read(obj, "globalDefault") is True
    return [
        _name(obj),
        number(obj, "value"),
        is_default,
        age(obj, now),
        text(obj, "preemptionPolicy"),
    ]


def _runtime_class(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), text(obj, "handler"), age(obj, now)]


def _storage_class(obj: Mapping[str, Any], now: datetime) -> list[object]:
    name = _name(obj)
    annotations = mapping(obj, "metadata", "annotations")
    for key in _DEFAULT_CLASS_ANNOTATIONS:
        if annotations.get(key) == "true":
            name += " (default)"
            break
    return [
        name,
        text(obj, "provisioner"),
        text(obj, "reclaimPolicy") or "Delete",
        text(obj, "volumeBindingMode") or "Immediate",
        read(obj, "allowVolumeExpansion") is True,
        age(obj, now),
    ]


_DEFAULT_CLASS_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def _csi_node(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), len(items(obj, "spec", "drivers")), age(obj, now)]


def _csi_driver(obj: Mapping[str, Any], now: datetime) -> list[object]:
    audiences = [text(request, "audience") for request in items(obj, "spec", "tokenRequests")]
    return [
        _name(obj),
        read(obj, "spec", "attachRequired") is not False,
        read(obj, "spec", "podInfoOnMount") is True,
        read(obj, "spec", "storageCapacity") is True,
        ",".join(audiences) or UNSET,
        read(obj, "spec", "requiresRepublish") is True,
        ",".join(texts(obj, "spec", "volumeLifecycleModes")) or NONE,
        age(obj, now),
    ]


def _volume_attachment(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [
        _name(obj),
        text(obj, "spec", "attacher"),
        text(obj, "spec", "source", "persistentVolumeName"),
        text(obj, "spec", "nodeName"),
        read(obj, "status", "attached") is True,
        age(obj, now),
    ]


_BINDING: Final = TableColumns(
    [
        NAME,
        column("Role", about="The role that is granted."),
        AGE,
        wide("Users", about="Users with the role."),
        wide("Groups", about="Groups with the role."),
        wide("ServiceAccounts", about="Service accounts with the role."),
    ],
    _binding,
)
_WEBHOOKS: Final = TableColumns(
    [NAME, column("Webhooks", "integer", about="Number of webhooks."), AGE], _webhooks
)
_POLICY_BINDING: Final = TableColumns(
    [
        NAME,
        column("PolicyName", about="The policy that is bound."),
        column("ParamRef", about="The object with its parameters."),
        AGE,
    ],
    _admission_policy_binding,
)
_PARAM_KIND: Final = column("ParamKind", about="Kind of its parameters.")
COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("apiregistration.k8s.io", "APIService"): TableColumns(
        [
            NAME,
            column("Service", about="Backend: this server, or a service."),
            column("Available", about="Whether it is available."),
            AGE,
        ],
        _api_service,
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): TableColumns(
        [NAME, column("Validations", "integer", about="Number of rules."), _PARAM_KIND, AGE],
        _admission_policy,
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): TableColumns(
        [NAME, column("Mutations", "integer", about="Number of rules."), _PARAM_KIND, AGE],
        _admission_policy,
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): TableColumns(
        [
            NAME,
            column("PriorityLevel", about="Priority level of its requests."),
            column("MatchingPrecedence", about="Lower is tried first."),
            column("DistinguisherMethod", about="How requests are assigned to flows."),
            AGE,
            column("MissingPL", about="Whether its priority level is missing."),
        ],
        _flow_schema,
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): TableColumns(
        [
            NAME,
            column("Type", about="Exempt or Limited."),
            column("NominalConcurrencyShares", about="Share of the total concurrency."),
            column("Queues", about="Number of queues."),
            column("HandSize", about="Queues that one flow may use."),
            column("QueueLengthLimit", about="Longest queue."),
            AGE,
        ],
        _priority_level,
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): TableColumns(
        [
            NAME,
            AGE,
            column("SignerName", about="The requested signer."),
            column("Requestor", about="User that created the request."),
            column("RequestedDuration", about="Requested validity of the certificate."),
            column("Condition", about="State of the request."),
        ],
        _signing_request,
    ),
    ("scheduling.k8s.io", "PriorityClass"): TableColumns(
        [
            NAME,
            column("Value", "integer", about="Higher is more important."),
            column("Global-Default", "boolean", about="Whether pods without a class get it."),
            AGE,
            column("PreemptionPolicy", about="Whether its pods preempt others."),
        ],
        _priority_class,
    ),
    ("node.k8s.io", "RuntimeClass"): TableColumns(
        [NAME, column("Handler", about="Runtime that is used."), AGE], _runtime_class
    ),
    ("storage.k8s.io", "StorageClass"): TableColumns(
        [
            NAME,
            column("Provisioner", about="Provisioner of its volumes."),
            column("ReclaimPolicy", about="What happens to a released volume."),
            column("VolumeBindingMode", about="When a volume is bound."),
            column("AllowVolumeExpansion", about="Whether volumes may grow."),
            AGE,
        ],
        _storage_class,
    ),
    ("storage.k8s.io", "CSINode"): TableColumns(
        [NAME, column("Drivers", "integer", about="Number of drivers on the node."), AGE],
        _csi_node,
    ),
    ("storage.k8s.io", "CSIDriver"): TableColumns(
        [
            NAME,
            column("AttachRequired", "boolean", about="Whether volumes must be attached."),
            column("PodInfoOnMount", "boolean", about="Whether it gets pod details on mount."),
            column("StorageCapacity", "boolean", about="Whether it reports capacity."),
            column("TokenRequests", about="Audiences of the tokens it gets."),
            column("RequiresRepublish", "boolean", about="Whether mounts are refreshed."),
            column("Modes", about="Kinds of volumes."),
            AGE,
        ],
        _csi_driver,
    ),
    ("storage.k8s.io", "VolumeAttachment"): TableColumns(
        [
            NAME,
            column("Attacher", about="The CSI driver that attaches it.", form="name"),
            column("PV", about="The volume."),
            column("Node", about="The node."),
            column("Attached", "boolean", about="Whether it is attached."),
            AGE,
        ],
        _volume_attachment,
    ),
}
