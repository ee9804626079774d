"""Objects that only servers may write: each rule, and the writes that it allows."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from restow.apimachinery.status import Forbidden, Invalid
from restow.apis.names import (
    EPOCH_ANNOTATION,
    IDENTITY_LABEL,
    IDENTITY_LABEL_VALUE,
    LEASE_NAMESPACE,
    VERIFIER_ANNOTATION,
)
from restow.registry import ownership
from restow.registry.catalog import builtin_catalog
from restow.registry.resource import Resource
from restow.storage.interface import Absent, Key

Object = dict[str, Any]
CATALOG = builtin_catalog()
LEASE = ("coordination.k8s.io", "Lease")
REPORT = ("internal.apiserver.k8s.io", "StorageVersion")
VOTE = ("kube-apiserver.internal.k8s.io", "StorageVersion")
STATE = ("migration.k8s.io", "StorageState")

ENTRIES = [{"apiServerID": f"s{number}", "encodingVersion": "v1"} for number in range(5)]


def resource_of(group: str, kind: str) -> Resource:
    found = CATALOG.of_kind(group, kind)
    assert found is not None
    return found


def lease(*, namespace: str = LEASE_NAMESPACE, value: str = IDENTITY_LABEL_VALUE) -> Object:
    labels = {IDENTITY_LABEL: value} if value else {}
    return {"metadata": {"name": "l", "namespace": namespace, "labels": labels}, "spec": {}}


def report(entries: int = 1, **metadata: Any) -> Object:
    status = {"storageVersions": ENTRIES[:entries]} if entries else {}
    return {"metadata": {"name": "core.pods", **metadata}, "spec": {}, "status": status}


def vote(candidates: int = 1, **metadata: Any) -> Object:
    return {
        "metadata": {"name": "core.v1.pods", **metadata},
        "selectedVersion": "v1",
        "candidateVersions": ENTRIES[:candidates],
    }


def state(**metadata: Any) -> Object:
    return {"metadata": {"name": "pods", **metadata}, "spec": {"resource": {"resource": "pods"}}}


def refusal(kind: tuple[str, str], *, new: Object | None, old: Object | None) -> str:
    """Return the message of the 403, or an empty text; checks that its arguments are unchanged."""
    resource = resource_of(*kind)
    given = deepcopy((new, old))
    try:
        if new is None:
            assert old is not None
            ownership.check_delete(resource, old)
        elif old is None:
            ownership.check_create(resource, new)
        else:
            ownership.check_update(resource, new, old)
    except Forbidden as error:
        return error.message
    finally:
        assert (new, old) == given
    return ""


IDENTITY = (
    'leases.coordination.k8s.io "l" is forbidden: identity leases are written by their server alone'
)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (lease(), None),
        (lease(), lease()),
        (lease(value=""), lease()),
        (lease(), lease(value="other")),
        (None, lease()),
    ],
)
def test_identity_leases(new: Object | None, old: Object | None) -> None:
    """Clients cannot create, change, adopt, orphan or delete one."""
    assert refusal(LEASE, new=new, old=old) == IDENTITY


@pytest.mark.parametrize(
    "free", [lease(namespace="default"), lease(value=""), lease(value="my-server")]
)
def test_other_leases(free: Object) -> None:
    """Leases in other namespaces, or without the label, are not restricted."""
    assert refusal(LEASE, new=free, old=None) == ""
    assert refusal(LEASE, new={**free, "spec": {"holderIdentity": "x"}}, old=free) == ""
    assert refusal(LEASE, new=None, old=free) == ""


OWNED = {EPOCH_ANNOTATION: "7"}
REPORTS = 'storageversions.internal.apiserver.k8s.io "core.pods" is forbidden: '
ANNOTATION = f"this annotation is written by the API servers alone: {EPOCH_ANNOTATION}"
ALONE = "API servers delete it, so owner references and finalizers cannot be added"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (report(2), report(1), "its status is written by the API servers alone"),
        (report(0), report(1), "its status is written by the API servers alone"),
        (report(1), None, "its status is written by the API servers alone"),
        (report(0, annotations=OWNED), None, ANNOTATION),
        (report(annotations=OWNED), report(), ANNOTATION),
        (report(), report(annotations=OWNED), ANNOTATION),
        (report(annotations={EPOCH_ANNOTATION: "8"}), report(annotations=OWNED), ANNOTATION),
        (report(finalizers=["x.io/y"]), report(), ALONE),
        (report(ownerReferences=[OWNER]), report(), ALONE),
        (report(0, ownerReferences=[OWNER]), None, ALONE),
        (None, report(2), "API servers still report it: s0, s1"),
        (None, report(5), "API servers still report it: s0, s1, s2 + 2 more..."),
    ],
)
def test_reports(new: Object | None, old: Object | None, why: str) -> None:
    """Only servers write the status and our annotations, and control deletion."""
    assert refusal(REPORT, new=new, old=old) == REPORTS + why


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (report(0), None),
        (report(0, labels={"a": "b"}, annotations={"a": "b"}), None),
        (report(), report()),
        (
            report(labels={"a": "b"}, annotations={**OWNED, "x.io/a": "b"}),
            report(annotations=OWNED),
        ),
        (report(), report(finalizers=["orphan"], ownerReferences=[OWNER])),
        (
            report(ownerReferences=[{**OWNER, "blockOwnerDeletion": False}]),
            report(ownerReferences=[{**OWNER, "blockOwnerDeletion": True}]),
        ),
        (None, report(0)),
        (None, report(0, annotations=OWNED)),
    ],
)
def test_allowed_changes_of_storage_versions(new: Object | None, old: Object | None) -> None:
    """Labels, other annotations, removal of owners; deletion of one without entries."""
    assert refusal(REPORT, new=new, old=old) == ""


def test_an_equal_status_in_another_form() -> None:
    """A missing or null field is equal to an empty one: nothing would change."""
    old = report()
    old["status"]["conditions"] = [{"type": "A", "message": "", "lastTransitionTime": None}]
    new = report()
    new["status"]["conditions"] = [{"type": "A"}]
    assert refusal(REPORT, new=new, old=old) == ""
    assert refusal(REPORT, new=report(0) | {"status": {"conditions": []}}, old=report(0)) == ""


VOTES = 'storageversions.kube-apiserver.internal.k8s.io "core.v1.pods" is forbidden: '


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        (vote(), None, "votes are written by the API servers alone"),
        (vote(0), None, "votes are written by the API servers alone"),
        (vote(2), vote(1), "votes are written by the API servers alone"),
        (vote(labels={"a": "b"}), vote(), "votes are written by the API servers alone"),
        (vote(finalizers=["x.io/a"]), vote(), "votes are written by the API servers alone"),
        (None, vote(1), "API servers still vote on it: s0"),
    ],
)
def test_votes(new: Object | None, old: Object | None, why: str) -> None:
    """Clients cannot create or change votes, or delete one that has candidate versions."""
    assert refusal(VOTE, new=new, old=old) == VOTES + why


def test_allowed_changes_of_votes() -> None:
    """An update without a change is allowed; a vote without candidate versions can be deleted."""
    assert refusal(VOTE, new=vote(), old=vote(resourceVersion="5")) == ""
    assert refusal(VOTE, new=None, old=vote(0)) == ""
    leaving = vote(0, finalizers=["foregroundDeletion"], deletionTimestamp="t")
    assert refusal(VOTE, new=vote(0, finalizers=[], deletionTimestamp="t"), old=leaving) == ""


def test_states() -> None:
    """Clients may write and delete StorageStates, except for our annotations."""
    message = f'storagestates.migration.k8s.io "pods" is forbidden: {ANNOTATION}'
    assert refusal(STATE, new=state(annotations=OWNED), old=None) == message
    assert refusal(STATE, new=state(annotations=OWNED), old=state()) == message
    assert refusal(STATE, new=state(), old=state(annotations=OWNED)) == message
    assert refusal(STATE, new=state(), old=None) == ""
    assert refusal(STATE, new=None, old=state(annotations=OWNED)) == ""


def hashes(*persisted: str, keys: tuple[str, ...] = (), verifier: str = "servers") -> Object:
    annotations = {VERIFIER_ANNOTATION: verifier} if verifier else {}
    status = {"persistedStorageVersionHashes": [*persisted]} if persisted else {}
    if keys:
        status["persistedEncryptionKeys"] = [*keys]
    return {**state(annotations=annotations), "status": status}


NARROWING = [
    (hashes("h"), hashes("h", "g")),
    (hashes("h"), hashes("Unknown", "h")),
    (hashes("h"), hashes()),
    (hashes(), hashes("h")),
    (hashes("g"), hashes("h")),
    (hashes("h"), hashes("h", keys=("identity", "k"))),
    (hashes("h", keys=("k",)), hashes("h", keys=("identity", "k"))),
    (hashes("h", keys=("k",)), hashes("h")),
]
ALLOWED = [
    (hashes("h"), hashes("h")),
    (hashes(), hashes()),
    (hashes("h", "g"), hashes("h")),
    (hashes("Unknown"), hashes("h", "g")),
    (hashes("Unknown", "h"), hashes()),
    (hashes("h", keys=("identity", "k")), hashes("h")),
]


def unsaid(value: Object) -> Object:
    """Return the state without the annotation about the verifier."""
    return {**value, "metadata": {"name": "pods"}}


@pytest.mark.parametrize(("new", "old"), NARROWING)
def test_states_are_narrowed_by_servers(new: Object, old: Object) -> None:
    """Rejected if servers verify; without the annotation, rejected if servers report the resource;
    allowed if no server can verify."""
    resource = resource_of(*STATE)
    with pytest.raises(Invalid, match="removed by the API servers alone"):
        ownership.check_update(resource, new, old)
    assert ownership.guard_of_update(resource, new, old) is None
    ownership.check_update(resource, unsaid(new), unsaid(old))
    guard = ownership.guard_of_update(resource, unsaid(new), unsaid(old))
    assert guard == Absent(Key("/restow/epoch/core.pods"))
    marks = {"metadata": {"name": "pods", "annotations": {VERIFIER_ANNOTATION: "migrator"}}}
    ownership.check_update(resource, new | marks, old | marks)
    assert ownership.guard_of_update(resource, new | marks, old | marks) is None


@pytest.mark.parametrize(("new", "old"), ALLOWED)
def test_states_become_more_careful(new: Object, old: Object) -> None:
    """Hashes and keys may be added; "Unknown" stands for all hashes: any client may write that."""
    resource = resource_of(*STATE)
    ownership.check_update(resource, new, old)
    assert ownership.guard_of_update(resource, unsaid(new), unsaid(old)) is None


def test_all_other_kinds_are_free() -> None:
    """Objects of other kinds are not restricted."""
    config_map = {"metadata": {"name": "a", "annotations": OWNED, "labels": {IDENTITY_LABEL: "x"}}}
    for resource in CATALOG.persisted():
        if (resource.group, resource.kind.kind) not in (LEASE, REPORT, VOTE, STATE):
            ownership.check_create(resource, config_map)
            ownership.check_update(resource, config_map, {"metadata": {}})
            ownership.check_delete(resource, config_map)


def test_the_rules_are_where_the_kinds_are() -> None:
    """The rules have the key prefix of each of the four kinds."""
    roots = {resource_of(*kind).root for kind in (LEASE, REPORT, VOTE, STATE)}
    assert set(ownership._RULES) == roots
