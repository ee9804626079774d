"""Limit ranges: defaults of containers, and messages of violations."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.limit_ranges import (
    ANNOTATION,
    LimitRange,
    claim_problem,
    pod_problem,
    read_limit_range,
    with_defaults,
)


def limit_range(*limits: dict[str, Any]) -> LimitRange:
    return read_limit_range({"spec": {"limits": list(limits)}})


def pod(*resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": each} for i, each in enumerate(resources)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


DEFAULTS = limit_range(
    {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "1"}},
    {"type": "Pod", "default": {"cpu": "9"}},
)


def test_defaults_are_set_and_annotated() -> None:
    """Only missing values are set, per kind of container, and an annotation lists them."""
    obj = pod({}, {"limits": {"cpu": "3"}}, initContainers=[{"name": "i"}])
    found = with_defaults(obj, [DEFAULTS])
    assert found is not None
    first, second = (each["resources"] for each in found["spec"]["containers"])
    assert first == {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert second["limits"] == {"cpu": "3", "memory": "1Gi"}
    assert found["metadata"]["annotations"][ANNOTATION] == (
        "LimitRanger plugin set: cpu request for container c0; cpu, memory limit for container c0;"
        " cpu request for container c1; memory limit for container c1;"
        " cpu request for init container i; cpu, memory limit for init container i"
    )
    assert obj == pod({}, {"limits": {"cpu": "3"}}, initContainers=[{"name": "i"}])


def test_complete_pods_are_unchanged() -> None:
    """A pod with all values is unchanged, with one limit range or several."""
    whole = pod({"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1"}})
    assert with_defaults(whole, [DEFAULTS, limit_range()]) is None
    later = limit_range({"type": "Container", "default": {"disk": "1"}})
    found = with_defaults(whole, [DEFAULTS, later])
    assert found is not None
    assert found["metadata"]["annotations"][ANNOTATION].endswith("set: disk limit for container c0")


@pytest.mark.parametrize(
    ("limit", "resources", "problem"),
    [
        (
            {"min": {"cpu": "1"}},
            {},
            "minimum cpu usage per Container is 1.  No request is specified",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "999m"}},
            "minimum cpu usage per Container is 1, but request is 999m",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but limit is 500m",
        ),
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, ""),
        ({"max": {"cpu": "1"}}, {}, "maximum cpu usage per Container is 1.  No limit is specified"),
        (
            {"max": {"memory": "1Gi"}},
            {"limits": {"memory": "1025Mi"}},
            "maximum memory usage per Container is 1Gi, but limit is 1025Mi",
        ),
        (
            {"max": {"cpu": "1"}},
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            "maximum cpu usage per Container is 1, but request is 2",
        ),
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "1"}}, ""),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "1"}},
            (
                "cpu max limit to request ratio per Container is 2, but no request is specified or"
                " request is 0"
            ),
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}},
            (
                "cpu max limit to request ratio per Container is 2, but no limit is specified or"
                " limit is 0"
            ),
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "5"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "1500m"}},
            {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
            "",
        ),
        (
            {"max": {"cpu": "1", "memory": "1"}},
            {},
            (
                "[maximum cpu usage per Container is 1.  No limit is specified, maximum memory"
                " usage per Container is 1.  No limit is specified]"
            ),
        ),
        ({"max": {"huge": "9E"}}, {"limits": {"huge": "9223372036854775807"}}, "x"),
    ],
)
def test_containers(limit: dict[str, Any], resources: dict[str, Any], problem: str) -> None:
    """Each container is checked against each limit, with Kubernetes' messages; duplicates are
    removed.
    """
    limits = limit_range({"type": "Container", **limit})
    found = pod_problem(pod(resources, resources), limits)
    if problem == "x":
        assert found.startswith("maximum huge usage per Container is 9E, but limit is 9223372")
    else:
        assert found == problem


def test_limits_of_pods_apply_to_sums() -> None:
    """Limits of pods apply to the sum of all containers; limits of claims do not apply to pods."""
    limits = limit_range(
        {"type": "Pod", "max": {"cpu": "3"}}, {"type": "PersistentVolumeClaim", "min": {"cpu": "9"}}
    )
    two = {"limits": {"cpu": "2"}}
    assert pod_problem(pod(two), limits) == ""
    expected = "maximum cpu usage per Pod is 3, but limit is 4"
    assert pod_problem(pod(two, two), limits) == expected


@pytest.mark.parametrize(
    ("storage", "problem"),
    [
        ("1Gi", ""),
        ("2Gi", ""),
        ("1Mi", "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"),
        ("3Gi", "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ],
)
def test_claims(storage: str, problem: str) -> None:
    """Claims have requests only, so a missing limit is no violation."""
    limits = limit_range(
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    )
    claim = {"spec": {"resources": {"requests": {"storage": storage}}}}
    assert claim_problem(claim, limits) == problem
    assert "No request is specified" in claim_problem({}, limits)
