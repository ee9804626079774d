"""delete: options, preconditions, finalizers, propagation, collections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from restow.apimachinery.protobuf_encode import encode, write_envelope
from restow.apiserver.build_inputs import AuthParts
from restow.authentication import Authentication, TokenAuthenticator
from restow.kinds.types import load_types
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import CONFIG_MAPS, NS, SECRETS, config_map, start_server
from tests.support.api_client import PARTIAL, PROTOBUF, YAML, ApiClient
from tests.support.masters_only import MastersOnly

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
CONFIG_MAP = f"{CONFIG_MAPS}/a"


@EVERY_STORE
async def test_a_delete(api: ApiClient) -> None:
    """The response is a Status with the UID; the event has the last state and a new version."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    reply = await api.delete(CONFIG_MAP)
    assert reply.status == 200
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": made.json["metadata"]["uid"]},
    }
    event = await watch.next()
    assert event is not None
    assert event["type"] == "DELETED"
    assert event["object"]["data"] == {"k": "v"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > made.version
    missing = await api.delete(CONFIG_MAP)
    assert (missing.status, missing.reason) == (404, "NotFound")


async def test_kinds_that_return_the_deleted_object(api: ApiClient) -> None:
    """Service accounts, among others, are returned by their delete."""
    await api.post(f"{NS}/serviceaccounts", {"metadata": {"name": "s"}})
    reply = await api.delete(f"{NS}/serviceaccounts/s")
    assert (reply.status, reply.json["kind"]) == (200, "ServiceAccount")
    await api.post(f"{NS}/serviceaccounts", {"metadata": {"name": "s"}})
    partial = await api.delete(f"{NS}/serviceaccounts/s", accept=PARTIAL)
    assert partial.json["kind"] == "PartialObjectMetadata"


@EVERY_STORE
async def test_finalizers_block_removal(api: ApiClient) -> None:
    """The object is marked and kept until its last finalizer is removed; a second delete is a
    no-op."""
    made = await api.post(CONFIG_MAPS, config_map("a", finalizers=["x.io/a", "x.io/b"]))
    watch = await api.watch(f"{CONFIG_MAPS}?resourceVersion={made.version}")
    first = await api.delete(CONFIG_MAP)
    assert (first.status, first.json["kind"]) == (200, "ConfigMap")
    metadata = first.json["metadata"]
    assert metadata["deletionTimestamp"]
    assert metadata["deletionGracePeriodSeconds"] == 0
    second = await api.delete(CONFIG_MAP)
    assert second.json == first.json
    one = await api.patch(CONFIG_MAP, {"metadata": {"finalizers": ["x.io/b"]}})
    assert one.json["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    last = await api.patch(CONFIG_MAP, {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert (await api.get(CONFIG_MAP)).status == 404
    events = await watch.take(3)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def _message(options: dict[str, Any]) -> bytes:
    struct = load_types().of_kind("", "v1", "DeleteOptions")
    assert struct is not None
    return write_envelope("v1", "DeleteOptions", encode(struct, options))


@pytest.mark.parametrize("how", ["body", "protobuf", "yaml", "query", "any group"])
@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"]), ("Background", None)],
)
async def test_propagation(
    api: ApiClient, how: str, policy: str, finalizers: list[str] | None
) -> None:
    """The policy is read from a body in any encoding, or from the query; it becomes a finalizer."""
    await api.post(CONFIG_MAPS, config_map("a"))
    options = {"propagationPolicy": policy}
    match how:
        case "body":
            reply = await api.delete(CONFIG_MAP, options)
        case "any group":
            typed = {"kind": "DeleteOptions", "apiVersion": "apps/v1", **options}
            reply = await api.delete(CONFIG_MAP, typed)
        case "yaml":
            body = f"propagationPolicy: {policy}\n".encode()
            reply = await api.delete(CONFIG_MAP, body, content_type=YAML)
        case "protobuf":
            reply = await api.delete(CONFIG_MAP, _message(options), content_type=PROTOBUF)
        case _:
            reply = await api.delete(f"{CONFIG_MAP}?propagationPolicy={policy}")
    assert reply.status == 200
    found = await api.get(CONFIG_MAP)
    if finalizers is None:
        assert found.status == 404
    else:
        assert found.json["metadata"]["finalizers"] == finalizers
        assert found.json["metadata"]["deletionTimestamp"]


async def test_aggregated_servers_ignore_propagation() -> None:
    """An aggregated server has no garbage collector, so objects are removed at once with any
    propagation policy, alone or in a collection."""
    auth_parts = AuthParts(
        authentication=Authentication([TokenAuthenticator(SECRETS.tokens)]),
        authorizer=MastersOnly(),
    )
    storage = MemoryStorage()
    server = await start_server(storage, auth_parts=auth_parts)
    api = server.client
    try:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        for policy in ("Foreground", "Orphan"):
            for target in (CONFIG_MAP, CONFIG_MAPS):
                assert (await api.post(CONFIG_MAPS, config_map("a"))).status == 201
                assert (await api.delete(target, {"propagationPolicy": policy})).status == 200
                assert (await api.get(CONFIG_MAP)).status == 404
    finally:
        await server.stop()
        await storage.close()


async def test_options_in_a_body_replace_the_query(api: ApiClient) -> None:
    """DeleteOptions in the query count only if there is no body."""
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.delete(f"{CONFIG_MAP}?propagationPolicy=Orphan", {})).status == 200
    assert (await api.get(CONFIG_MAP)).status == 404


