"""Usage of pods and claims, and formatting of amounts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from restow.apimachinery.quota_usage import may_grow, text, unsaid, usage_of
from restow.apimachinery.quotas import read_quota


def pod(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]
    return {"spec": {"containers": containers, **spec}}


def test_usage_of_a_pod() -> None:
    """Each name of a quota resource is counted; of extended resources only requests."""
    resources = {
        "requests": {"cpu": "500m", "memory": "1Ki", "hugepages-2Mi": "2Mi", "a.b/c": "2"},
        "limits": {"cpu": "1", "a.b/c": "2", "hugepages-2Mi": "2Mi"},
    }
    assert usage_of("", "pods", pod(resources, {"requests": {"cpu": "1"}})) == {
        "count/pods": 1,
        "pods": 1,
        "cpu": Fraction(3, 2),
        "requests.cpu": Fraction(3, 2),
        "limits.cpu": 1,
        "memory": 1024,
        "requests.memory": 1024,
        "hugepages-2Mi": 2**21,
        "requests.hugepages-2Mi": 2**21,
        "requests.a.b/c": 2,
    }


def test_usage_of_a_terminated_pod() -> None:
    """A terminated pod uses no compute resources."""
    ended = {**pod({"requests": {"cpu": "1"}}), "status": {"phase": "Succeeded"}}
    assert usage_of("", "pods", ended) == {"count/pods": 1, "pods": 0}


def test_claims() -> None:
    """Claims use storage in whole bytes, also per class; allocated storage counts if it is
    larger.
    """
    spec = {"storageClassName": "gold", "resources": {"requests": {"storage": "1.5"}}}
    of_gold = "gold.storageclass.storage.k8s.io"
    assert usage_of("", "persistentvolumeclaims", {"spec": spec}) == {
        "count/persistentvolumeclaims": 1,
        "persistentvolumeclaims": 1,
        "requests.storage": 2,
        f"{of_gold}/requests.storage": 2,
        f"{of_gold}/persistentvolumeclaims": 1,
    }
    grown = {"spec": spec, "status": {"allocatedResources": {"storage": "1Ki"}}}
    assert usage_of("", "persistentvolumeclaims", grown)["requests.storage"] == 1024


def test_required_requests_and_limits() -> None:
    """Containers must specify the cpu and memory that a quota limits, or the pod for all of
    them.
    """
    limited = frozenset({"requests.cpu", "limits.memory", "pods", "requests.storage"})
    obj = pod({"requests": {"cpu": "1"}}, {}, initContainers=[{"name": "i"}])
    expected = "must specify limits.memory for: c0,c1,i; requests.cpu for: c1,i"
    assert unsaid(obj, limited) == expected
    assert unsaid(obj, frozenset({"pods", "requests.ephemeral-storage"})) == ""
    whole = pod({}, resources={"requests": {"cpu": "1"}})
    assert unsaid(whole, limited) == ""


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("pods", 1024, "1024"),
        ("requests.cpu", Fraction(3, 2), "1500m"),
        ("requests.memory", 2**30, "1Gi"),
        ("requests.memory", 10**9, "1G"),
        ("x.storageclass.storage.k8s.io/requests.storage", 2**20, "1Mi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("memory", 0, "0"),
    ],
)
def test_formatting_of_amounts(name: str, value: Fraction, shown: str) -> None:
    """Bytes have binary suffixes if they are exact."""
    assert text(name, value) == shown


def test_which_updates_may_use_more() -> None:
    """Pods are resized through a subresource."""
    assert may_grow("", "pods", "resize")
    assert not may_grow("", "pods")
    assert may_grow("", "persistentvolumeclaims")
    assert not may_grow("", "persistentvolumeclaims", "status")
    assert not may_grow("", "configmaps")
    assert not may_grow("example.com", "pods", "resize")


def scoped(scope: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    requirement = {"scopeName": scope, "operator": operator, "values": list(values)}
    return {"metadata": {}, "spec": {"scopeSelector": {"matchExpressions": [requirement]}}}


@pytest.mark.parametrize(
    ("term", "is_about"),
    [({"namespaces": ["x"]}, True), ({"namespaceSelector": {}}, True), ({}, False)],
)
def test_cross_namespace_affinity(*, term: dict[str, Any], is_about: bool) -> None:
    """Both affinity and anti-affinity count."""
    quota = read_quota(scoped("CrossNamespacePodAffinity"))
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for affinity in ({"podAffinity": needed}, {"podAntiAffinity": preferred}):
        assert quota.is_about("", "pods", pod({}, affinity=affinity)) is is_about


def test_best_effort_is_about_processor_and_memory() -> None:
    """Pods with other requests only, or with none, are BestEffort."""
    quota = read_quota(scoped("BestEffort"))
    assert quota.is_about("", "pods", pod({"requests": {"ephemeral-storage": "1", "cpu": "0"}}))
    assert not quota.is_about("", "pods", pod({"limits": {"memory": "1"}}))
    known = {**pod({}), "status": {"qosClass": "Burstable"}}
    assert not quota.is_about("", "pods", known)


def test_claims_by_the_class_of_their_attributes() -> None:
    """Both the requested and the current class count; pods have none."""
    quota = read_quota(scoped("VolumeAttributesClass", "In", "fast"))
    claims = "persistentvolumeclaims"
    assert quota.is_about("", claims, {"spec": {"volumeAttributesClassName": "fast"}})
    assert quota.is_about("", claims, {"status": {"currentVolumeAttributesClassName": "fast"}})
    assert not quota.is_about("", claims, {"spec": {"volumeAttributesClassName": "slow"}})
    assert not quota.is_about("", "pods", pod({}))
    assert not read_quota(scoped("Terminating")).is_about("", claims, {})
