"""Rules about several fields, and the errors of objects that violate one.

The messages are those of a kube-apiserver 1.36 for the same object.
"""

from __future__ import annotations

from typing import Any

import pytest

from restow.kinds.defaults import apply_defaults, prepare_create
from restow.kinds.validation import validate

Object = dict[str, Any]

LABELS = {"a": "b"}


def pod(container: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i", **(container or {})}]
    return made("v1", "Pod", spec={"containers": containers, **spec})


def deployment(template: Object | None = None, **spec: Any) -> Object:
    inner = {"metadata": {"labels": LABELS}, "spec": pod()["spec"], **(template or {})}
    whole = {"selector": {"matchLabels": LABELS}, "template": inner, **spec}
    return made("apps/v1", "Deployment", spec=whole)


def service(**spec: Any) -> Object:
    return made("v1", "Service", spec={"ports": [{"port": 1}], **spec})


def event(**fields: Any) -> Object:
    """An event of the newer group, in the stored form."""
    usual = {
        "reason": "r",
        "action": "a",
        "type": "Normal",
        "reportingComponent": "a.b/c",
        "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "involvedObject": {"namespace": "n"},
    }
    return made("v1", "Event", **{**usual, **fields})


def autoscaler(**spec: Any) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    whole = {"maxReplicas": 3, "scaleTargetRef": target, **spec}
    return made("autoscaling/v2", "HorizontalPodAutoscaler", spec=whole)


def made(version: str, kind: str, **fields: Any) -> Object:
    metadata = {"name": "r", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def resources(**found: Object) -> Object:
    return pod({"resources": found})


PORT = "spec.ports[0].nodePort"
FIRST = "spec.containers[0]"
BOTH = [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]
BALANCED = "Forbidden: may only be used when `type` is 'LoadBalancer'"
RANGES = "spec.LoadBalancerSourceRanges"
MOUNTS = [{"name": "v", "mountPath": "/a"}] * 2
FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
LIMITS = {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}

REFUSED: list[tuple[Object, str, str]] = [
    (
        pod(volumes=[{"name": "v", "emptyDir": {}, "configMap": {"name": "x"}}]),
        "spec.volumes[0].configMap",
        "Forbidden: may not specify more than 1 volume type",
    ),
    (
        pod(tolerations=[{"key": "a", "effect": "Q"}]),
        "spec.tolerations[0].effect",
        'Unsupported value: "Q": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
    ),
    (
        pod(tolerations=[{"key": "a", "operator": "Gt", "value": "4"}]),
        "spec.tolerations[0].operator",
        'Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"',
    ),
    (
        pod(ephemeralContainers=[{"name": "e", "image": "i"}]),
        "spec.ephemeralContainers",
        "Forbidden: cannot be set on create",
    ),
    (pod({"ports": BOTH}), f"{FIRST}.ports[1].hostPort", 'Duplicate value: "TCP//5"'),
    (
        pod({"ports": [{"containerPort": 1, "hostPort": 5}]}, hostNetwork=True),
        f"{FIRST}.ports[0].hostPort",
        "Invalid value: 5: must match `containerPort` when `hostNetwork` is true",
    ),
    (
        pod({"ports": [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]}),
        f"{FIRST}.ports[1].name",
        'Duplicate value: "a"',
    ),
    (
        pod({"volumeMounts": MOUNTS}, volumes=[{"name": "v", "emptyDir": {}}]),
        f"{FIRST}.volumeMounts[1].mountPath",
        'Invalid value: "/a": must be unique',
    ),
    (
        pod({"env": [{"name": "a=b", "value": "c"}]}),
        f"{FIRST}.env[0].name",
        'Invalid value: "a=b": a valid environment variable name must consist only of printable',
    ),
    (
        pod({"env": [{"name": "a", "value": "c", "valueFrom": FIELD}]}),
        f"{FIRST}.env[0].valueFrom",
        'Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        pod({"image": " i"}),
        f"{FIRST}.image",
        'Invalid value: " i": must not have leading or trailing whitespace',
    ),
    (
        pod({"terminationMessagePolicy": "X"}),
        f"{FIRST}.terminationMessagePolicy",
        'Unsupported value: "X": supported values: "File", "FallbackToLogsOnError"',
    ),
    (
        pod(initContainers=[{"name": "c", "image": "i"}]),
        "spec.initContainers[0].name",
        'Duplicate value: "c"',
    ),
    (
        pod(initContainers=[{"name": "d", "image": "i", "lifecycle": {}}]),
        "spec.initContainers[0].lifecycle",
        "Forbidden: may not be set for init containers without restartPolicy=Always",
    ),
    (
        pod(shareProcessNamespace=True, hostPID=True),
        "spec.securityContext.shareProcessNamespace",
        "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
    ),
    (
        resources(limits={"hugepages-2Mi": "2Mi"}),
        f"{FIRST}.resources",
        "Forbidden: HugePages require cpu or memory",
    ),
    (
        resources(requests={"a.b/c": "2"}),
        f"{FIRST}.resources.limits",
        "Required value: Limit must be set for non overcommitable resources",
    ),
    (
        resources(limits={"a.b/c": "1500m"}, requests={"a.b/c": "1500m"}),
        f"{FIRST}.resources.limits[a.b/c]",
        'Invalid value: "1500m": must be an integer',
    ),
    (
        deployment({"spec": {**pod()["spec"], "ephemeralContainers": [{"name": "e"}]}}),
        "spec.template.spec.ephemeralContainers",
        "Forbidden: ephemeral containers not allowed in pod template",
    ),
    (service(clusterIP="10.0.0.4", clusterIPs=["10.0.0.5"]), "spec.clusterIPs", "Invalid value: "),
    (
        service(externalTrafficPolicy="Local"),
        "spec.externalTrafficPolicy",
        'Invalid value: "Local": may only be set for externally-accessible services',
    ),
    (
        service(type="NodePort", externalTrafficPolicy="X"),
        "spec.externalTrafficPolicy",
        'Unsupported value: "X": supported values: "Cluster", "Local"',
    ),
    (
        service(ports=[{"port": 1, "nodePort": 31111}]),
        PORT,
        "Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (service(loadBalancerClass="a/b"), "spec.loadBalancerClass", BALANCED),
    (service(loadBalancerSourceRanges=["10.0.0.0/8"]), RANGES, BALANCED),
    (
        service(allocateLoadBalancerNodePorts=True),
        "spec.allocateLoadBalancerNodePorts",
        BALANCED,
    ),
    (
        service(type="NodePort", clusterIP="None"),
        "spec.clusterIPs[0]",
        "Invalid value: \"None\": may not be set to 'None' for NodePort services",
    ),
    (
        service(type="ExternalName", externalName="a.b", clusterIP="10.0.0.4"),
        "spec.clusterIPs",
        "Forbidden: may not be set for ExternalName services",
    ),
    (event(eventTime=None), "eventTime", "Required value"),
    (event(series={"count": 1}), "series.count", 'Invalid value: "": should be at least 2'),
    (event(type="X"), "type", 'Invalid value: "": has invalid value: X'),
    (event(count=3), "count", 'Invalid value: "": needs to be unset'),
    (
        event(involvedObject={}),
        "involvedObject.namespace",
        'Invalid value: "": does not match event.namespace',
    ),
    (
        autoscaler(scaleTargetRef={"apiVersion": "v1", "kind": "D", "name": "d"}),
        "spec.scaleTargetRef.apiVersion",
        'Invalid value: "v1": apiVersion must specify API group',
    ),
    (
        made("v1", "LimitRange", spec={"limits": [LIMITS]}),
        "spec.limits[0].min[cpu]",
        'Invalid value: "2": min value 2 is greater than max value 1',
    ),
    (
        made("v1", "ReplicationController", spec={"selector": LABELS}),
        "spec.template",
        "Required value",
    ),
    (
        made("batch/v1", "Job", spec={"manualSelector": True, "template": deployment()["spec"]}),
        "spec.selector",
        "Required value",
    ),
]

WELCOME: list[Object] = [
    pod(),
    deployment(),
    service(),
    event(),
    # The event of one object may be stored in another namespace.
    event(involvedObject={"namespace": "other"}),
    autoscaler(scaleTargetRef={"kind": "ReplicationController", "name": "d"}),
    # Labels of the metrics source are not those of objects.
    autoscaler(
        metrics=[
            {
                "type": "External",
                "external": {
                    "metric": {"name": "m", "selector": {"matchLabels": {"a": "b c/d"}}},
                    "target": {"type": "Value", "value": "1"},
                },
            }
        ]
    ),
    pod({"env": [{"name": "a", "valueFrom": FIELD}]}),
    resources(limits={"a.b/c": "2", "cpu": "1"}, requests={"a.b/c": "2", "cpu": "500m"}),
    service(type="NodePort", ports=[{"port": 1, "nodePort": 31111}]),
]


def group_of(obj: Object) -> str:
    if obj["kind"] == "Event":
        return "events.k8s.io"
    return str(obj["apiVersion"].rpartition("/")[0])


def errors_of(obj: Object) -> list[tuple[str, str]]:
    """Returns the errors of a new object, after its defaults."""
    if obj["kind"] == "Pod":
        prepare_create("", "Pod", obj)
    apply_defaults(group_of(obj), obj["apiVersion"].rpartition("/")[2], obj["kind"], obj)
    causes = validate(group_of(obj), obj["kind"], obj)
    return [(cause.field, cause.message) for cause in causes]


@pytest.mark.parametrize(("obj", "field", "message"), REFUSED)
def test_refused(obj: Object, field: str, message: str) -> None:
    """Each violation has its field and the message of Kubernetes."""
    found = errors_of(obj)
    assert any(each == field and text.startswith(message) for each, text in found), found


@pytest.mark.parametrize("obj", WELCOME)
def test_valid_objects(obj: Object) -> None:
    """A valid object has no error."""
    assert errors_of(obj) == []


def test_existing_errors_are_tolerated() -> None:
    """A rule that is newer than an object does not block updates of it."""
    old, new = (service(externalTrafficPolicy="Local", selector={"a": each}) for each in "bc")
    assert validate("", "Service", new, old) == []
    node, other = (made("v1", "Node", spec={"podCIDRs": [each]}) for each in ("::/64", "::/65"))
    assert [cause.field for cause in validate("", "Node", other, node)] == ["spec.podCIDRs"]
