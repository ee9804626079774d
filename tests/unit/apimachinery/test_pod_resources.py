"""Total requests and limits of pods, and their QoS class."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.pod_resources import amounts_in, pod_amounts, qos_class


def container(*, restarted: bool = False, **requests: str) -> dict[str, Any]:
    found: dict[str, Any] = {"resources": {"requests": requests}}
    return {**found, "restartPolicy": "Always"} if restarted else found


@pytest.mark.parametrize(
    ("containers", "before", "total"),
    [
        ([container(cpu="1"), container(cpu="500m")], [], "1500m"),
        ([container(cpu="1")], [container(cpu="3"), container(cpu="2")], "3"),
        ([container(cpu="4")], [container(cpu="3")], "4"),
        ([container(cpu="1")], [container(cpu="1", restarted=True), container(cpu="2")], "3"),
        ([container(cpu="1")], [container(cpu="2"), container(cpu="1", restarted=True)], "2"),
        ([container(cpu="1")], [container(cpu="2", restarted=True)], "3"),
        ([container(memory="1Gi")], [], None),
        ([{}], [], None),
    ],
)
def test_totals(
    containers: list[dict[str, Any]], before: list[dict[str, Any]], total: str | None
) -> None:
    """Containers are added; of init containers the largest counts, except sidecars."""
    pod = {"spec": {"containers": containers, "initContainers": before}}
    found = pod_amounts(pod, "requests").get("cpu")
    assert (None if found is None else str(found)) == total


def test_pod_level_resources() -> None:
    """Pod-level resources replace the sums, for cpu and memory only."""
    own = {"requests": {"cpu": "5", "example.com/gpu": "7"}}
    spec = {"containers": [container(cpu="1", memory="1Gi")], "resources": own}
    found = {name: str(amount) for name, amount in pod_amounts({"spec": spec}, "requests").items()}
    assert found == {"cpu": "5", "memory": "1Gi"}


def test_sums_have_the_suffix_of_the_first_nonzero_amount() -> None:
    """A zero has no suffix family; invalid quantities are ignored."""
    values = amounts_in({"none": "0", "binary": "1Gi", "decimal": "1M", "bad": "x", "number": 2})
    assert sorted(values) == ["binary", "decimal", "none", "number"]
    assert str(values["none"] + values["binary"]) == "1Gi"
    assert str(values["binary"] + values["binary"]) == "2Gi"
    assert str(values["decimal"] + values["decimal"]) == "2M"
    assert str(values["number"]) == "2"
    assert amounts_in(None) == {}


BOTH = {"cpu": "1", "memory": "1Gi"}
SAME = {"cpu": "1000m", "memory": "1073741824"}


@pytest.mark.parametrize(
    ("containers", "whole", "found"),
    [
        ([{}], None, "BestEffort"),
        ([], None, "BestEffort"),
        ([{"requests": {"cpu": "0", "ephemeral-storage": "1"}}], None, "BestEffort"),
        ([{"requests": {"cpu": "1"}}], None, "Burstable"),
        ([{"limits": BOTH}], None, "Burstable"),
        ([{"requests": BOTH, "limits": BOTH}], None, "Guaranteed"),
        ([{"requests": SAME, "limits": BOTH}], None, "Guaranteed"),
        ([{"requests": BOTH, "limits": BOTH}, {}], None, "Burstable"),
        ([{"requests": BOTH, "limits": {**BOTH, "cpu": "2"}}], None, "Burstable"),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], None, "Burstable"),
        ([{"requests": {"cpu": "1"}}], {"requests": BOTH, "limits": BOTH}, "Guaranteed"),
        ([{"requests": BOTH, "limits": BOTH}], {"requests": {"cpu": "1"}}, "Burstable"),
        ([{"requests": BOTH, "limits": BOTH}], {}, "BestEffort"),
    ],
)
def test_qos_classes(
    containers: list[dict[str, Any]], whole: dict[str, Any] | None, found: str
) -> None:
    """The class depends on amounts, not their formatting; pod-level resources take precedence."""
    asking = [{"resources": each} for each in containers]
    own = {} if whole is None else {"resources": whole}
    assert qos_class({"containers": asking, **own}) == found
    assert qos_class({"initContainers": asking, **own}) == found
