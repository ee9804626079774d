"""What pods and claims use of what quotas limit, and how much of it is told."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from restow.apimachinery.quota_usage import may_grow, text, unsaid, usage_of
from restow.apimachinery.quotas import read_quota


def pod(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]
    return {"spec": {"containers": containers, **spec}}


def test_a_pod_uses_what_it_asks_for_and_is_limited_to() -> None:
    """By each name that quotas have for it; of what is extended, only what is asked for."""
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


def test_a_pod_that_has_ended_is_only_there() -> None:
    """It uses nothing of a node any more."""
    ended = {**pod({"requests": {"cpu": "1"}}), "status": {"phase": "Succeeded"}}
    assert usage_of("", "pods", ended) == {"count/pods": 1, "pods": 0}


def test_claims() -> None:
    """They use storage, whole bytes of it, also of their class; more if more is there already."""
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


def test_what_containers_must_say() -> None:
    """What a quota limits of processor and memory, each container says, or the pod for all."""
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
def test_how_much_is_told(name: str, value: Fraction, shown: str) -> None:
    """Bytes are told in the larger units where they are whole."""
    assert text(name, value) == shown


def test_which_updates_may_use_more() -> None:
    """Pods are resized by a path of their own."""
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
def test_pods_that_reach_into_other_namespaces(*, term: dict[str, Any], is_about: bool) -> None:
    """Whether they want to be near pods of others or far from them."""
    quota = read_quota(scoped("CrossNamespacePodAffinity"))
    wished = {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for affinity in ({"podAffinity": needed}, {"podAntiAffinity": wished}):
        assert quota.is_about("", "pods", pod({}, affinity=affinity)) is is_about


def test_best_effort_is_about_processor_and_memory() -> None:
    """Who asks for anything else only, or for nothing of them, has none promised."""
    quota = read_quota(scoped("BestEffort"))
    assert quota.is_about("", "pods", pod({"requests": {"ephemeral-storage": "1", "cpu": "0"}}))
    assert not quota.is_about("", "pods", pod({"limits": {"memory": "1"}}))
    known = {**pod({}), "status": {"qosClass": "Burstable"}}
    assert not quota.is_about("", "pods", known)


def test_claims_by_the_class_of_their_attributes() -> None:
    """The class that is wanted counts, and the one that is there; pods have none."""
    quota = read_quota(scoped("VolumeAttributesClass", "In", "fast"))
    claims = "persistentvolumeclaims"
    assert quota.is_about("", claims, {"spec": {"volumeAttributesClassName": "fast"}})
    assert quota.is_about("", claims, {"status": {"currentVolumeAttributesClassName": "fast"}})
    assert not quota.is_about("", claims, {"spec": {"volumeAttributesClassName": "slow"}})
    assert not quota.is_about("", "pods", pod({}))
    assert not read_quota(scoped("Terminating")).is_about("", claims, {})
