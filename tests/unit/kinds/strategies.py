"""Strategies for objects of the built-in kinds, for property tests of their conversions.

As after decoding: no field is null, and empty fields are absent. Names that conversions reserve are
not generated.
"""

from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]
Objects = st.SearchStrategy[Object]

WORDS = st.sampled_from(["a", "b", "web", "x-1", "cpu", "memory"])
NUMBERS = st.integers(0, 1000)
QUANTITIES = st.sampled_from(["0", "1", "500m", "2Gi"])
TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2026-11-15T00:00:00Z"])
LABELS = st.dictionaries(WORDS, WORDS, min_size=1, max_size=3)
SELECTORS = st.one_of(
    st.fixed_dictionaries({"matchLabels": LABELS}),
    st.fixed_dictionaries(
        {"matchExpressions": st.lists(st.fixed_dictionaries({"key": WORDS}), min_size=1)}
    ),
)


def some(fields: dict[str, st.SearchStrategy[Any]]) -> Objects:
    """Objects with any of these fields, but at least one."""
    return st.fixed_dictionaries({}, optional=fields).filter(bool)


def objects(kind: str, api_version: str, **parts: Objects) -> Objects:
    """Complete objects with some of the parts."""
    metadata = st.fixed_dictionaries({"name": WORDS}, optional={"annotations": LABELS})
    return st.fixed_dictionaries(
        {"kind": st.just(kind), "apiVersion": st.just(api_version), "metadata": metadata},
        optional=parts,
    )


