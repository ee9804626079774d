"""The generic strategy, for custom resources."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from restow.aio import Runtime
from restow.apimachinery.status import Invalid
from restow.registry import strategy
from restow.registry.catalog import builtin_catalog
from tests.unit.registry.custom.samples import BETA, V1, Json, resource, widget


def stored(version: str = V1, **parts: Any) -> Json:
    found = widget(version, **{"spec": {"replicas": 1}, "status": {"phase": "New"}, **parts})
    found["metadata"] |= {
        "namespace": "n",
        "uid": "u",
        "generation": 4,
        "labels": {"a": "b"},
        "finalizers": ["example.com/x"],
        "resourceVersion": "7",
    }
    return found


def updated(old: Json, *, subresource: str = "", **parts: Any) -> Json:
    new = deepcopy(old) | parts
    strategy.begin_update(resource(), old["apiVersion"], new, old, subresource=subresource)
    return new


def test_a_new_object() -> None:
    """It has generation 1, and no status except for the default, with a status subresource."""
    for version, status in ((V1, {"phase": "New"}), (BETA, {"phase": "Mine"})):
        obj = widget(version, spec={"replicas": 1}, status={"phase": "Mine"})
        now = datetime(2026, 1, 1, tzinfo=UTC)
        ids = Runtime.system().ids
        strategy.begin_create(resource(), version, obj, namespace="n", ids=ids, now=now)
        assert obj["metadata"]["generation"] == 1
        assert obj["status"] == status


@pytest.mark.parametrize(
    ("version", "parts", "generation"),
    [
        (V1, {}, 4),
        (V1, {"spec": {"replicas": 2}}, 5),
        (V1, {"spec": {"replicas": 1.0}}, 5),
        (V1, {"spec": {"replicas": True}}, 5),
        (V1, {"extra": 1}, 5),
        (V1, {"status": {"phase": "Old"}}, 4),
        (BETA, {"status": {"phase": "Old"}}, 5),
        (BETA, {"status": {"phase": "New"}}, 4),
        (BETA, {"metadata": {"name": "a", "labels": {"c": "d"}}}, 4),
    ],
)
def test_generations(version: str, parts: Json, generation: int) -> None:
    """Changes of all fields but metadata count, and of the status without a subresource."""
    new = updated(stored(version), **parts)
    assert new["metadata"]["generation"] == generation
    if version == V1:
        assert new["status"] == {"phase": "New"}


def test_an_object_stored_with_a_wrong_type_can_be_corrected() -> None:
    """The generation does not depend on whether the stored object conforms to its schema."""
    deployments = builtin_catalog().of_kind("apps", "Deployment")
    assert deployments is not None
    metadata = {"name": "d", "uid": "u", "generation": 4}
    old: Json = {"metadata": metadata, "spec": {"replicas": "many"}}
    new: Json = {"metadata": dict(metadata), "spec": {"replicas": 3}}
    strategy.begin_update(deployments, "apps/v1", new, old)
    assert new["metadata"]["generation"] == 5


def test_a_write_of_the_status_changes_nothing_else() -> None:
    """Neither content nor metadata, except for managed fields."""
    old = stored()
    new = updated(
        old,
        subresource="status",
        metadata={
            "name": "a",
            "namespace": "n",
            "generateName": "g",
            "labels": {"x": "y"},
            "managedFields": [{"manager": "m"}],
        },
        spec={"replicas": 5},
        extra=1,
        status={"phase": "Old"},
    )
    managed = {"managedFields": [{"manager": "m"}]}
    assert new == old | {"status": {"phase": "Old"}, "metadata": old["metadata"] | managed}


def test_finalizers_without_a_domain() -> None:
    """Custom resources may have them, as in kube-apiserver; invalid names are rejected."""
    obj = stored()
    obj["metadata"]["finalizers"] = ["bare"]
    strategy.check(resource(), V1, obj, None)
    obj["metadata"]["finalizers"] = ["no good"]
    with pytest.raises(Invalid):
        strategy.check(resource(), V1, obj, None)


def test_an_update_requires_a_resource_version() -> None:
    """Without a resource version it is rejected, with the name of the resource."""
    new = stored()
    del new["metadata"]["resourceVersion"]
    with pytest.raises(Invalid) as refused:
        strategy.check_versions(resource(), new, stored(), name="a", is_patch=False)
    assert refused.value.message == (
        'widgets.example.com "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be'
        " specified for an update"
    )
    strategy.check_versions(resource(), new, stored(), name="a", is_patch=True)
