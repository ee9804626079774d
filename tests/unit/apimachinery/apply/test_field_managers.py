"""Field ownership after creates, updates and writes of the status."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.apply.entries import Manager
from restow.apimachinery.apply.field_managers import EntriesRefused, track_create, track_update
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

ME, OTHER = Manager("me"), Manager("other")
T0, T1 = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def made(obj: Object, manager: Manager = ME, kind: Any = CONFIG_MAP) -> Object:
    track_create(kind, obj, manager, obj["apiVersion"], T0)
    obj["metadata"]["resourceVersion"] = "1"
    return obj


def changed(
    old: Object,
    new: Object,
    *,
    manager: Manager = OTHER,
    kind: Any = CONFIG_MAP,
    convert: Any = convert_single_version,
) -> list[Object]:
    track_update(
        kind,
        old,
        new,
        manager=manager,
        api_version=new["apiVersion"],
        time=lambda: T1,
        convert=convert,
    )
    return list(new["metadata"].get("managedFields", []))


def test_a_creator_manages_all() -> None:
    """The creator owns all fields of a new object, except those that every object has."""
    obj = made(config_map({"a": "1"}, labels={"l": "1"}, uid="u", creationTimestamp=T0))
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
        "f:data": {".": {}, "f:a": {}},
    }
    assert obj["metadata"]["managedFields"] == [entry("me", fields, time=T0)]
    web: Object = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    made(web, kind=DEPLOYMENT)
    container: Object = {'k:{"name":"c"}': {".": {}, "f:name": {}, "f:image": {}}}
    assert web["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": container}}}
    }
    nothing = made(config_map(managedFields=[entry("x", {"f:data": {}})]))
    assert "managedFields" not in nothing["metadata"]


def test_changed_fields_move() -> None:
    """Changed and added fields move to the writer, removed ones have no owner, others stay."""
    old = made(config_map({"a": "1", "b": "2", "c": "3"}))
    found = changed(old, config_map({"a": "1", "b": "9", "d": "4"}))
    assert found == [
        entry("me", {"f:data": {".": {}, "f:a": {}}}, time=T0),
        entry("other", {"f:data": {"f:b": {}, "f:d": {}}}, time=T1),
    ]


def test_the_same_writer_again() -> None:
    """A manager has one entry, with a new time; the times of other managers stay."""
    old = made(config_map({"a": "1", "b": "2"}))
    new = config_map({"a": "2", "b": "2"})
    changed(old, new)
    new["metadata"]["resourceVersion"] = "2"
    found = changed(new, config_map({"a": "3", "b": "3"}))
    assert found == [
        entry("me", {"f:data": {".": {}}}, time=T0) | {"fieldsV1": {"f:data": {}}},
        entry("other", {"f:data": {"f:a": {}, "f:b": {}}}, time=T1),
    ]


def test_nothing_changed() -> None:
    """A write that changes nothing returns the identical entries; so does one that only removes."""
    old = made(config_map({"a": "1", "b": "2"}))
    before = old["metadata"]["managedFields"]
    assert changed(old, config_map({"b": "2", "a": "1"})) == before
    fields: Object = {"f:data": {".": {}, "f:a": {}}}
    assert changed(old, config_map({"a": "1"})) == [entry("me", fields, time=T0)]
    assert changed(old, config_map()) == []


def test_objects_without_entries_stay_untracked() -> None:
    """An update adds no entries to an object without any, or to one whose entries were reset."""
    old = config_map({"a": "1"}, resourceVersion="1")
    assert changed(old, config_map({"a": "2"})) == []
    tracked = made(config_map({"a": "1"}))
    assert changed(tracked, config_map({"a": "2"}, managedFields=[{}])) == []
    broken = config_map({"a": "1"}, resourceVersion="1", managedFields=[{"manager": 5}])
    assert changed(broken, config_map({"a": "2"})) == []


def test_entries_of_a_client() -> None:
    """Clients may send entries only to the main resource, and invalid names are rejected."""
    old = made(config_map({"a": "1"}))
    sent = [entry("new", {"f:data": {"f:a": {}}})]
    assert changed(old, config_map({"a": "1"}, managedFields=sent)) == sent
    part = Manager("kubelet", "status")
    new = config_map({"a": "1"}, managedFields=sent)
    assert changed(old, new, manager=part) == old["metadata"]["managedFields"]
    unknown = [entry("new", {"f:data": {"f:a": {}}}, version="v9")]
    assert changed(old, config_map({"a": "1"}, managedFields=unknown)) == []
    long = [entry("n" * 129, {"f:data": {"f:a": {}}})]
    with pytest.raises(EntriesRefused):
        changed(old, config_map({"a": "1"}, managedFields=long))


def test_subresources_have_their_own_entries() -> None:
    """The same manager has another entry per subresource."""
    old = made(config_map({"a": "1"}))
    found = changed(old, config_map({"a": "2"}), manager=Manager("me", "status"))
    assert [each.get("subresource") for each in found] == [None, "status"]


def test_versions_are_compared_by_their_own_field_names() -> None:
    """An entry of another version loses the field under its name in that version."""
    kind = Open()
    old: Object = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "a"},
        "spec": {"old": 1, "same": 1},
    }
    made(old, kind=kind)
    new = {"apiVersion": "v2", "kind": "X", "metadata": {"name": "a"}}
    seen = convert_renaming(old, "v2")
    assert seen is not None
    found = changed(
        seen, {**new, "spec": {"new": 2, "same": 1}}, kind=kind, convert=convert_renaming
    )
    assert found == [
        entry("me", {"f:spec": {".": {}, "f:same": {}}}, time=T0),
        entry("other", {"f:spec": {"f:new": {}}}, version="v2", time=T1),
    ]


def test_a_part_that_became_atomic() -> None:
    """The owner of fields of a part that became atomic loses the whole part when it changes."""
    selector: Object = {"f:spec": {"f:selector": {"f:matchLabels": {"f:a": {}}}, "f:replicas": {}}}
    old: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "managedFields": [entry("me", selector, version="apps/v1")]},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}},
    }
    new = {**old, "metadata": {"name": "a"}}
    new["spec"] = {"replicas": 1, "selector": {"matchLabels": {"a": "c"}}}
    found = changed(old, new, kind=DEPLOYMENT)
    assert [each["fieldsV1"] for each in found] == [
        {"f:spec": {"f:replicas": {}}},
        {"f:spec": {"f:selector": {}}},
    ]
