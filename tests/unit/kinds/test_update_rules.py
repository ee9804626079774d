"""Fields that an update keeps, and fields that are immutable."""

import copy
from typing import Any

import pytest

from restow.kinds.defaults import apply_defaults, prepare_create, prepare_update
from restow.kinds.validation import validate

Object = dict[str, Any]
META = {"name": "a", "uid": "u"}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}


def made(group: str, kind: str, version: str, **content: Any) -> Object:
    """Returns an object as created."""
    api_version = f"{group}/{version}" if group else version
    obj = {"apiVersion": api_version, "kind": kind, "metadata": dict(META)}
    obj |= copy.deepcopy(content)
    apply_defaults(group, version, kind, obj)
    prepare_create(group, kind, obj)
    return obj


def rewritten(old: Object, **content: Any) -> tuple[Object, set[str]]:
    """Returns the object after an update with other content, and the fields with errors."""
    group, _, version = old["apiVersion"].rpartition("/")
    kept = {name: old[name] for name in ("apiVersion", "kind", "metadata")}
    new = copy.deepcopy({**kept, **content})
    apply_defaults(group, version, old["kind"], new)
    before = copy.deepcopy(old)
    prepare_update(group, old["kind"], new, old)
    assert old == before
    return new, {cause.field for cause in validate(group, old["kind"], new, old)}