async def test_orphan_dependents(api: ApiClient) -> None:
    """`orphanDependents` maps to the policy, and both together are refused."""
    await api.post(CONFIG_MAPS, config_map("a"))
    both = {"orphanDependents": True, "propagationPolicy": "Orphan"}
    assert (await api.delete(CONFIG_MAP, both)).status == 422
    reply = await api.delete(CONFIG_MAP, {"orphanDependents": True})
    assert (reply.status, reply.json["metadata"]["finalizers"]) == (200, ["orphan"])
    await api.post(CONFIG_MAPS, config_map("b", finalizers=["x.io/a"]))
    reply = await api.delete(f"{CONFIG_MAPS}/b", {"orphanDependents": False})
    assert (reply.status, reply.json["metadata"]["finalizers"]) == (202, ["x.io/a"])


async def test_jobs_orphan_by_default(api: ApiClient) -> None:
    """A delete of a Job without a policy orphans its pods, with a warning."""
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    assert (await api.post(jobs, job)).status == 201
    reply = await api.delete(f"{jobs}/j")
    assert reply.json["metadata"]["finalizers"] == ["orphan"]
    [warning] = reply.warnings
    assert "child pods are preserved by default when jobs are deleted; set propag" in warning
    reply = await api.delete(f"{jobs}/j?propagationPolicy=Background")
    assert (reply.status, reply.json["status"], reply.warnings) == (200, "Success", [])


@EVERY_STORE
async def test_preconditions(api: ApiClient) -> None:
    """Another UID or resource version than the object's gets 409, and nothing is deleted."""
    made = await api.post(CONFIG_MAPS, config_map("a"))
    for preconditions, words in (
        ({"uid": "other"}, "the UID in the precondition (other) does not match the UID in record"),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in",
        ),
    ):
        reply = await api.delete(CONFIG_MAP, {"preconditions": preconditions})
        assert (reply.status, reply.reason) == (409, "Conflict")
        assert 'Operation cannot be fulfilled on ConfigMap "a": ' + words in reply.message
    good = {"uid": made.json["metadata"]["uid"], "resourceVersion": str(made.version)}
    body = _message({"preconditions": good})
    assert (await api.delete(CONFIG_MAP, body, content_type=PROTOBUF)).status == 200


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("", {"propagationPolicy": "Sideways"}, 422),
        ("?propagationPolicy=Sideways", None, 422),
        ("", {"dryRun": ["Some"]}, 422),
        ("?dryRun=Some", None, 422),
        ("", {"dryRun": "All"}, 400),
        ("", {"gracePeriodSeconds": "soon"}, 400),
        ("?gracePeriodSeconds=soon", None, 400),
        ("", {"preconditions": 5}, 400),
        ("", {"preconditions": {"uid": 5}}, 400),
        ("", {"kind": "Pod"}, 400),
        ("", {"kind": 5}, 400),
        ("", [], 400),
        ("", b"{", 400),
        ("", b"null", 400),
    ],
)
async def test_bad_options(api: ApiClient, target: str, body: Any, code: int) -> None:
    """With invalid options nothing is deleted."""
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.delete(CONFIG_MAP + target, body)
    assert reply.status == code
    assert (await api.get(CONFIG_MAP)).status == 200


