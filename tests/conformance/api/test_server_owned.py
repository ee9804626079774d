"""Storage versions, votes, migration states and identity leases: what clients see, and what only
servers may write."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from restow.apis.names import EPOCH_ANNOTATION, IDENTITY_LABEL, IDENTITY_LABEL_VALUE
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import RunningServer, catalog_of
from tests.support.api_client import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    TABLE,
    ApiClient,
    Reply,
)

Object = dict[str, Any]
REPORTS = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
VOTES = "/apis/kube-apiserver.internal.k8s.io/v1alpha1/storageversions"
STATES = "/apis/migration.k8s.io/v1alpha1/storagestates"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
REPORT, VOTE, STATE, LEASE = (
    f"{REPORTS}/apps.deployments",
    f"{VOTES}/apps.v1.deployments",
    f"{STATES}/deployments.apps",
    f"{LEASES}/apiserver-a",
)
CREATED = {"uid": "u-1", "creationTimestamp": "2026-01-02T03:04:05Z"}
OWNED = {EPOCH_ANNOTATION: "3"}
STATUS = {
    "storageVersions": [
        {
            "apiServerID": f"apiserver-{letter}",
            "encodingVersion": "apps/v1",
            "decodableVersions": ["apps/v1", "apps/v1beta2"],
            "servedVersions": ["apps/v1"],
        }
        for letter in "abcd"
    ],
    "commonEncodingVersion": "apps/v1",
    "conditions": [
        {
            "type": "AllEncodingVersionsEqual",
            "status": "True",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "CommonEncodingVersionSet",
            "message": "Common encoding version set",
        }
    ],
}
CANDIDATES = [{"apiServerID": f"apiserver-{letter}", "preferredVersion": "v1"} for letter in "abcd"]
IDENTITY_LABELS = {IDENTITY_LABEL: IDENTITY_LABEL_VALUE}


def raw(kind: str, api_version: str, name: str, *, meta: Object, **fields: Any) -> Object:
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {"name": name, **CREATED, **meta},
        **fields,
    }


@pytest_asyncio.fixture
async def owned(server: RunningServer) -> RunningServer:
    """A server whose store holds server-owned objects, stored below the API."""
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    await server.put_raw(
        "/registry/storageversions/apps.deployments",
        raw(
            "StorageVersion",
            "internal.apiserver.k8s.io/v1alpha1",
            "apps.deployments",
            meta={"annotations": OWNED},
            spec={},
            status=STATUS,
        ),
    )
    await server.put_raw(
        "/registry/kube-apiserver.internal.k8s.io/storageversions/apps.v1.deployments",
        raw(
            "StorageVersion",
            "kube-apiserver.internal.k8s.io/v1alpha1",
            "apps.v1.deployments",
            meta={},
            selectedVersion="v1",
            candidateVersions=CANDIDATES,
        ),
    )
    await server.put_raw(
        "/registry/migration.k8s.io/storagestates/deployments.apps",
        raw(
            "StorageState",
            "migration.k8s.io/v1alpha1",
            "deployments.apps",
            meta={"annotations": OWNED},
            spec={"resource": {"group": "apps", "resource": "deployments"}},
            status={"persistedStorageVersionHashes": ["Unknown", "h"]},
        ),
    )
    await server.put_raw(
        "/registry/leases/kube-system/apiserver-a",
        raw(
            "Lease",
            "coordination.k8s.io/v1",
            "apiserver-a",
            meta={"namespace": "kube-system", "labels": IDENTITY_LABELS},
            spec={"leaseDurationSeconds": 15},
        ),
    )
    return server


def assert_forbidden(reply: Reply, what: str, why: str) -> None:
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert reply.message == f"{what} is forbidden: {why}"


# Storage versions.

REPORT_NAME = 'storageversions.internal.apiserver.k8s.io "apps.deployments"'
OF_SERVERS = "its status is written by the API servers alone"


@pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
async def test_create_update_and_delete_of_a_storage_version(server: RunningServer) -> None:
    """A status in a create is dropped; `spec` and `status` are always present."""
    api = server.client
    made = await api.post(REPORTS, {"metadata": {"name": "apps.deployments"}, "status": STATUS})
    assert made.status == 201
    assert made.warnings == []
    assert (made.json["spec"], made.json["status"]) == ({}, {})
    assert "generation" not in made.json["metadata"]
    stored = await server.raw("/registry/storageversions/apps.deployments")
    assert (stored["spec"], stored["status"]) == ({}, {})
    again = await api.post(REPORTS, {"metadata": {"name": "apps.deployments"}})
    assert (again.status, again.reason, again.message) == (
        409,
        "AlreadyExists",
        f"{REPORT_NAME} already exists",
    )
    changed = made.json | {"metadata": made.json["metadata"] | {"labels": {"a": "b"}}}
    reply = await api.put(REPORT, changed | {"status": STATUS})
    assert (reply.status, reply.json["status"]) == (200, {})
    assert "generation" not in reply.json["metadata"]
    stale = await api.put(REPORT, changed)
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message == (
        f"Operation cannot be fulfilled on {REPORT_NAME}: the object has been modified; please "
        "apply your changes to the latest version and try again"
    )
    for target in (REPORT, f"{REPORT}/status"):
        blind = await api.put(target, {"metadata": {"name": "apps.deployments"}})
        assert blind.status == 422
        assert blind.message.startswith(
            'storageversions.internal.apiserver.k8s.io "apps.deployments" is invalid: '
            "metadata.resourceVersion: Invalid value: "
        )
        assert blind.message.endswith(": must be specified for an update")
    assert (await api.put(f"{REPORTS}/a.b", {"metadata": {"name": "a.b"}})).status == 404
    assert (await api.delete(REPORT)).status == 200


async def test_names_of_storage_versions(api: ApiClient) -> None:
    """An invalid name is reported once, with the reference server's message; generateName works."""
    reply = await api.post(REPORTS, {"metadata": {"name": "pods"}})
    assert (reply.status, reply.message) == (
        422,
        (
            'StorageVersion.internal.apiserver.k8s.io "pods" is invalid: metadata.name: Invalid '
            'value: "pods": name must be in the form of <group>.<resource>'
        ),
    )
    long = f"core.{'r' * 64}"
    reply = await api.post(REPORTS, {"metadata": {"name": long}})
    assert reply.message == (
        f'StorageVersion.internal.apiserver.k8s.io "{long}" is invalid: metadata.name: Invalid '
        f'value: "{long}": the resource segment must be no more than 63 characters'
    )
    assert (await api.post(REPORTS, {"metadata": {"generateName": "core.pods"}})).status == 201


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"commonEncodingVersion": "apps/v2"},
            (
                "status.commonEncodingVersion: Invalid value: "
                '"apps/v2": the actual common encoding version is apps/v1'
            ),
        ),
        (
            {"commonEncodingVersion": None},
            (
                "status.commonEncodingVersion: Invalid value: "
                "null: the common encoding version is apps/v1"
            ),
        ),
        (
            {"storageVersions": None},
            (
                'status.commonEncodingVersion: Invalid value: "apps/v1": should be nil if servers '
                "do not agree on the same encoding version, or if there is no server reporting the "
                "supported versions yet"
            ),
        ),
        (
            {"conditions": [{"type": "A", "status": "True", "message": "m"}]},
            "status[0].reason: Required value: reason cannot be empty",
        ),
    ],
)
async def test_an_invalid_status_is_reported_first(
    owned: RunningServer, change: Object, message: str
) -> None:
    """A status is validated before the check of who may write it."""
    reply = await owned.client.patch(f"{REPORT}/status", {"status": change})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.message == (
        f'StorageVersion.internal.apiserver.k8s.io "apps.deployments" is invalid: {message}'
    )


@pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_the_status_of_a_storage_version_is_server_owned(
    owned: RunningServer, query: str
) -> None:
    """No verb and no patch type changes it; a request without changes succeeds as usual."""
    api = owned.client
    found = (await api.get(REPORT)).json
    fewer = STATUS | {"storageVersions": STATUS["storageVersions"][:1]}
    target = f"{REPORT}/status{query}"
    for reply in (
        await api.put(target, found | {"status": fewer}),
        await api.put(target, found | {"status": {}}),
        await api.patch(target, {"status": fewer}, MERGE_PATCH),
        await api.patch(target, {"status": {"conditions": []}}, STRATEGIC_PATCH),
        await api.patch(target, [{"op": "remove", "path": "/status/conditions"}], JSON_PATCH),
    ):
        assert_forbidden(reply, REPORT_NAME, OF_SERVERS)
        assert reply.json["details"] == {
            "name": "apps.deployments",
            "group": "internal.apiserver.k8s.io",
            "kind": "storageversions",
        }
    same = await api.put(target, found | {"status": STATUS})
    assert (same.status, same.json) == (200, found)
    labelled = found | {"metadata": found["metadata"] | {"labels": {"a": "b"}, "annotations": {}}}
    ignored = await api.put(target, labelled)
    assert (ignored.status, ignored.json) == (200, found)
    assert (await api.get(REPORT)).json == found


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_labels_of_storage_versions_may_change(owned: RunningServer, query: str) -> None:
    """Labels and annotations may be changed, except those that servers own."""
    api = owned.client
    target = REPORT + query
    free = {"labels": {"a": "b"}, "annotations": {"x.io/y": "z"}}
    reply = await api.patch(target, {"metadata": free, "status": {"storageVersions": None}})
    assert reply.status == 200
    assert reply.json["metadata"]["annotations"] == OWNED | {"x.io/y": "z"}
    assert reply.json["status"] == STATUS
    why = f"this annotation is written by the API servers alone: {EPOCH_ANNOTATION}"
    for value in ("4", None):
        change = {"metadata": {"annotations": {EPOCH_ANNOTATION: value}}}
        assert_forbidden(await api.patch(target, change), REPORT_NAME, why)
    made = {"metadata": {"name": "core.pods", "annotations": OWNED}}
    assert_forbidden(
        await api.post(REPORTS + query, made),
        'storageversions.internal.apiserver.k8s.io "core.pods"',
        why,
    )
    why = "API servers delete it, so owner references and finalizers cannot be added"
    held = {"metadata": {"finalizers": ["x.io/y"]}}
    assert_forbidden(await api.patch(target, held), REPORT_NAME, why)