@pytest.mark.parametrize(
    ("group", "kind", "content"),
    [
        ("", "Namespace", {"spec": {}}),
        ("", "Service", {"spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]}}),
        ("apps", "DaemonSet", {"spec": {"template": TEMPLATE}}),
        ("batch", "Job", {"spec": {"template": TEMPLATE}}),
    ],
)
def test_a_retried_create_starts_from_the_same_object(
    group: str, kind: str, content: Object
) -> None:
    """A create may be retried with another UID: nothing of the first attempt remains."""
    version = f"{group}/v1" if group else "v1"
    metadata = {**META, "annotations": {}}
    sent: Object = {"apiVersion": version, "kind": kind, "metadata": metadata}
    sent = copy.deepcopy({**sent, **content})
    apply_defaults(group, "v1", kind, sent)
    before = copy.deepcopy(sent)
    for uid in ("u", "v"):
        new = {**sent, "metadata": {**sent["metadata"], "uid": uid}}
        prepare_create(group, kind, new)
        assert sent == before
        assert not [cause for cause in validate(group, kind, new) if cause.field == "spec.selector"]


def test_service_keeps_its_address() -> None:
    """Applying a manifest again keeps the addresses and the ports of a service."""
    ports = [{"port": 80, "nodePort": 30080}]
    service = made("", "Service", "v1", spec={"clusterIP": "10.0.0.7", "ports": ports})
    again, wrong = rewritten(service, spec={"ports": [{"port": 81}]})
    assert wrong == set()
    assert again["spec"]["clusterIP"] == "10.0.0.7"
    assert again["spec"]["clusterIPs"] == ["10.0.0.7"]
    balanced = made("", "Service", "v1", spec={"type": "NodePort", "ports": ports})
    again, _ = rewritten(balanced, spec={"type": "NodePort", "ports": [{"port": 80}]})
    assert again["spec"]["ports"][0]["nodePort"] == 30080


def test_service_loses_fields_of_another_type() -> None:
    """A service loses its addresses if its new type has none."""
    service = made("", "Service", "v1", spec={"clusterIP": "10.0.0.7", "ports": [{"port": 80}]})
    spec = {**service["spec"], "type": "ExternalName", "externalName": "a.example.com"}
    again, _ = rewritten(service, spec=spec)
    assert not {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} & again["spec"].keys()


def test_pod_keeps_fields_set_by_admission() -> None:
    """A pod's manifest lacks its priority and the tolerations that were added."""
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    unwell = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    pod = made("", "Pod", "v1", spec={**spec, "priority": 0, "tolerations": [unwell]})
    again, wrong = rewritten(pod, spec=spec)
    assert wrong == set()
    assert again["spec"] == pod["spec"]
    own = made("", "Pod", "v1", spec={**spec, "tolerations": [{"operator": "Exists"}]})
    assert rewritten(own, spec=spec)[1] == {"spec.tolerations"}


def test_active_deadline_of_a_pod_only_decreases() -> None:
    """activeDeadlineSeconds can be set later and be reduced, but not be removed."""
    spec = {"containers": [{"name": "c", "image": "nginx"}]}
    field = "activeDeadlineSeconds"
    pod = made("", "Pod", "v1", spec={**spec, field: 60})
    assert rewritten(made("", "Pod", "v1", spec=spec), spec={**spec, field: 60})[1] == set()
    assert rewritten(pod, spec={**spec, field: 60})[1] == set()
    assert rewritten(pod, spec={**spec, field: 59})[1] == set()
    assert rewritten(pod, spec={**spec, field: 61})[1] == {f"spec.{field}"}
    assert rewritten(pod, spec=spec)[1] == {f"spec.{field}"}


def test_pod_with_a_scheduling_gate_may_be_narrowed() -> None:
    """Until it is scheduled, its node affinity may become more specific."""
    spec = {"containers": [{"name": "c", "image": "nginx"}], "nodeSelector": {"a": "b"}}
    gated = {**spec, "schedulingGates": [{"name": "example.com/gate"}]}
    pod = made("", "Pod", "v1", spec=gated)
    more = {"nodeSelector": {"a": "b", "c": "d"}}
    assert rewritten(pod, spec={**gated, **more})[1] == set()
    assert rewritten(pod, spec={**spec, **more})[1] == set()
    for less in ({}, {"a": "c"}):
        assert rewritten(pod, spec={**gated, "nodeSelector": less})[1] == {"spec.nodeSelector"}
    assert rewritten(made("", "Pod", "v1", spec=spec), spec={**spec, **more})[1] == {"spec"}


def test_daemon_set_counts_template_changes() -> None:
    """Each change of the template increments the generation, whatever the client sends."""
    selector = {"matchLabels": {"a": "b"}}
    old = made("apps", "DaemonSet", "v1", spec={"selector": selector, "template": TEMPLATE})
    name = "deprecated.daemonset.template.generation"
    assert old["metadata"]["annotations"][name] == "1"
    other = copy.deepcopy(TEMPLATE)
    other["spec"]["containers"][0]["image"] = "nginx:1"  # type: ignore[index]
    new, _ = rewritten(old, spec={"selector": selector, "template": other})
    assert new["metadata"]["annotations"][name] == "2"


@pytest.mark.parametrize(
    ("group", "kind", "before", "after", "field"),
    [
        ("apps", "ControllerRevision", {"data": {"a": 1}}, {"data": {}}, "data"),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            {"value": 1},
            {"value": 1, "preemptionPolicy": "Never"},
            "preemptionPolicy",
        ),
        (
            "",
            "PersistentVolumeClaim",
            {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            },
            {
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            },
            "spec",
        ),
    ],
)
def test_frozen(group: str, kind: str, before: Object, after: Object, field: str) -> None:
    """Some fields are immutable after the creation."""
    old = made(group, kind, "v1", **before)
    assert rewritten(old, **after)[1] == {field}
    assert rewritten(old, **before)[1] == set()


def test_existing_errors_are_tolerated() -> None:
    """An invalid stored object can change in other fields only."""
    rules = [{"host": "Not A Host"}]
    ingress = made("networking.k8s.io", "Ingress", "v1", spec={"rules": rules})
    spec = {"rules": rules, "ingressClassName": "other"}
    assert rewritten(ingress, spec=spec)[1] == set()
    spec = {"rules": [{"host": "Nor This"}]}
    assert rewritten(ingress, spec=spec)[1] == {"spec.rules[0].host"}
    # This holds for rules about several fields.
    metric = {"type": "Resource", "resource": {"name": "cpu"}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    scaled: Object = {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric]}
    scaler = made("autoscaling", "HorizontalPodAutoscaler", "v2", spec=scaled)
    assert rewritten(scaler, spec=scaled)[1] == set()
    assert rewritten(scaler, spec={**scaled, "maxReplicas": 4})[1] == set()
    assert rewritten(scaler, spec={**scaled, "maxReplicas": -1})[1] == {"spec.maxReplicas"}
    volume = made("", "PersistentVolume", "v1", spec={"capacity": {"storage": "1Gi"}})
    assert rewritten(volume, spec=volume["spec"])[1] == set()