def targets(*names: str) -> Objects:
    """Targets of a metric, valid or not."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "value": QUANTITIES,
        "averageValue": QUANTITIES,
        "averageUtilization": NUMBERS,
    }
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["Utilization", "AverageValue", "Value"])},
        optional={name: fields[name] for name in names},
    )


def metrics(member: str) -> Objects:
    """Metrics of `autoscaling/v2`; the member is `target` or `current`."""
    numbers = targets("value", "averageValue", "averageUtilization")
    if member == "current":
        numbers = numbers.map(lambda each: {k: v for k, v in each.items() if k != "type"})
    identity = st.fixed_dictionaries({"name": WORDS}, optional={"selector": SELECTORS})
    reference = st.fixed_dictionaries({"kind": WORDS, "name": WORDS})
    resource = st.fixed_dictionaries({"name": WORDS, member: numbers})
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("Resource"), "resource": resource}),
        st.fixed_dictionaries(
            {
                "type": st.just("Resource"),
                "resource": st.fixed_dictionaries(
                    {
                        "name": st.just("cpu"),
                        member: st.fixed_dictionaries(
                            {"type": st.just("Utilization"), "averageUtilization": NUMBERS}
                            if member == "target"
                            else {"averageUtilization": NUMBERS}
                        ),
                    }
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("ContainerResource"),
                "containerResource": st.fixed_dictionaries(
                    {"name": WORDS, "container": WORDS, member: numbers}
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("Pods"),
                "pods": st.fixed_dictionaries({"metric": identity, member: numbers}),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("Object"),
                "object": st.fixed_dictionaries(
                    {"metric": identity, "describedObject": reference, member: numbers}
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("External"),
                "external": st.fixed_dictionaries({"metric": identity, member: numbers}),
            }
        ),
    )


_RULES = some(
    {
        "stabilizationWindowSeconds": NUMBERS,
        "selectPolicy": st.sampled_from(["Max", "Min"]),
        "tolerance": QUANTITIES,
        "policies": st.lists(
            st.fixed_dictionaries({"type": WORDS, "value": NUMBERS, "periodSeconds": NUMBERS}),
            min_size=1,
            max_size=2,
        ),
    }
)
_CONDITIONS = st.lists(
    st.fixed_dictionaries({"type": WORDS, "status": WORDS, "lastTransitionTime": TIMES}),
    min_size=1,
    max_size=2,
)

AUTOSCALERS = objects(
    "HorizontalPodAutoscaler",
    "autoscaling/v2",
    spec=some(
        {
            "maxReplicas": NUMBERS,
            "metrics": st.lists(metrics("target"), min_size=1, max_size=4),
            "behavior": some({"scaleUp": _RULES, "scaleDown": _RULES}),
        }
    ),
    status=some(
        {
            "desiredReplicas": NUMBERS,
            "currentMetrics": st.lists(metrics("current"), min_size=1, max_size=3),
            "conditions": _CONDITIONS,
        }
    ),
)
AUTOSCALERS_V1 = objects(
    "HorizontalPodAutoscaler",
    "autoscaling/v1",
    spec=some({"maxReplicas": NUMBERS, "targetCPUUtilizationPercentage": NUMBERS}),
    status=some({"desiredReplicas": NUMBERS, "currentCPUUtilizationPercentage": NUMBERS}),
)

_DEPLOYMENT_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "replicas": NUMBERS,
    "selector": SELECTORS,
    "paused": st.booleans(),
}
DEPLOYMENTS = objects(
    "Deployment",
    "apps/v1",
    spec=some(_DEPLOYMENT_FIELDS),
    status=some({"replicas": NUMBERS}),
)
DEPLOYMENTS_V1BETA1 = objects(
    "Deployment",
    "apps/v1beta1",
    spec=some(
        {
            **_DEPLOYMENT_FIELDS,
            "rollbackTo": st.one_of(
                st.just({}), st.fixed_dictionaries({"revision": st.integers(1, 2**63 - 1)})
            ),
        }
    ),
)

_BUDGET_SPEC = some({"minAvailable": NUMBERS, "selector": st.one_of(st.just({}), SELECTORS)})
BUDGETS = objects("PodDisruptionBudget", "policy/v1", spec=_BUDGET_SPEC)
BUDGETS_V1BETA1 = objects("PodDisruptionBudget", "policy/v1beta1", spec=_BUDGET_SPEC)

_REFERENCES = some({"kind": WORDS, "name": WORDS, "namespace": WORDS})
EVENTS = st.tuples(
    objects("Event", "v1"),
    st.fixed_dictionaries(
        {},
        optional={
            "involvedObject": _REFERENCES,
            "reason": WORDS,
            "message": WORDS,
            "source": some({"component": WORDS, "host": WORDS}),
            "firstTimestamp": TIMES,
            "lastTimestamp": TIMES,
            "count": NUMBERS,
            "eventTime": TIMES,
            "series": some({"count": NUMBERS, "lastObservedTime": TIMES}),
            "related": _REFERENCES,
            "reportingComponent": WORDS,
            "reportingInstance": WORDS,
            "type": WORDS,
        },
    ),
).map(lambda parts: {**parts[0], **parts[1]})

_OLD_BACKENDS = some(
    {"serviceName": WORDS, "servicePort": st.one_of(NUMBERS, WORDS), "resource": _REFERENCES}
)
INGRESSES_V1BETA1 = objects(
    "Ingress",
    "networking.k8s.io/v1beta1",
    spec=some(
        {
            "backend": _OLD_BACKENDS,
            "rules": st.lists(
                some(
                    {
                        "host": WORDS,
                        "http": st.fixed_dictionaries(
                            {"paths": st.lists(st.fixed_dictionaries({"backend": _OLD_BACKENDS}))}
                        ),
                    }
                )
            ),
        }
    ),
)
SLICES_V1BETA1 = objects(
    "EndpointSlice",
    "discovery.k8s.io/v1beta1",
).flatmap(
    lambda slice_: st.lists(
        some(
            {
                "nodeName": WORDS,
                "topology": st.dictionaries(
                    st.sampled_from(["topology.kubernetes.io/zone", "a", "b"]),
                    WORDS,
                    min_size=1,
                ),
            }
        ),
        max_size=3,
    ).map(lambda endpoints: {**slice_, "endpoints": endpoints})
)
LEVELS_V1BETA2 = objects(
    "PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    spec=some(
        {"type": WORDS, "limited": some({"assuredConcurrencyShares": NUMBERS, "x": NUMBERS})}
    ),
)

_BACKENDS = some(
    {
        "service": some(
            {
                "name": WORDS,
                "port": st.one_of(
                    st.fixed_dictionaries({"name": WORDS}),
                    st.fixed_dictionaries({"number": NUMBERS}),
                ),
            }
        ),
        "resource": _REFERENCES,
    }
)
INGRESSES = objects(
    "Ingress",
    "networking.k8s.io/v1",
    spec=some(
        {
            "defaultBackend": _BACKENDS,
            "rules": st.lists(
                st.fixed_dictionaries(
                    {
                        "http": st.fixed_dictionaries(
                            {"paths": st.lists(st.fixed_dictionaries({"backend": _BACKENDS}))}
                        )
                    }
                )
            ),
        }
    ),
)
SLICES = objects("EndpointSlice", "discovery.k8s.io/v1").flatmap(
    lambda slice_: st.lists(
        some({"nodeName": WORDS, "zone": WORDS, "deprecatedTopology": LABELS}), max_size=3
    ).map(lambda endpoints: {**slice_, "endpoints": endpoints})
)
LEVELS = objects(
    "PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1",
    spec=some(
        {"type": WORDS, "limited": some({"nominalConcurrencyShares": NUMBERS, "x": NUMBERS})}
    ),
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "template",
                    "metadata",
                    "labels",
                    "containers",
                    "ports",
                    "webhooks",
                    "rules",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
"""Any value, with field names of the kinds in arbitrary positions."""