async def test_storage_versions_with_entries_cannot_be_deleted(owned: RunningServer) -> None:
    """A delete is refused and names the servers; in a collection and as a dry run too."""
    api = owned.client
    why = "API servers still report it: apiserver-a, apiserver-b, apiserver-c + 1 more..."
    for target in (REPORT, f"{REPORT}?dryRun=All", f"{REPORT}?propagationPolicy=Foreground"):
        assert_forbidden(await api.delete(target), REPORT_NAME, why)
    await api.post(REPORTS, {"metadata": {"name": "core.pods"}})
    assert_forbidden(await api.delete(REPORTS), REPORT_NAME, why)
    assert (await api.get(REPORTS)).names == ["apps.deployments"]


async def test_a_terminating_storage_version_gets_entries(owned: RunningServer) -> None:
    """An object marked for deletion while empty is not removed once servers add entries to it."""
    api = owned.client
    key = "/registry/storageversions/apps.deployments"
    stored = await owned.raw(key)
    stored["metadata"] |= {
        "deletionTimestamp": "2026-01-02T03:04:05Z",
        "finalizers": ["foregroundDeletion"],
    }
    await owned.put_raw(key, stored)
    reply = await api.patch(REPORT, {"metadata": {"finalizers": None}})
    assert reply.status == 403
    assert "API servers still report it: " in reply.message
    await owned.put_raw(key, stored | {"status": {}})
    assert (await api.patch(REPORT, {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(REPORT)).status == 404


# Votes.

VOTE_NAME = 'storageversions.kube-apiserver.internal.k8s.io "apps.v1.deployments"'


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_votes_are_server_owned(owned: RunningServer, query: str) -> None:
    """Clients may read votes, and delete those without candidates; there is no status."""
    api = owned.client
    why = "votes are written by the API servers alone"
    found = (await api.get(VOTE)).json
    fewer = {"candidateVersions": CANDIDATES[:1]}
    target = VOTE + query
    for reply in (
        await api.put(target, found | fewer),
        await api.patch(target, {"selectedVersion": "v2"}),
        await api.patch(target, {"metadata": {"labels": {"a": "b"}}}),
    ):
        assert_forbidden(reply, VOTE_NAME, why)
    made = {"metadata": {"name": "core.v1.pods"}, "selectedVersion": "v1"}
    assert_forbidden(
        await api.post(VOTES + query, made),
        'storageversions.kube-apiserver.internal.k8s.io "core.v1.pods"',
        why,
    )
    assert_forbidden(
        await api.delete(target),
        VOTE_NAME,
        "API servers still vote on it: apiserver-a, apiserver-b, apiserver-c + 1 more...",
    )
    assert (await api.get(f"{VOTE}/status")).status == 404
    assert (await api.get(VOTE)).json == found


async def test_a_vote_without_candidates_can_be_deleted(owned: RunningServer) -> None:
    """A vote without candidates is no longer in use and may be deleted."""
    key = "/registry/kube-apiserver.internal.k8s.io/storageversions/apps.v1.deployments"
    stored = await owned.raw(key)
    del stored["candidateVersions"]
    await owned.put_raw(key, stored)
    assert (await owned.client.delete(VOTE)).status == 200
    assert await owned.raw(key) is None


async def test_an_invalid_vote_is_reported_first(api: ApiClient) -> None:
    """As for storage versions: an invalid object gets 422."""
    reply = await api.post(VOTES, {"metadata": {"name": "apps.pods"}, "selectedVersion": "v1"})
    assert (reply.status, reply.message) == (
        422,
        (
            'StorageVersion.kube-apiserver.internal.k8s.io "apps.pods" is invalid: metadata.name: '
            'Invalid value: "apps.pods": name must be in the form of <group>.<version>.<resource>'
        ),
    )


# Migration states.


async def test_create_and_update_of_a_state(server: RunningServer) -> None:
    """As the trigger controller does it: create, then write the status, with nulls for times."""
    api = server.client
    resource = {"group": "apps", "resource": "deployments"}
    new = {
        "metadata": {"name": "deployments.apps", "creationTimestamp": None},
        "spec": {"resource": resource},
        "status": {"currentStorageVersionHash": "h", "lastHeartbeatTime": None},
    }
    made = await api.post(STATES, new)
    assert made.status == 201
    assert "status" not in made.json
    assert "generation" not in made.json["metadata"]
    status: dict[str, Any] = {
        "persistedStorageVersionHashes": ["h", "Unknown"],
        "currentStorageVersionHash": "h",
        "lastHeartbeatTime": "2026-01-02T03:04:05Z",
    }
    reply = await api.put(f"{STATE}/status", made.json | {"status": status})
    assert (reply.status, reply.json["status"]) == (200, status)
    sent = {"reporterID": "r", "currentStorageVersionHash": "h", "lastHeartbeatTime": None}
    reports = {"status": {"currentStorageVersionHashes": [sent]}}
    reply = await api.patch(f"{STATE}/status", reports)
    del sent["lastHeartbeatTime"]
    status |= reports["status"]
    assert (reply.status, reply.json["status"]) == (200, status)
    without_server = {
        "status": {"currentStorageVersionHashes": [{"currentStorageVersionHash": "h"}]}
    }
    assert (await api.patch(f"{STATE}/status", without_server)).status == 422
    narrowed = status | {"persistedStorageVersionHashes": ["h"]}
    reply = await api.patch(f"{STATE}/status", {"status": narrowed})
    assert reply.json["status"] == narrowed
    kept = await api.patch(STATE, {"status": None, "metadata": {"labels": {"a": "b"}}})
    assert (kept.status, kept.json["status"]) == (200, narrowed)
    moved = await api.patch(STATE, {"spec": {"resource": {"resource": "pods"}}})
    assert moved.status == 422
    wrong = await api.post(STATES, new | {"metadata": {"name": "apps.deployments"}})
    assert (wrong.status, wrong.message) == (
        422,
        (
            'StorageState.migration.k8s.io "apps.deployments" is invalid: metadata.name: Invalid '
            'value: "apps.deployments": must be spec.resource.resource+"."+spec.resource.group: '
            "deployments.apps"
        ),
    )
    core = {"metadata": {"name": "pods"}, "spec": {"resource": {"resource": "pods"}}}
    assert (await api.post(STATES, core)).status == 201
    assert (await api.delete(STATE)).status == 200


async def test_annotations_of_states(owned: RunningServer) -> None:
    """Annotations that servers own stay, and cannot be changed through the status either."""
    api = owned.client
    change = {"metadata": {"annotations": {EPOCH_ANNOTATION: "4"}}}
    assert_forbidden(
        await api.patch(STATE, change),
        'storagestates.migration.k8s.io "deployments.apps"',
        f"this annotation is written by the API servers alone: {EPOCH_ANNOTATION}",
    )
    status = {"status": {"persistedStorageVersionHashes": ["h"]}}
    reply = await api.patch(f"{STATE}/status", change | status)
    assert reply.status == 200
    assert reply.json["metadata"]["annotations"] == OWNED
    assert reply.json["status"] == status["status"]
    assert (await api.delete(STATE)).status == 200


# Identity leases.


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
async def test_identity_leases_are_server_owned(owned: RunningServer, query: str) -> None:
    """Clients cannot write or create one through the API, nor turn another lease into one."""
    api = owned.client
    why = "identity leases are written by their server alone"
    found = (await api.get(LEASE)).json
    target = LEASE + query
    other = {"metadata": {"name": "other", "labels": {"a": "b"}}}
    assert (await api.post(LEASES, other)).status == 201
    for reply, name in (
        (await api.put(target, found | {"spec": {"leaseDurationSeconds": 99}}), "apiserver-a"),
        (await api.patch(target, {"metadata": {"labels": None}}), "apiserver-a"),
        (await api.delete(target), "apiserver-a"),
        (await api.delete(f"{LEASES}?labelSelector={IDENTITY_LABEL}"), "apiserver-a"),
        (
            await api.post(LEASES + query, {"metadata": {"name": "b", "labels": IDENTITY_LABELS}}),
            "b",
        ),
        (
            await api.put(
                f"{LEASES}/c{query}", {"metadata": {"name": "c", "labels": IDENTITY_LABELS}}
            ),
            "c",
        ),
        (
            await api.patch(f"{LEASES}/other{query}", {"metadata": {"labels": IDENTITY_LABELS}}),
            "other",
        ),
    ):
        assert_forbidden(reply, f'leases.coordination.k8s.io "{name}"', why)
    assert (await api.get(LEASE)).json == found
    assert (await api.get(LEASES)).names == ["apiserver-a", "other"]


async def test_other_leases_may_change(owned: RunningServer) -> None:
    """In other namespaces the label has no meaning, and leases without it are ordinary objects."""
    api = owned.client
    elsewhere = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    for collection, labels in ((elsewhere, IDENTITY_LABELS), (LEASES, {"a": "b"})):
        body = {"metadata": {"name": "l", "labels": labels}}
        assert (await api.post(collection, body)).status == 201
        reply = await api.patch(f"{collection}/l", {"spec": {"holderIdentity": "x"}})
        assert reply.status == 200
        assert (await api.delete(f"{collection}/l")).status == 200


# Tables and documents.


@pytest.mark.parametrize(
    ("target", "columns", "cells"),
    [
        (
            REPORTS,
            ["Name", "CommonEncodingVersion", "StorageVersions", "Age"],
            [
                "apps.deployments",
                "apps/v1",
                ("apiserver-a=apps/v1,apiserver-b=apps/v1,apiserver-c=apps/v1 + 1 more..."),
            ],
        ),
        (
            VOTES,
            ["Name", "SelectedVersion", "Candidates", "Age"],
            [
                "apps.v1.deployments",
                "v1",
                "apiserver-a=v1,apiserver-b=v1,apiserver-c=v1 + 1 more...",
            ],
        ),
        (
            STATES,
            [
                "Name",
                "Current",
                "Persisted",
                "Heartbeat",
                "Age",
                "Reporters",
                "Current-Hash",
                "Persisted-Hashes",
            ],
            ["deployments.apps", "<unset>", "Unknown,h", "<unknown>"],
        ),
    ],
)
async def test_tables(
    owned: RunningServer, target: str, columns: list[str], cells: list[object]
) -> None:
    """Tables have the columns that kubectl prints."""
    table = (await owned.client.get(target, accept=TABLE)).json
    assert [each["name"] for each in table["columnDefinitions"]] == columns
    (row,) = table["rows"]
    assert row["cells"][: len(cells)] == cells


async def test_a_report_without_entries_is_unset(api: ApiClient) -> None:
    """Both columns of a storage version without entries say so."""
    await api.post(REPORTS, {"metadata": {"name": "core.pods"}})
    table = (await api.get(REPORTS, accept=TABLE)).json
    assert table["rows"][0]["cells"][:3] == ["core.pods", "<unset>", "<unset>"]


@pytest.mark.parametrize("release", ["builtin", "kubernetes-1.36", "kubernetes-1.21", "x"])
async def test_discovery_of_both_groups(start: StartServer, release: str) -> None:
    """Every release has both; the short name resolves to the first of the two groups."""
    api = (await start(catalog_of(release))).client
    groups = [each["name"] for each in (await api.get("/apis")).json["groups"]]
    reports, votes = "internal.apiserver.k8s.io", "kube-apiserver.internal.k8s.io"
    assert groups.index(reports) < groups.index(votes)
    found = (await api.get(f"/apis/{votes}/v1alpha1")).json["resources"]
    assert [each["name"] for each in found] == ["storageversions"]
    assert (found[0]["kind"], found[0]["namespaced"]) == ("StorageVersion", False)
    assert (found[0]["singularName"], "shortNames" in found[0]) == ("storageversion", False)
    found = (await api.get(f"/apis/{reports}/v1alpha1")).json["resources"]
    assert [each["name"] for each in found] == [
        "storageversions",
        "storageversions/report",
        "storageversions/status",
    ]


async def test_openapi_of_votes(api: ApiClient) -> None:
    """The schema has the fields, and the merge key of the candidate list."""
    document = (await api.get("/openapi/v3/apis/kube-apiserver.internal.k8s.io/v1alpha1")).json
    schemas = document["components"]["schemas"]
    schema = schemas["io.k8s.internal.kube-apiserver.v1alpha1.StorageVersion"]
    assert schema["properties"]["selectedVersion"]["type"] == "string"
    candidates = schema["properties"]["candidateVersions"]
    assert candidates["x-kubernetes-list-type"] == "map"
    assert candidates["x-kubernetes-list-map-keys"] == ["apiServerID"]
    item = schemas["io.k8s.internal.kube-apiserver.v1alpha1.VersionCandidate"]
    assert list(item["properties"]) == ["apiServerID", "preferredVersion"]
    assert f"{VOTES}/{{name}}" in document["paths"]
    assert f"{VOTES}/{{name}}/status" not in document["paths"]
