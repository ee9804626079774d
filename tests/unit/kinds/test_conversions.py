"""Conversions of the built-in kinds: lossless, with the fields that clients expect."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restow.apimachinery.errors import ConversionFailed, UnknownKind
from restow.kinds.builtin import all_kinds
from restow.kinds.conversions import converter_of
from restow.kinds.conversions.deployment import ROLLBACK_ANNOTATION
from restow.kinds.conversions.horizontal_pod_autoscaler import (
    BEHAVIOR_ANNOTATION,
    CURRENT_METRICS_ANNOTATION,
    EXACT_ANNOTATION,
    METRICS_ANNOTATION,
    RESERVED_ANNOTATIONS,
)
from restow.kinds.conversions.pod_disruption_budget import RESERVED_LABEL
from tests.unit.kinds import strategies as made

Object = dict[str, Any]

# Objects of each kind with conversion code, in the version in which they are generated.
MADE = {
    "v2 autoscalers": ("autoscaling", made.AUTOSCALERS),
    "v1 autoscalers": ("autoscaling", made.AUTOSCALERS_V1),
    "v1 deployments": ("apps", made.DEPLOYMENTS),
    "v1beta1 deployments": ("apps", made.DEPLOYMENTS_V1BETA1),
    "v1 budgets": ("policy", made.BUDGETS),
    "v1beta1 budgets": ("policy", made.BUDGETS_V1BETA1),
    "events": ("", made.EVENTS),
    "v1beta1 ingresses": ("networking.k8s.io", made.INGRESSES_V1BETA1),
    "v1beta1 slices": ("discovery.k8s.io", made.SLICES_V1BETA1),
    "v1beta2 levels": ("flowcontrol.apiserver.k8s.io", made.LEVELS_V1BETA2),
    "v1 ingresses": ("networking.k8s.io", made.INGRESSES),
    "v1 slices": ("discovery.k8s.io", made.SLICES),
    "v1 levels": ("flowcontrol.apiserver.k8s.io", made.LEVELS),
}


@pytest.mark.parametrize("name", MADE)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    """An object converted to any other version and back is equal to the original."""
    group, strategy = MADE[name]
    obj = data.draw(strategy)
    before = copy.deepcopy(obj)
    converter = converter_of(group, obj["kind"])
    for version in converter.versions:
        there = converter.convert(obj, obj["apiVersion"], version)
        assert there["apiVersion"] == version
        assert there["kind"] == obj["kind"]
        there_before = copy.deepcopy(there)
        assert converter.convert(there, version, obj["apiVersion"]) == before
        assert there == there_before
        assert obj == before


@given(made.EVENTS)
def test_round_trip_of_the_newer_events(event: Object) -> None:
    """An event created in `events.k8s.io` round-trips through the core group."""
    converter = converter_of("events.k8s.io", "Event")
    newer = converter.convert(event, "v1", "events.k8s.io/v1")
    core = converter.convert(newer, "events.k8s.io/v1", "v1")
    assert converter.convert(core, "v1", "events.k8s.io/v1") == newer


@given(made.AUTOSCALERS)
def test_older_autoscalers_round_trip(autoscaler: Object) -> None:
    """An object of an older version is unchanged by storing it in the hub version and reading
    it."""
    converter = converter_of("autoscaling", "HorizontalPodAutoscaler")
    for version in ("autoscaling/v1", "autoscaling/v2beta1"):
        older = converter.convert(autoscaler, "autoscaling/v2", version)
        hub = converter.convert(older, version, "autoscaling/v2")
        assert converter.convert(hub, "autoscaling/v2", version) == older


def test_every_version_of_every_kind_has_a_converter() -> None:
    """The table of kinds and the converters have the same versions."""
    for kind in all_kinds():
        versions = converter_of(kind.group, kind.kind).versions
        for version in kind.versions:
            assert kind.api_version(version) in versions
        assert kind.storage_api_version in versions


def test_cronjobs_differ_in_nothing_but_their_version() -> None:
    """All three versions of cron jobs have the same fields, so stored bytes need no decoding."""
    converter = converter_of("batch", "CronJob")
    assert converter.keeps_shape("batch/v1", "batch/v2alpha1")
    assert converter.keeps_shape("batch/v1beta1", "batch/v2alpha1")
    job = {"kind": "CronJob", "apiVersion": "batch/v2alpha1", "spec": {"schedule": "* * * * *"}}
    assert converter.convert(job, "batch/v2alpha1", "batch/v1") == {**job, "apiVersion": "batch/v1"}


def test_autoscaler_in_v1() -> None:
    """`v1` has the CPU target as a number, and the rest in the annotations of Kubernetes."""
    memory = {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    autoscaler = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 3,
            "metrics": [
                {"type": "Resource", "resource": memory},
                {"type": "Resource", "resource": cpu},
            ],
            "behavior": {"scaleUp": {"selectPolicy": "Max"}},
        },
        "status": {
            "currentMetrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "current": {"averageUtilization": 48, "averageValue": "4m"},
                    },
                }
            ]
        },
    }
    older = converter_of("autoscaling", "HorizontalPodAutoscaler").convert(
        autoscaler, "autoscaling/v2", "autoscaling/v1"
    )
    annotations = older["metadata"]["annotations"]
    assert older["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
    assert older["status"] == {"currentCPUUtilizationPercentage": 48}
    assert orjson.loads(annotations[METRICS_ANNOTATION]) == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}
    ]
    assert orjson.loads(annotations[CURRENT_METRICS_ANNOTATION]) == [
        {
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "currentAverageUtilization": 48,
                "currentAverageValue": "4m",
            },
        }
    ]
    assert orjson.loads(annotations[BEHAVIOR_ANNOTATION]) == {"ScaleUp": {"SelectPolicy": "Max"}}
    assert EXACT_ANNOTATION not in annotations


def _metric(name: str, percent: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def test_an_edit_through_an_old_version_counts() -> None:
    """The newer fields that are kept in annotations are dropped when the older fields change."""
    converter = converter_of("autoscaling", "HorizontalPodAutoscaler")
    autoscaler = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web"},
        "spec": {"metrics": [_metric("cpu", 70), _metric("memory", 50)]},
    }
    older = converter.convert(autoscaler, "autoscaling/v2", "autoscaling/v1")
    assert EXACT_ANNOTATION in older["metadata"]["annotations"]
    older["spec"] = {**older["spec"], "targetCPUUtilizationPercentage": 71}
    newer = converter.convert(older, "autoscaling/v1", "autoscaling/v2")
    assert newer["spec"]["metrics"] == [_metric("memory", 50), _metric("cpu", 71)]
    assert "annotations" not in newer["metadata"]


@given(
    st.dictionaries(
        st.sampled_from(sorted(RESERVED_ANNOTATIONS)),
        st.one_of(
            st.text(),
            st.recursive(
                st.none() | st.booleans() | st.integers(0, 9) | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            ).map(lambda value: orjson.dumps(value).decode()),
            st.just("[" * 900 + "]" * 900),
            st.just('[{"type":"Resource","resource":{"name":"cpu"}}]'),
            st.just('[{"type":"Nonsense"}]'),
        ),
    ),
    st.sampled_from(["autoscaling/v1", "autoscaling/v2beta1"]),
)
def test_any_text_in_a_reserved_annotation(annotations: dict[str, str], version: str) -> None:
    """For any text in the annotations: it is converted or kept, without an error."""
    converter = converter_of("autoscaling", "HorizontalPodAutoscaler")
    older = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": version,
        "metadata": {"name": "web", "annotations": annotations},
    }
    hub = converter.convert(older, version, "autoscaling/v2")
    again = converter.convert(hub, "autoscaling/v2", version)
    assert converter.convert(again, version, "autoscaling/v2")["kind"] == older["kind"]


def test_rollback_of_deployments() -> None:
    """`rollbackTo` becomes the annotation that clients of later versions use."""
    converter = converter_of("apps", "Deployment")
    older = {
        "kind": "Deployment",
        "apiVersion": "apps/v1beta1",
        "metadata": {"name": "web"},
        "spec": {"rollbackTo": {"revision": 7}},
    }
    newer = converter.convert(older, "apps/v1beta1", "apps/v1")
    assert newer["metadata"]["annotations"] == {ROLLBACK_ANNOTATION: "7"}
    assert newer["spec"] == {}


@pytest.mark.parametrize("text", ["", "x", "07", "+7", "\uff11", "9" * 5000])
def test_other_text_in_the_rollback_annotation(text: str) -> None:
    """Text that no conversion wrote stays an annotation in every version."""
    converter = converter_of("apps", "Deployment")
    newer = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"annotations": {ROLLBACK_ANNOTATION: text}},
    }
    older = converter.convert(newer, "apps/v1", "apps/v1beta1")
    assert older == {**newer, "apiVersion": "apps/v1beta1"}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({}, {"matchExpressions": [{"key": RESERVED_LABEL, "operator": "Exists"}]}),
        ({"matchExpressions": [{"key": RESERVED_LABEL, "operator": "DoesNotExist"}]}, {}),
        ({"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "b"}}),
    ],
)
def test_selectors_of_budgets(older: Object, newer: Object) -> None:
    """An empty selector keeps its meaning, which is none in v1beta1 and all in v1."""
    converter = converter_of("policy", "PodDisruptionBudget")
    budget = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1beta1"}
    budget_v1 = {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1"}
    first = {**budget, "spec": {"selector": older}}
    second = {**budget_v1, "spec": {"selector": newer}}
    assert converter.convert(first, "policy/v1beta1", "policy/v1") == second
    assert converter.convert(second, "policy/v1", "policy/v1beta1") == first


def test_fields_of_events() -> None:
    """Each renamed field of an event has its other name after conversion."""
    event = {
        "kind": "Event",
        "apiVersion": "v1",
        "involvedObject": {"kind": "Pod"},
        "message": "m",
        "source": {"component": "c"},
        "firstTimestamp": "f",
        "lastTimestamp": "l",
        "count": 2,
        "reportingComponent": "r",
        "series": {"count": 3},
    }
    assert converter_of("", "Event").convert(event, "v1", "events.k8s.io/v1") == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "regarding": {"kind": "Pod"},
        "note": "m",
        "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "f",
        "deprecatedLastTimestamp": "l",
        "deprecatedCount": 2,
        "reportingController": "r",
        "series": {"count": 3},
    }


def test_invalid_data_and_unknown_versions() -> None:
    """Invalid data and unknown versions are errors with kind and version."""
    converter = converter_of("apps", "Deployment")
    with pytest.raises(ConversionFailed, match=r"Deployment\.apps has no version apps/v9"):
        converter.convert({"kind": "Deployment"}, "apps/v9", "apps/v1")
    with pytest.raises(ConversionFailed, match="from apps/v1beta1 to apps/v1: spec is not"):
        converter.convert({"spec": 1}, "apps/v1beta1", "apps/v1")
    with pytest.raises(UnknownKind):
        converter_of("apps", "Nothing")
