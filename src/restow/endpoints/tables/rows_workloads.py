"""Columns of workloads, and of kinds that scale, protect and expose pods.

Not here: pods themselves; see `rows_pods`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from restow.endpoints.tables.columns import AGE, NAME, TableColumns, column, wide
from restow.endpoints.tables.rows_core import balancer_addresses
from restow.endpoints.tables.values import (
    NONE,
    UNKNOWN,
    UNSET,
    age,
    containers,
    flag,
    human_duration,
    items,
    label_selector,
    labels,
    mapping,
    moment,
    number,
    read,
    scalar,
    since,
    some_of,
    text,
    yes_or_no,
)

# A job's state is the first of these conditions that is true.
_JOB_STATES: Final = {
    "Complete": "Complete",
    "Failed": "Failed",
    "Suspended": "Suspended",
    "FailureTarget": "FailureTarget",
    "SuccessCriteriaMet": "SuccessCriteriaMet",
}
_METRICS_SHOWN_MAX: Final = 2
# Metric types with one total value, which is divided by the number of pods.
_OF_MANY: Final = ("External", "Object")


def _name(obj: Mapping[str, Any]) -> str:
    return text(obj, "metadata", "name")


def _template(obj: Mapping[str, Any]) -> tuple[str, str]:
    return containers(read(obj, "spec", "template", "spec"))


def _deployment(obj: Mapping[str, Any], now: datetime) -> list[object]:
    ready, wanted = number(obj, "status", "readyReplicas"), number(obj, "spec", "replicas")
    return [
        _name(obj),
        f"{ready}/{wanted}",
        number(obj, "status", "updatedReplicas"),
        number(obj, "status", "availableReplicas"),
        age(obj, now),
        *_template(obj),
        label_selector(read(obj, "spec", "selector")),
    ]


def _replica_set(obj: Mapping[str, Any], now: datetime) -> list[object]:
    selector = read(obj, "spec", "selector")
    # A replication controller has a label map where a replica set has a selector.
    plain = read(selector, "matchLabels") is None and read(selector, "matchExpressions") is None
    return [
        _name(obj),
        number(obj, "spec", "replicas"),
        number(obj, "status", "replicas"),
        number(obj, "status", "readyReplicas"),
        age(obj, now),
        *_template(obj),
        labels(selector) if plain else label_selector(selector),
    ]


def _stateful_set(obj: Mapping[str, Any], now: datetime) -> list[object]:
    ready, wanted = number(obj, "status", "readyReplicas"), number(obj, "spec", "replicas")
    return [_name(obj), f"{ready}/{wanted}", age(obj, now), *_template(obj)]


def _daemon_set(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [
        _name(obj),
        number(obj, "status", "desiredNumberScheduled"),
        number(obj, "status", "currentNumberScheduled"),
        number(obj, "status", "numberReady"),
        number(obj, "status", "updatedNumberScheduled"),
        number(obj, "status", "numberAvailable"),
        labels(read(obj, "spec", "template", "spec", "nodeSelector")),
        age(obj, now),
        *_template(obj),
        label_selector(read(obj, "spec", "selector")),
    ]


def _job(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [
        _name(obj),
        _job_state(obj),
        _job_completions(obj),
        _job_duration(obj, now),
        age(obj, now),
        *_template(obj),
        label_selector(read(obj, "spec", "selector")),
    ]


def _job_state(obj: Mapping[str, Any]) -> str:
    true = {
        text(found, "type")
        for found in items(obj, "status", "conditions")
        if text(found, "status") == "True"
    }
    going = read(obj, "metadata", "deletionTimestamp") is not None
    if going and "Complete" not in true and "Failed" not in true:
        return "Terminating"
    return next((word for kind, word in _JOB_STATES.items() if kind in true), "Running")


def _job_completions(obj: Mapping[str, Any]) -> str:
    done = number(obj, "status", "succeeded")
    if read(obj, "spec", "completions") is not None:
        return f"{done}/{number(obj, 'spec', 'completions')}"
    parallel = number(obj, "spec", "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(obj: Mapping[str, Any], now: datetime) -> str:
    start = moment(read(obj, "status", "startTime"))
    if start is None:
        return ""
    end = moment(read(obj, "status", "completionTime")) or now
    return human_duration(end - start)


def _cron_job(obj: Mapping[str, Any], now: datetime) -> list[object]:
    last = read(obj, "status", "lastScheduleTime")
    pods = read(obj, "spec", "jobTemplate", "spec", "template", "spec")
    return [
        _name(obj),
        text(obj, "spec", "schedule"),
        text(obj, "spec", "timeZone") or NONE,
        yes_or_no(read(obj, "spec", "suspend")),
        len(items(obj, "status", "active")),
        NONE if last is None else since(last, now),
        age(obj, now),
        *containers(pods),
        label_selector(read(obj, "spec", "jobTemplate", "spec", "selector")),
    ]


def _autoscaler(obj: Mapping[str, Any], now: datetime) -> list[object]:
    target = mapping(obj, "spec", "scaleTargetRef")
    least = read(obj, "spec", "minReplicas")
    return [
        _name(obj),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _targets(obj),
        UNSET if least is None else scalar(least),
        number(obj, "spec", "maxReplicas"),
        number(obj, "status", "currentReplicas"),
        age(obj, now),
    ]


def _targets(obj: Mapping[str, Any]) -> str:
    """Current and target values, as in `cpu: 10%/80%`."""
    metrics = items(obj, "spec", "metrics")
    if not metrics:
        wanted = read(obj, "spec", "targetCPUUtilizationPercentage")  # autoscaling/v1
        if wanted is None:
            return NONE
        have = read(obj, "status", "currentCPUUtilizationPercentage")
        return f"cpu: {_percent(have)}/{_percent(wanted)}"
    current = items(obj, "status", "currentMetrics")
    shown = [
        _metric(metric, current[position] if position < len(current) else None)
        for position, metric in enumerate(metrics)
    ]
    more = len(shown) - _METRICS_SHOWN_MAX
    listed = ", ".join(shown[:_METRICS_SHOWN_MAX])
    return f"{listed} + {more} more..." if more > 0 else listed


def _metric(metric: object, current: object) -> str:
    kind = text(metric, "type")
    field = kind[:1].lower() + kind[1:]
    wanted, have = mapping(metric, field, "target"), mapping(current, field, "current")
    if read(wanted, "averageUtilization") is not None:
        values = (_percent(have.get("averageUtilization")), _percent(wanted["averageUtilization"]))
    elif read(wanted, "averageValue") is not None:
        of_each = " (avg)" if kind in _OF_MANY else ""
        values = (_value(have.get("averageValue")), _value(wanted["averageValue"]) + of_each)
    else:
        values = (_value(have.get("value")), _value(wanted.get("value")))
    name = text(metric, field, "name")  # the resource; other sources are identified by order
    both = "/".join(values)
    return f"{name}: {both}" if name else both


def _percent(value: object) -> str:
    return f"{value}%" if isinstance(value, int) else UNKNOWN


def _value(value: object) -> str:
    return scalar(value) or UNKNOWN


def _disruption_budget(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [
        _name(obj),
        scalar(read(obj, "spec", "minAvailable")) or "N/A",
        scalar(read(obj, "spec", "maxUnavailable")) or "N/A",
        number(obj, "status", "disruptionsAllowed"),
        age(obj, now),
    ]


def _ingress(obj: Mapping[str, Any], now: datetime) -> list[object]:
    rules = items(obj, "spec", "rules")
    return [
        _name(obj),
        text(obj, "spec", "ingressClassName") or NONE,
        some_of([text(rule, "host") or "*" for rule in rules], empty="*"),
        ",".join(balancer_addresses(obj)),
        "80, 443" if items(obj, "spec", "tls") else "80",
        age(obj, now),
    ]


def _ingress_class(obj: Mapping[str, Any], now: datetime) -> list[object]:
    parameters = mapping(obj, "spec", "parameters")
    kind, group = text(parameters, "kind"), text(parameters, "apiGroup")
    if group:
        kind = f"{kind}.{group}"
    shown = f"{kind}/{text(parameters, 'name')}" if parameters else NONE
    return [_name(obj), text(obj, "spec", "controller"), shown, age(obj, now)]


def _network_policy(obj: Mapping[str, Any], now: datetime) -> list[object]:
    return [_name(obj), label_selector(read(obj, "spec", "podSelector")), age(obj, now)]


def _endpoint_slice(obj: Mapping[str, Any], now: datetime) -> list[object]:
    ports = [_port(port) for port in items(obj, "ports")]
    return [
        _name(obj),
        text(obj, "addressType"),
        some_of(ports, empty=UNSET),
        some_of(_slice_addresses(obj), empty=UNSET),
        age(obj, now),
    ]


def _port(port: object) -> str:
    found = read(port, "port")
    return "*" if found is None else scalar(found)


def _slice_addresses(obj: Mapping[str, Any]) -> Iterable[str]:
    for endpoint in items(obj, "endpoints"):
        for address in items(endpoint, "addresses"):
            if isinstance(address, str):
                yield address


def _controller_revision(obj: Mapping[str, Any], now: datetime) -> list[object]:
    owners = [o for o in items(obj, "metadata", "ownerReferences") if flag(o, "controller")]
    owner = NONE
    if owners:
        group = text(owners[0], "apiVersion").rpartition("/")[0]
        kind = text(owners[0], "kind").lower()
        owner = f"{kind}.{group}/" if group else f"{kind}/"
        owner += text(owners[0], "name")
    return [_name(obj), owner, number(obj, "revision"), age(obj, now)]


def _scale(obj: Mapping[str, Any], now: datetime) -> list[object]:
    wanted, have = number(obj, "spec", "replicas"), number(obj, "status", "replicas")
    return [_name(obj), wanted, have, age(obj, now)]


_POD_COLUMNS: Final = [
    wide("Containers", about="Names of the containers."),
    wide("Images", about="Images of the containers."),
]
_SELECTOR: Final = wide("Selector", about="Which pods belong to it.")

_REPLICA_SET: Final = TableColumns(
    [
        NAME,
        column("Desired", "integer", about="Pods wanted."),
        column("Current", "integer", about="Pods there are."),
        column("Ready", "integer", about="Pods that are ready."),
        AGE,
        *_POD_COLUMNS,
        _SELECTOR,
    ],
    _replica_set,
)

COLUMNS: Final[dict[tuple[str, str], TableColumns]] = {
    ("apps", "Deployment"): TableColumns(
        [
            NAME,
            column("Ready", about="Pods ready, of those wanted."),
            column("Up-to-date", about="Pods of the newest template."),
            column("Available", about="Pods that have been ready long enough."),
            AGE,
            *_POD_COLUMNS,
            _SELECTOR,
        ],
        _deployment,
    ),
    ("apps", "ReplicaSet"): _REPLICA_SET,
    ("", "ReplicationController"): _REPLICA_SET,
    ("apps", "StatefulSet"): TableColumns(
        [NAME, column("Ready", about="Pods ready, of those wanted."), AGE, *_POD_COLUMNS],
        _stateful_set,
    ),
    ("apps", "DaemonSet"): TableColumns(
        [
            NAME,
            column("Desired", "integer", about="Nodes that should run it."),
            column("Current", "integer", about="Nodes that run it."),
            column("Ready", "integer", about="Nodes where it is ready."),
            column("Up-to-date", "integer", about="Nodes with the newest template."),
            column("Available", "integer", about="Nodes where it has been ready long enough."),
            column("Node Selector", about="Labels of the nodes."),
            AGE,
            *_POD_COLUMNS,
            _SELECTOR,
        ],
        _daemon_set,
    ),
    ("apps", "ControllerRevision"): TableColumns(
        [
            NAME,
            column("Controller", about="Controller of the revision."),
            column("Revision", about="Its number."),
            AGE,
        ],
        _controller_revision,
    ),
    ("batch", "Job"): TableColumns(
        [
            NAME,
            column("Status", about="State of the job in one word."),
            column("Completions", about="Pods that succeeded, of those wanted."),
            column("Duration", about="How long it ran, or has run."),
            AGE,
            *_POD_COLUMNS,
            _SELECTOR,
        ],
        _job,
    ),
    ("batch", "CronJob"): TableColumns(
        [
            NAME,
            column("Schedule", about="When it runs."),
            column("Timezone", about="Time zone of the schedule."),
            column("Suspend", "boolean", about="Whether it is suspended."),
            column("Active", "integer", about="Jobs that run now."),
            column("Last Schedule", about="Time since it last ran."),
            AGE,
            *_POD_COLUMNS,
            _SELECTOR,
        ],
        _cron_job,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): TableColumns(
        [
            NAME,
            column("Reference", about="What it scales."),
            column("Targets", about="Measured and wanted values."),
            column("MinPods", about="Fewest pods."),
            column("MaxPods", about="Most pods."),
            column("Replicas", about="Pods there are."),
            AGE,
        ],
        _autoscaler,
    ),
    ("autoscaling", "Scale"): TableColumns(
        [
            NAME,
            column("Desired", "integer", about="Replicas wanted."),
            column("Available", "integer", about="Replicas there are."),
            AGE,
        ],
        _scale,
    ),
    ("policy", "PodDisruptionBudget"): TableColumns(
        [
            NAME,
            column("Min Available", about="Pods that must stay available."),
            column("Max Unavailable", about="Pods that may be unavailable."),
            column("Allowed Disruptions", "integer", about="Pods that may be evicted now."),
            AGE,
        ],
        _disruption_budget,
    ),
    ("networking.k8s.io", "Ingress"): TableColumns(
        [
            NAME,
            column("Class", about="Class of the ingress."),
            column("Hosts", about="Host names that it serves."),
            column("Address", about="Addresses of the load balancer."),
            column("Ports", about="Ports that it serves."),
            AGE,
        ],
        _ingress,
    ),
    ("networking.k8s.io", "IngressClass"): TableColumns(
        [
            NAME,
            column("Controller", about="Controller that implements the class."),
            column("Parameters", about="Object with more settings."),
            AGE,
        ],
        _ingress_class,
    ),
    ("networking.k8s.io", "NetworkPolicy"): TableColumns(
        [NAME, column("Pod-Selector", about="Which pods it applies to."), AGE], _network_policy
    ),
    ("discovery.k8s.io", "EndpointSlice"): TableColumns(
        [
            NAME,
            column("AddressType", about="Kind of the addresses."),
            column("Ports", about="Ports of the endpoints."),
            column("Endpoints", about="Addresses of the endpoints."),
            AGE,
        ],
        _endpoint_slice,
    ),
}
# Kinds that were moved from another group have the same columns.
COLUMNS.update(
    {
        ("extensions", kind): COLUMNS[group, kind]
        for group, kind in (
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "DaemonSet"),
            ("networking.k8s.io", "Ingress"),
            ("networking.k8s.io", "NetworkPolicy"),
        )
    }
)
