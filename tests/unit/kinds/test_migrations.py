"""Migrations of both API groups: their fields, and every validation rule."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.typed_json import check
from restow.kinds.builtin import find_kind
from restow.kinds.derived_types import all_types
from restow.kinds.validation import validate

Object = dict[str, Any]
OLD = ("migration.k8s.io", "StorageVersionMigration")
NEW = ("storagemigration.k8s.io", "StorageVersionMigration")
SPEC: Object = {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}}
LABEL = "a DNS-1035 label must consist of"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


def causes(kind: tuple[str, str], new: Object, old: Object | None = None) -> list[str]:
    return [str(cause) for cause in validate(*kind, new, old)]


def status_causes(kind: tuple[str, str], status: Object, before: Object | None = None) -> list[str]:
    return causes(kind, {"spec": SPEC, "status": status}, {"spec": SPEC, "status": before or {}})


def condition(kind: str = "Running", **changes: Any) -> Object:
    made = {"type": kind, "status": "True", "reason": "R", "lastTransitionTime": "t"}
    return {**made, **changes}


@pytest.mark.parametrize("kind", [OLD, NEW])
def test_something_acts_on_them(kind: tuple[str, str]) -> None:
    """Creating one causes no warning, and both have their subresources."""
    found = find_kind(*kind)
    assert found is not None
    assert not found.behaviour_missing
    assert [each.name for each in found.subresources] == ["status", "rewrite"]


@pytest.mark.parametrize("kind", [OLD, NEW])
@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"resource": "pods"}, []),
        ({"resource": "widgets", "group": "example.com"}, []),
        ({}, ["spec.resource.resource: Required value: resource is required to be set"]),
        ({"group": "apps"}, ["spec.resource.resource: Required value"]),
        ({"resource": "Pods"}, [f'spec.resource.resource: Invalid value: "Pods": {LABEL}']),
        ({"resource": "pods/status"}, ['spec.resource.resource: Invalid value: "pods/status"']),
        (
            {"resource": "pods", "group": "A B"},
            [f'spec.resource.group: Invalid value: "A B": {SUBDOMAIN}'],
        ),
    ],
)
def test_the_resource(kind: tuple[str, str], resource: Object, expected: list[str]) -> None:
    """A migration names its resource, in a valid form."""
    found = causes(kind, {"spec": {"resource": resource}})
    assert len(found) == len(expected)
    for cause, wanted in zip(found, expected, strict=True):
        assert cause.startswith(wanted)


def test_the_version_of_a_resource() -> None:
    """The old group has an optional version, which must be valid."""
    (cause,) = causes(OLD, {"spec": {"resource": {**SPEC["resource"], "version": "1"}}})
    assert cause.startswith('spec.resource.version: Invalid value: "1"')


def test_mutable_fields_of_a_spec() -> None:
    """None in one group; in the other, the continue token."""
    old: Object = {"spec": SPEC}
    other: Object = {"spec": {"resource": {"resource": "pods"}}}
    further: Object = {"spec": {**SPEC, "continueToken": "t"}}
    assert [cause.partition(": {")[0] for cause in causes(NEW, other, old)] == [
        "spec: Invalid value"
    ]
    assert [cause.partition(": {")[0] for cause in causes(OLD, other, old)] == [
        "spec.resource: Invalid value"
    ]
    assert causes(OLD, further, old) == []
    assert causes(OLD, old, further) == []
    too_long: Object = {"spec": {**SPEC, "continueToken": "t" * (64 * 1024 + 1)}}
    assert causes(OLD, too_long, old) == [
        "spec.continueToken: Too long: may not be more than 65536 bytes"
    ]


def test_a_request_from_before_the_rules_can_still_be_written() -> None:
    """Its spec is not validated again while it is unchanged."""
    old: Object = {"spec": {"resource": {"resource": "Odd Name"}}}
    assert causes(OLD, {**old, "status": {"conditions": [condition()]}}, old) == []


# Conditions.


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([condition(), condition("Succeeded"), condition("example.com/Own")], []),
        (
            [condition(status="Maybe")],
            ['status.conditions[0].status: Unsupported value: "Maybe"'],
        ),
        (
            [{"type": "A", "reason": "R", "lastTransitionTime": "t"}],
            ["status.conditions[0].status"],
        ),
        ([condition("a b")], ['status.conditions[0].type: Invalid value: "a b"']),
        ([condition(), condition()], ['status.conditions[1].type: Duplicate value: "Running"']),
        ([condition(reason="")], ["status.conditions[0].reason: Required value"]),
        ([condition(reason="9")], ['status.conditions[0].reason: Invalid value: "9"']),
        ([condition(reason="R" * 1025)], ["status.conditions[0].reason: Too long"]),
        ([condition(message="m" * 32769)], ["status.conditions[0].message: Too long"]),
        ([condition(observedGeneration=-1)], ["status.conditions[0].observedGeneration"]),
        (
            [condition(lastTransitionTime=None)],
            ["status.conditions[0].lastTransitionTime: Required value"],
        ),
    ],
)
def test_standard_conditions(found: list[Object], expected: list[str]) -> None:
    """The rules of Kubernetes for conditions."""
    told = status_causes(NEW, {"conditions": found})
    assert len(told) == len(expected)
    for cause, wanted in zip(told, expected, strict=True):
        assert cause.startswith(wanted)


def test_the_end_of_a_migration_is_final() -> None:
    """It has not both succeeded and failed, and neither is reverted."""
    done = {"conditions": [condition("Succeeded")]}
    both = {"conditions": [condition("Succeeded"), condition("Failed")]}
    (cause,) = status_causes(NEW, both, done)
    assert cause.endswith("Both success and failed conditions cannot be true at the same time")
    undone = {"conditions": [condition("Succeeded", status="False")]}
    (cause,) = status_causes(NEW, undone, done)
    assert cause.endswith("Success condition cannot be set to false once it is true")
    (cause,) = status_causes(NEW, {}, {"conditions": [condition("Failed")]})
    assert cause.endswith("Failed condition cannot be set to false once it is true")


@pytest.mark.parametrize(
    ("version", "before", "expected"),
    [
        ("1", "", []),
        ("123456789012345678901234567890", "", []),
        ("01", "", ['status.resourceVersion: Invalid value: "01": resource version is not well']),
        ("0", "", ['status.resourceVersion: Invalid value: "0"']),
        ("7", "7", []),
        ("8", "7", ['status.resourceVersion: Invalid value: "8": field is immutable']),
        ("", "7", ["status.resourceVersion: Invalid value"]),
    ],
)
def test_the_resource_version(version: str, before: str, expected: list[str]) -> None:
    """It is a number, and immutable once set."""
    told = status_causes(NEW, {"resourceVersion": version}, {"resourceVersion": before})
    assert len(told) == len(expected)
    for cause, wanted in zip(told, expected, strict=True):
        assert cause.startswith(wanted)


# The status of the old group.


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"conditions": [{"type": "Failed", "status": "True", "message": "m" * 100_000}]}, []),
        ({"conditions": [{"type": "Some Other", "status": "Unknown"}]}, []),
        ({"conditions": [{"type": "A"}]}, ["status.conditions[0].status: Required value"]),
        (
            {"conditions": [{"type": "A", "status": "Maybe"}]},
            ['status.conditions[0].status: Unsupported value: "Maybe"'],
        ),
        (
            {"conditions": [{"type": "A", "status": "True"}] * 2},
            ['status.conditions[1].type: Duplicate value: "A"'],
        ),
        (
            {"conditions": [{"type": f"A{n}", "status": "True"} for n in range(65)]},
            ["status.conditions: Too many: 65: must have at most 64 items"],
        ),
        ({"progress": {"scanned": 5, "remaining": 0, "objectsPerSecond": 1.5}}, []),
        (
            {"progress": {"scanned": -1, "secondsLeft": -2, "objectsPerSecond": -0.5}},
            [
                "status.progress.scanned: Invalid value: -1",
                "status.progress.secondsLeft: Invalid value: -2",
                "status.progress.objectsPerSecond: Invalid value: -0.5",
            ],
        ),
        ({"failedObjects": [{"name": "a"}] * 100}, []),
        (
            {"failedObjects": [{"name": "a"}] * 101},
            ["status.failedObjects: Too many: 101: must have at most 100 items"],
        ),
        (
            {"failedObjects": [{"reason": "R"}, {"name": "a", "message": "m" * 1025}]},
            [
                "status.failedObjects[0].name: Required value",
                "status.failedObjects[1].message: Too long: may not be more than 1024 bytes",
            ],
        ),
    ],
)
def test_the_status_of_the_old_group(status: Object, expected: list[str]) -> None:
    """Statuses that migrators write pass; counts are not negative, and every field has a limit."""
    told = status_causes(OLD, status)
    assert len(told) == len(expected)
    for cause, wanted in zip(told, expected, strict=True):
        assert cause.startswith(wanted)
    assert status_causes(OLD, status, status) == []


def test_fields_of_the_old_group() -> None:
    """Progress and failures have types; an unknown count is absent, not zero."""
    struct = all_types().of_kind(OLD[0], "v1alpha1", OLD[1])
    assert struct is not None
    progress = {
        "pass": 2, "scanned": 1, "rewritten": 1, "unchanged": 0, "failed": 0,
        "remaining": 0, "objectsPerSecond": 12.5, "secondsLeft": 0,
    }  # fmt: skip
    failed = [{"namespace": "n", "name": "a", "reason": "Invalid", "message": "m"}]
    found = check(
        struct, {"metadata": {}, "status": {"progress": progress, "failedObjects": failed}}
    )
    assert found.unknown == []
    kept = found.value["status"]
    assert kept["failedObjects"] == failed
    assert (kept["progress"]["remaining"], kept["progress"]["secondsLeft"]) == (0, 0)
    unknown = {"metadata": {}, "status": {"progress": {"scanned": 1, "remaining": None}}}
    assert check(struct, unknown).value["status"]["progress"] == {"scanned": 1}