async def test_dry_run(api: ApiClient) -> None:
    """A dry run responds as usual and deletes nothing."""
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.delete(f"{CONFIG_MAP}?dryRun=All")).json["status"] == "Success"
    assert (await api.delete(CONFIG_MAP, {"dryRun": ["All"]})).json["status"] == "Success"
    assert (await api.get(CONFIG_MAP)).status == 200


@EVERY_STORE
async def test_delete_collection(api: ApiClient) -> None:
    """Matching objects are deleted and listed; those with finalizers stay."""
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {"x": "2"})):
        await api.post(CONFIG_MAPS, config_map(name, labels=labels))
    await api.post(CONFIG_MAPS, config_map("d", labels={"x": "1"}, finalizers=["x.io/f"]))
    reply = await api.delete(f"{CONFIG_MAPS}?labelSelector=x%3D1")
    assert reply.status == 200
    assert reply.json["kind"] == "ConfigMapList"
    assert reply.names == ["a", "b", "d"]
    held = reply.json["items"][2]["metadata"]
    assert "deletionTimestamp" not in held, "they are listed as they were before"
    assert (await api.get(CONFIG_MAPS)).names == ["c", "d"]
    assert (await api.delete(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dc")).names == ["c"]


async def test_a_collection_is_listed_in_the_version_of_the_request(api: ApiClient) -> None:
    """Whatever version they are stored in, deleted objects are returned in the version of the
    request."""
    scalers = f"/apis/autoscaling/v1/{NS.removeprefix('/api/v1/')}/horizontalpodautoscalers"
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    assert (await api.post(scalers, {"metadata": {"name": "h"}, "spec": spec})).status == 201
    listed = await api.get(scalers)
    deleted = await api.delete(scalers)
    assert deleted.json["items"] == listed.json["items"]
    assert deleted.json["items"][0]["spec"]["targetCPUUtilizationPercentage"] == 50


async def test_delete_collection_in_parts(api: ApiClient) -> None:
    """`limit` bounds the number of deletions; a dry run deletes none."""
    for i in range(5):
        await api.post(CONFIG_MAPS, config_map(f"n{i}"))
    assert len((await api.delete(f"{CONFIG_MAPS}?dryRun=All")).names) == 5
    assert (await api.delete(f"{CONFIG_MAPS}?limit=2")).names == ["n0", "n1"]
    assert (await api.get(CONFIG_MAPS)).names == ["n2", "n3", "n4"]
    partial = await api.delete(
        CONFIG_MAPS,
        accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    )
    assert partial.json["kind"] == "PartialObjectMetadataList"
    assert (await api.get(CONFIG_MAPS)).names == []


async def test_collections_that_cannot_be_deleted(api: ApiClient) -> None:
    """Not for namespaces, and not for all namespaces at once."""
    for target in ("/api/v1/namespaces", "/api/v1/configmaps"):
        reply = await api.delete(target)
        assert (reply.status, reply.reason) == (405, "MethodNotAllowed"), target


async def test_protected_namespaces(api: ApiClient) -> None:
    """The system namespaces of a cluster cannot be deleted."""
    for name in ("default", "kube-system", "kube-public"):
        reply = await api.delete(f"/api/v1/namespaces/{name}")
        assert (reply.status, reply.reason) == (403, "Forbidden")


@EVERY_STORE
async def test_two_deletes_at_once(api: ApiClient) -> None:
    """Of several concurrent deletes of one object, one succeeds."""
    await api.post(CONFIG_MAPS, config_map("a"))
    clients = [ApiClient(api._port, token="masters-token") for _ in range(5)]
    replies = await asyncio.gather(*(client.delete(CONFIG_MAP) for client in clients))
    for client in clients:
        await client.close()
    assert sorted(reply.status for reply in replies) == [200, 404, 404, 404, 404]
