"""Validation rules of single fields of workloads, network, scheduling, devices and flow control.

Only rows: the rules by struct and field, with the messages of kube-apiserver.

Not here: pods (`pod_rules`), volumes (`volume_rules`), rules that involve several fields.
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery.metadata_rules import label_problems
from restow.apimachinery.name_formats import (
    dns_1035_label_problem,
    dns_label_problem,
    label_value_problem,
    path_segment_problem,
    qualified_name_problem,
    subdomain_problem,
)
from restow.kinds.validation.addresses import cidr_problem, port_name_problem
from restow.kinds.validation.fields import Causes
from restow.kinds.validation.pod_rules import port
from restow.kinds.validation.rules import (
    Fields,
    amounts,
    anything,
    both,
    distinct,
    distinct_by,
    each,
    filled,
    filled_one_of,
    given_one_of,
    needed,
    needed_because,
    not_negative,
    number,
    one_of,
    positive,
    present,
    present_because,
    text,
)
from restow.kinds.validation.service_rules import check_service
from restow.kinds.validation.volume_rules import driver_problem

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PERIOD_SECONDS_MAX: Final = 1800
_WINDOW_SECONDS_MAX: Final = 3600
_PERCENT_MAX: Final = 100
_AFFINITY_SECONDS_MAX: Final = 86400
_STANDARD_LIMITS: Final = ("Container", "PersistentVolumeClaim", "Pod")


def _domain_path_problem(value: str) -> str | None:
    domain, slash, path = value.partition("/")
    if not (domain and slash and path):
        return 'must be a domain-prefixed path (such as "acme.io/foo")'
    return subdomain_problem(domain)


def _affinity_seconds(causes: Causes, field: str, value: Any) -> None:
    if isinstance(value, int) and not 0 < value <= _AFFINITY_SECONDS_MAX:
        why = f"must be greater than 0 and less than {_AFFINITY_SECONDS_MAX}"
        causes.invalid(field, value, why)


def _greater_than_zero(causes: Causes, field: str, value: Any) -> None:
    if not isinstance(value, int) or value <= 0:
        causes.invalid(field, value or 0, "must be greater than zero")


def _period(causes: Causes, field: str, value: Any) -> None:
    _greater_than_zero(causes, field, value)
    if isinstance(value, int) and value > _PERIOD_SECONDS_MAX:
        causes.invalid(field, value, f"must be less than or equal to {_PERIOD_SECONDS_MAX}")


def _window(causes: Causes, field: str, value: Any) -> None:
    if not isinstance(value, int):
        return
    if value < 0:
        causes.invalid(field, value, "must be greater than or equal to zero")
    elif value > _WINDOW_SECONDS_MAX:
        causes.invalid(field, value, f"must be less than or equal to {_WINDOW_SECONDS_MAX}")


def _backend(causes: Causes, field: str, value: Any) -> None:
    service, resource = value.get("service"), value.get("resource")
    if (service is None) == (resource is None):
        why = "resource or service backend is required"
        if service is not None:
            why = "cannot set both resource and service backends"
        causes.invalid(field, "", why)
    elif service is not None:
        place = service.get("port") or {}
        if not place.get("name") and not place.get("number"):
            causes.required(field, "port name or number is required")
        elif place.get("name") and place.get("number"):
            causes.invalid(field, "", "cannot set both port name & port number")


def _ingress_path(causes: Causes, field: str, value: Any) -> None:
    path, kind = value.get("path") or "", value.get("pathType")
    is_needed = kind in ("Exact", "Prefix") or (kind == "ImplementationSpecific" and path)
    if is_needed and not path.startswith("/"):
        causes.invalid(f"{field}.path", path, "must be an absolute path")


def _host_problem(value: str) -> str | None:
    return subdomain_problem(value.removeprefix("*."))


def _peer(causes: Causes, field: str, value: Any) -> None:
    names = ("podSelector", "namespaceSelector", "ipBlock")
    found = [name for name in names if value.get(name) is not None]
    if not found:
        causes.required(field, "must specify a peer")
    elif "ipBlock" in found and len(found) > 1:
        causes.forbidden(field, "may not specify both ipBlock and another peer")


def _policy_port(causes: Causes, field: str, value: Any) -> None:
    start, end = value.get("port"), value.get("endPort")
    if isinstance(start, str):
        if problem := port_name_problem(start):
            causes.invalid(f"{field}.port", start, problem)
    else:
        port(causes, f"{field}.port", start)
    if end is not None and start is None:
        causes.invalid(f"{field}.endPort", end, "may not be specified when `port` is not specified")
    elif isinstance(end, int) and isinstance(start, int) and end < start:
        causes.invalid(f"{field}.endPort", end, "must be greater than or equal to `port`")
    elif end is not None and isinstance(start, str):
        causes.invalid(f"{field}.endPort", end, "may not be specified when `port` is non-numeric")
    port(causes, f"{field}.endPort", end)


def _taint(causes: Causes, field: str, value: Any) -> None:
    filled(qualified_name_problem)(causes, f"{field}.key", value.get("key"))
    text(label_value_problem)(causes, f"{field}.value", value.get("value"))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    both(needed, given_one_of(*effects))(causes, f"{field}.effect", value.get("effect"))


def _distinct_taints(causes: Causes, _field: str, value: Any) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(value or ()):
        found = (taint.get("key") or "", taint.get("effect") or "")
        if found in seen:
            # kube-apiserver reports this field path, with `metadata`.
            where, why = f"metadata.taints[{index}]", "taints must be unique by key and effect pair"
            causes.duplicate_because(where, taint, why)
        seen.add(found)


def _node_labels(causes: Causes, field: str, value: Any) -> None:
    causes += label_problems(value or {}, field)


def _limit_type(causes: Causes, field: str, value: Any) -> None:
    problem = qualified_name_problem(value or "")
    if problem is None and "/" not in value and value not in _STANDARD_LIMITS:
        problem = "must be a standard limit type or fully qualified"
    if problem:
        causes.invalid(field, value or "", problem)


def _exit_codes(causes: Causes, field: str, value: Any) -> None:
    operator = value.get("operator")
    if not operator:
        causes.required(f"{field}.operator", 'valid values: ["In" "NotIn"]')
    elif operator not in ("In", "NotIn"):
        causes.not_supported(f"{field}.operator", operator, ("In", "NotIn"))
    values = value.get("values") or []
    where = f"{field}.values"
    if not values:
        causes.invalid(where, values, "at least one value is required")
    for index, each_value in enumerate(values):
        if operator == "In" and each_value == 0:
            causes.invalid(f"{where}[{index}]", each_value, "must not be 0 for the In operator")
    distinct(causes, where, values)
    if values != sorted(values):
        causes.invalid(where, values, "must be ordered")


def _failure_rule(causes: Causes, field: str, value: Any) -> None:
    actions = ("Count", "FailIndex", "FailJob", "Ignore")
    action = value.get("action")
    if not action:
        causes.required(f"{field}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]')
    elif action not in actions:
        causes.not_supported(f"{field}.action", action, actions)
    if value.get("onExitCodes") is None and not value.get("onPodConditions"):
        why = "specifying one of OnExitCodes and OnPodConditions is required"
        causes.invalid(field, field, why)


def _amount_of_claim(causes: Causes, field: str, value: Any) -> None:
    mode, count = value.get("allocationMode"), value.get("count")
    where = f"{field}.count"
    if mode not in ("All", "ExactCount"):
        modes = ("All", "ExactCount")
        causes.not_supported(f"{field}.allocationMode", mode or "", modes)
    elif mode == "ExactCount":
        _greater_than_zero(causes, where, count)
    elif count:
        causes.invalid(where, count, "must not be specified when allocationMode is 'All'")


def _request(causes: Causes, field: str, value: Any) -> None:
    if (value.get("exactly") is not None) == bool(value.get("firstAvailable")):
        causes.required(field, "exactly one of `exactly` or `firstAvailable` is required")


_REFERENCE: Final[Fields] = {
    "apiGroup": text(subdomain_problem),
    "kind": needed,
    "name": needed,
}
_DEVICE_REQUEST: Final[Fields] = {
    "": _amount_of_claim,
    "deviceClassName": both(needed, text(subdomain_problem)),
}
_COUNTS_OF_BUDGET: Final = (
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
)
_NEEDED_NAME: Final[Fields] = {"name": needed}

RULES: Final[dict[str, Fields]] = {
    "apps/StatefulSetSpec": {"serviceName": text(dns_label_problem)},
    "apps/RollingUpdateStatefulSetStrategy": {"partition": not_negative},
    "apps/StatefulSetOrdinals": {"start": not_negative},
    "apps/StatefulSetPersistentVolumeClaimRetentionPolicy": {
        "whenDeleted": one_of("Retain", "Delete"),
        "whenScaled": one_of("Retain", "Delete"),
    },
    "apps/ControllerRevision": {
        "data": present_because("data is mandatory"),
        "revision": not_negative,
    },
    "batch/JobSpec": {
        "backoffLimitPerIndex": not_negative,
        "maxFailedIndexes": not_negative,
        "podReplacementPolicy": one_of("Failed", "TerminatingOrFailed"),
        "managedBy": text(_domain_path_problem),
    },
    "batch/PodFailurePolicyRule": {"": _failure_rule},
    "batch/PodFailurePolicyOnExitCodesRequirement": {"": _exit_codes},
    "batch/PodFailurePolicyOnPodConditionsPattern": {
        "type": filled(qualified_name_problem),
        "status": one_of("False", "True", "Unknown"),
    },
    "batch/SuccessPolicy": {
        "rules": needed_because(
            "at least one rules must be specified when the successPolicy is specified"
        ),
    },
    "autoscaling/HPAScalingRules": {
        "stabilizationWindowSeconds": _window,
        "selectPolicy": one_of("Disabled", "Max", "Min"),
        "policies": needed_because("must specify at least one Policy"),
    },
    "autoscaling/HPAScalingPolicy": {
        "type": filled_one_of("Percent", "Pods"),
        "value": _greater_than_zero,
        "periodSeconds": _period,
    },
    "autoscaling/MetricIdentifier": {
        "name": needed_because("must specify a metric name"),
        # The labels are those of the metrics API, not of objects.
        "selector": anything,
    },
    "autoscaling/MetricTarget": {
        "type": needed_because("must specify a metric target type"),
        "averageUtilization": positive,
    },
    "autoscaling/ResourceMetricSource": {
        "name": needed_because("must specify a resource name"),
    },
    "autoscaling/ContainerResourceMetricSource": {
        "name": needed_because("must specify a resource name"),
        "container": both(needed_because("must specify a container"), text(dns_label_problem)),
    },
    "autoscaling/CrossVersionObjectReference": {
        "kind": both(needed, text(path_segment_problem)),
        "name": both(needed, text(path_segment_problem)),
    },
    "policy/PodDisruptionBudgetStatus": dict.fromkeys(_COUNTS_OF_BUDGET, not_negative),
    "policy/PodDisruptionBudgetSpec": {
        "unhealthyPodEvictionPolicy": one_of("AlwaysAllow", "IfHealthyBudget"),
    },
    "core/ServiceSpec": {
        "": check_service,
        "externalName": text(subdomain_problem),
        "internalTrafficPolicy": one_of("Cluster", "Local"),
        "ipFamilies": both(each(one_of("IPv4", "IPv6")), distinct),
        "ipFamilyPolicy": one_of("PreferDualStack", "RequireDualStack", "SingleStack"),
        "loadBalancerClass": text(qualified_name_problem),
        "trafficDistribution": one_of("PreferClose", "PreferSameZone", "PreferSameNode"),
    },
    "core/ServicePort": {
        "appProtocol": text(qualified_name_problem),
    },
    "core/ClientIPConfig": {"timeoutSeconds": _affinity_seconds},
    "core/EndpointAddress": {
        "hostname": text(dns_label_problem),
        "nodeName": text(subdomain_problem),
    },
    "core/EndpointPort": {
        "name": text(dns_label_problem),
        "protocol": one_of(*_PROTOCOLS),
        "appProtocol": text(qualified_name_problem),
    },
    "core/NodeSpec": {"podCIDRs": each(filled(cidr_problem)), "taints": _distinct_taints},
    "core/Taint": {"": _taint},
    "core/LimitRangeItem": {"type": _limit_type},
    "networking/IngressServiceBackend": {
        "name": both(needed, text(dns_1035_label_problem)),
    },
    "networking/ServiceBackendPort": {
        "name": text(port_name_problem),
        "number": number(0, 65535),
    },
    "networking/IngressBackend": {"": _backend},
    "networking/IngressSpec": {"ingressClassName": text(subdomain_problem)},
    "networking/IngressTLS": {
        "hosts": each(filled(_host_problem)),
        "secretName": text(subdomain_problem),
    },
    "networking/IngressRule": {"host": text(_host_problem)},
    "networking/HTTPIngressRuleValue": {"paths": needed},
    "networking/HTTPIngressPath": {
        "": _ingress_path,
        "pathType": one_of("Exact", "ImplementationSpecific", "Prefix"),
    },
    "networking/IngressClassSpec": {
        "controller": both(needed, text(_domain_path_problem)),
    },
    "networking/IngressClassParametersReference": {
        **_REFERENCE,
        "scope": one_of("Cluster", "Namespace"),
        "namespace": text(dns_label_problem),
    },
    "networking/NetworkPolicySpec": {"policyTypes": each(one_of("Ingress", "Egress"))},
    "networking/NetworkPolicyPeer": {"": _peer},
    "networking/NetworkPolicyPort": {
        "": _policy_port,
        "protocol": one_of("TCP", "UDP", "SCTP"),
    },
    "networking/IPBlock": {
        "cidr": both(needed, text(cidr_problem)),
        "except": each(filled(cidr_problem)),
    },
    "networking/IPAddressSpec": {"parentRef": needed},
    "networking/ParentReference": {"resource": needed, "name": needed},
    "networking/ServiceCIDRSpec": {
        "cidrs": both(needed_because("at least one CIDR required"), each(filled(cidr_problem))),
    },
    "discovery/Endpoint": {
        "hostname": text(dns_label_problem),
        "nodeName": text(subdomain_problem),
    },
    "discovery/EndpointPort": {
        "name": text(dns_label_problem),
        "protocol": one_of(*_PROTOCOLS),
        "appProtocol": text(qualified_name_problem),
    },
    "discovery/ForZone": {"name": filled(label_value_problem)},
    "node/RuntimeClass": {"handler": text(dns_label_problem)},
    "node/Overhead": {"podFixed": amounts},
    "node/Scheduling": {"nodeSelector": _node_labels},
    "scheduling/PriorityClass": {
        "preemptionPolicy": given_one_of("PreemptLowerPriority", "Never"),
    },
    "flowcontrol/FlowSchemaSpec": {"matchingPrecedence": number(1, 10000)},
    "flowcontrol/FlowDistinguisherMethod": {"type": filled_one_of("ByNamespace", "ByUser")},
    "flowcontrol/PriorityLevelConfigurationReference": _NEEDED_NAME,
    "flowcontrol/PolicyRulesWithSubjects": {
        "subjects": needed_because("subjects must contain at least one value"),
    },
    "flowcontrol/Subject": {"kind": filled_one_of("Group", "ServiceAccount", "User")},
    "flowcontrol/UserSubject": _NEEDED_NAME,
    "flowcontrol/GroupSubject": _NEEDED_NAME,
    "flowcontrol/ServiceAccountSubject": {"name": needed, "namespace": needed},
    "flowcontrol/PriorityLevelConfigurationSpec": {"type": filled_one_of("Exempt", "Limited")},
    "flowcontrol/LimitedPriorityLevelConfiguration": {
        "nominalConcurrencyShares": not_negative,
        "lendablePercent": number(0, _PERCENT_MAX),
        "borrowingLimitPercent": not_negative,
    },
    "flowcontrol/LimitResponse": {"type": filled_one_of("Queue", "Reject")},
    "resource/DeviceClaim": {"requests": distinct_by("name")},
    "resource/DeviceRequest": {"": _request, "name": filled(dns_label_problem)},
    "resource/ExactDeviceRequest": _DEVICE_REQUEST,
    "resource/DeviceSubRequest": {**_DEVICE_REQUEST, "name": filled(dns_label_problem)},
    "resource/DeviceToleration": {
        "key": text(qualified_name_problem),
        "operator": one_of("Equal", "Exists"),
        "effect": one_of("NoExecute", "NoSchedule", "None"),
    },
    "resource/DeviceSelector": {"cel": needed},
    "resource/OpaqueDeviceConfiguration": {
        "driver": both(needed, text(driver_problem)),
        "parameters": present,
    },
    "resource/ResourceSliceSpec": {
        "driver": both(needed, text(driver_problem)),
        "nodeName": text(subdomain_problem),
    },
    "resource/ResourcePool": {
        "name": needed,
        "generation": not_negative,
        "resourceSliceCount": _greater_than_zero,
    },
    "resource/Device": {"name": filled(dns_label_problem)},
    "resource/DeviceTaint": {
        "key": filled(qualified_name_problem),
        "effect": both(needed, given_one_of("NoExecute", "NoSchedule", "None")),
    },
}
