"""Server-side apply: merging, conflicts, removal of fields, and ownership afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from restow.apimachinery.apply.entries import Manager
from restow.apimachinery.apply.field_managers import track_create
from restow.apimachinery.apply.schema_check import ApplySchemaError
from restow.apimachinery.apply.server_side_apply import LAST_APPLIED, Application
from restow.apimachinery.status import Conflict
from tests.unit.apimachinery.apply.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    Object,
    Open,
    config_map,
    convert_renaming,
    convert_single_version,
    entry,
)

T0, T1 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def apply(
    live: Object | None,
    config: Object,
    *,
    manager: str = "app",
    force: bool = False,
    kind: Any = CONFIG_MAP,
    convert: Any = convert_single_version,
) -> Object:
    application = Application(
        kind,
        config,
        wanted=config,
        manager=Manager(manager),
        api_version=config["apiVersion"],
        convert=convert,
        within=lambda fields: fields,
    )
    return application.apply(live, time=T1, force=force)


def created(obj: Object, kind: Any = CONFIG_MAP) -> Object:
    track_create(kind, obj, Manager("me"), obj["apiVersion"], T0)
    return obj


def managers(obj: Object) -> dict[str, Any]:
    return {each["manager"]: each["fieldsV1"] for each in obj["metadata"]["managedFields"]}


def test_a_new_object() -> None:
    """The applier of a new object owns exactly what it applied."""
    made = apply(None, config_map({"a": "1"}, labels={"l": "1"}))
    fields = {"f:metadata": {"f:labels": {"f:l": {}}}, "f:data": {"f:a": {}}}
    assert made["metadata"]["managedFields"] == [entry("app", fields, operation="Apply", time=T1)]
    assert made["data"] == {"a": "1"}


def test_conflicts_name_all_fields_and_managers() -> None:
    """A value owned by another manager is not changed; the 409 equals that of Kubernetes."""
    live = created(config_map({"a": "1", "b": "2"}))
    with pytest.raises(Conflict) as one:
        apply(live, config_map({"a": "9", "b": "2"}))
    assert one.value.to_dict() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "me" using v1: .data.a',
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "me" using v1',
                    "field": ".data.a",
                }
            ]
        },
        "code": 409,
    }
    forced = apply(live, config_map({"c": "1"}))
    with pytest.raises(Conflict) as many:
        apply(forced, config_map({"a": "9", "b": "9", "c": "9"}), manager="third")
    assert many.value.message == (
        'Apply failed with 3 conflicts: conflicts with "app":\n- .data.c\n'
        'conflicts with "me" using v1:\n- .data.a\n- .data.b'
    )


def test_force_takes_fields() -> None:
    """With force the value is changed, and the other manager loses the field."""
    live = created(config_map({"a": "1", "b": "2"}))
    made = apply(live, config_map({"a": "9"}), force=True)
    assert made["data"] == {"a": "9", "b": "2"}
    assert managers(made) == {
        "app": {"f:data": {"f:a": {}}},
        "me": {"f:data": {".": {}, "f:b": {}}},
    }


def test_equal_values_are_shared() -> None:
    """Applying an equal value shares ownership: no conflict, and the new entry has no time."""
    live = created(config_map({"a": "1"}))
    made = apply(live, config_map({"a": "1"}))
    applied, updated = made["metadata"]["managedFields"]
    assert applied == entry("app", {"f:data": {"f:a": {}}}, operation="Apply")
    assert updated == live["metadata"]["managedFields"][0]


def test_fields_no_longer_applied_are_removed() -> None:
    """Fields that an applier omits are removed, unless another manager owns them."""
    live = apply(None, config_map({"a": "1", "b": "2", "c": "3"}, labels={"l": "1"}))
    shared = apply(live, config_map({"b": "2"}), manager="second")
    made = apply(shared, config_map({"c": "3"}))
    assert made["data"] == {"b": "2", "c": "3"}
    assert made["metadata"].get("labels") is None
    assert made["metadata"]["name"] == "a"
    assert managers(made) == {
        "app": {"f:data": {"f:c": {}}},
        "second": {"f:data": {"f:b": {}}},
    }
    assert managers(apply(made, config_map())) == {"second": {"f:data": {"f:b": {}}}}


def test_list_items_are_removed_by_key() -> None:
    """An item that is no longer applied is removed with everything its applier owned in it."""

    def web(*containers: Object) -> Object:
        spec = {"template": {"spec": {"containers": list(containers)}}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": spec,
        }

    one, two = {"name": "one", "image": "i"}, {"name": "two", "image": "j"}
    live = apply(None, web(one, two), kind=DEPLOYMENT)
    other = apply(live, web({"name": "two", "tty": True}), manager="second", kind=DEPLOYMENT)
    made = apply(other, web(one), kind=DEPLOYMENT)
    assert made["spec"]["template"]["spec"]["containers"] == [one, {"name": "two", "tty": True}]


def test_an_object_without_entries() -> None:
    """Fields from before the first apply are owned by `before-first-apply`."""
    live = config_map({"a": "1", "b": "2"}, uid="u")
    with pytest.raises(Conflict) as refused:
        apply(live, config_map({"a": "9"}))
    assert 'conflict with "before-first-apply" using v1: .data.a' in refused.value.message
    made = apply(live, config_map({"c": "3"}))
    assert managers(made)["before-first-apply"] == {"f:data": {".": {}, "f:a": {}, "f:b": {}}}


def test_a_rewrite_changes_nothing() -> None:
    """Applying only uid and resourceVersion changes no field and no entry, tracked or not."""
    for live in (
        config_map({"a": "1"}, uid="u", resourceVersion="7"),
        created(config_map({"a": "1"}, uid="u", resourceVersion="7")),
    ):
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"uid": "u", "resourceVersion": "7"},
        }
        assert apply(live, config, manager="storage-version-migrator-controller") == live


def test_wrong_configurations() -> None:
    """Undeclared fields and duplicates are rejected with their path."""
    with pytest.raises(ApplySchemaError, match=r"^\.datax: field not declared in schema$"):
        apply(None, {**config_map(), "datax": {}})
    with pytest.raises(ApplySchemaError, match="duplicate entries"):
        apply(None, config_map(finalizers=["a/b", "a/b"]))


def test_versions() -> None:
    """Fields applied in one version are removed, kept and contested in another."""
    kind = Open()

    def config(version: str, **spec: int) -> Object:
        return {"apiVersion": version, "kind": "X", "metadata": {"name": "a"}, "spec": spec}

    live = apply(None, config("v1", old=1, same=1), kind=kind, convert=convert_renaming)
    seen = convert_renaming(live, "v2")
    assert seen is not None
    less = apply(seen, config("v2", same=1), kind=kind, convert=convert_renaming)
    assert less["spec"] == {"same": 1}
    with pytest.raises(Conflict, match=r'conflict with "app": \.spec\.old'):
        apply(seen, config("v2", new=2), manager="second", kind=kind, convert=convert_renaming)
    more = apply(
        seen, config("v2", new=2), manager="second", kind=kind, convert=convert_renaming, force=True
    )
    assert managers(more) == {
        "app": {"f:spec": {".": {}, "f:same": {}}},
        "second": {"f:spec": {".": {}, "f:new": {}}},
    }
    gone = config("v2", new=1)
    gone["metadata"]["managedFields"] = [entry("x", {"f:spec": {"f:z": {}}}, version="v0")]
    assert list(
        managers(apply(gone, config("v2", new=1), kind=kind, convert=convert_renaming))
    ) == ["app"]


def client_side(wanted: dict[str, str], data: dict[str, str]) -> Object:
    """Return an object to which kubectl has applied `wanted` client-side."""
    said = json.dumps(config_map(wanted))
    obj = config_map(data, annotations={LAST_APPLIED: said}, uid="u")
    track_create(CONFIG_MAP, obj, Manager("kubectl-client-side-apply"), "v1", T0)
    return obj


def test_from_client_side_apply() -> None:
    """Fields that kubectl applied client-side and that are unchanged cause kubectl no conflict."""
    live = client_side({"a": "1"}, {"a": "1"})
    made = apply(live, config_map({"a": "2"}), manager="kubectl")
    assert made["data"] == {"a": "2"}
    kept = json.loads(made["metadata"]["annotations"][LAST_APPLIED])
    assert kept == config_map({"a": "2"})
    with pytest.raises(Conflict, match="kubectl-client-side-apply"):
        apply(live, config_map({"a": "2"}), manager="another")
    moved_on = client_side({"a": "1", "b": "1"}, {"a": "5", "b": "1"})
    with pytest.raises(Conflict) as refused:
        apply(moved_on, config_map({"a": "2", "b": "2"}), manager="kubectl")
    assert [cause.field for cause in refused.value.causes] == [".data.a"]


def test_an_annotation_that_is_too_large_is_removed() -> None:
    """An annotation that would exceed the size limit is removed; the apply still succeeds."""
    live = client_side({"a": "1"}, {"a": "1"})
    made = apply(live, config_map({"a": "x" * 300_000}), manager="kubectl")
    assert LAST_APPLIED not in made["metadata"]["annotations"]
