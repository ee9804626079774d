"""Apply by kubectl and through the scale subresource: last-applied annotation and conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.apply.entries import Manager
from restow.apimachinery.apply.server_side_apply import LAST_APPLIED, SCALE, Application
from restow.apimachinery.status import Conflict
from tests.unit.apimachinery.apply.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    Object,
    config_map,
    convert_single_version,
    entry,
)

T0, T1 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def apply(live: Object, config: Object, manager: Manager, *, force: bool = False) -> Object:
    kind: Any = CONFIG_MAP if config["kind"] == "ConfigMap" else DEPLOYMENT
    application = Application(
        kind,
        config,
        wanted=config,
        manager=manager,
        api_version=config["apiVersion"],
        convert=convert_single_version,
        within=lambda fields: fields,
    )
    return application.apply(live, time=T1, force=force)


def web(replicas: int | None, **metadata: Any) -> Object:
    spec = {} if replicas is None else {"spec": {"replicas": replicas}}
    return {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web", **metadata},
        **spec,
    }


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (config_map({"a": "<&>"}), r'"data":{"a":"\u003c\u0026\u003e"},'),
        (config_map(annotations={}), None),
        (config_map(annotations={LAST_APPLIED: "{}"}), None),
        (config_map(), None),
    ],
)
def test_the_annotation_matches_kubectl(config: Object, text: str | None) -> None:
    """Sorted keys with Go's escapes; annotations are included if the configuration has any, even
    empty.
    """
    live = config_map({"a": "1"}, annotations={LAST_APPLIED: "{}"}, managedFields=[])
    kept = apply(live, config, Manager("kubectl"), force=True)["metadata"]["annotations"]
    said = '"annotations":{},' if "annotations" in config["metadata"] else ""
    data = text or ""
    metadata = f'{{{said}"name":"a"}}'
    wanted = f'{{"apiVersion":"v1",{data}"kind":"ConfigMap","metadata":{metadata}}}\n'
    assert kept[LAST_APPLIED] == wanted


def test_a_rewrite_by_kubectl_updates_the_annotation() -> None:
    """Applying nothing to a given state changes no ownership, but updates the annotation."""
    live = config_map({"a": "1"}, uid="u", resourceVersion="7", annotations={LAST_APPLIED: "{}"})
    config = config_map(uid="u", resourceVersion="7")
    done = apply(live, config, Manager("kubectl"))
    assert '"uid":"u"' in done["metadata"]["annotations"][LAST_APPLIED]
    assert "managedFields" not in done["metadata"]
    assert live["metadata"]["annotations"] == {LAST_APPLIED: "{}"}


def test_applying_nothing_to_an_object_without_entries() -> None:
    """Applying nothing without a given state starts field tracking, as in Kubernetes."""
    done = apply(config_map({"a": "1"}), config_map(), Manager("app"))
    fields: Object = {"f:data": {".": {}, "f:a": {}}}
    assert done["metadata"]["managedFields"] == [entry("before-first-apply", fields, time=T1)]


def test_a_scale_reports_its_own_replicas() -> None:
    """A conflict names the fields of a Scale; untracked fields are the replicas only."""
    scale = Manager("kubectl", SCALE)
    live = web(2, annotations={LAST_APPLIED: "{}"})
    with pytest.raises(Conflict) as refused:
        apply(live, web(3), scale)
    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" with subresource "scale"'
        " using autoscaling/v1: .spec.replicas"
    )
    done = apply(live, web(3), scale, force=True)
    assert [each["manager"] for each in done["metadata"]["managedFields"]] == ["kubectl"]
    assert done["metadata"]["annotations"] == {LAST_APPLIED: "{}"}
