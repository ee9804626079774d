"""Protobuf responses: which requests get them, and that they equal JSON."""

from __future__ import annotations

from typing import Any

import pytest

from restow.apimachinery.codec import LONG_BODY_SIZE
from restow.apimachinery.protobuf import encode, read_envelope, write_envelope
from restow.apimachinery.protobuf_values import read_small
from restow.registry.catalog import builtin_catalog
from restow.request.protobuf_messages import read_message, struct_of
from restow.request.responses import PROTOBUF_BYTES_MAX
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map
from tests.support.api_client import JSON, PROTOBUF, ApiClient, Reply, WatchStream
from tests.unit.endpoints.custom_kinds import GROUP, gadget, gadgets

GO = f"{PROTOBUF},application/json"
META = f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
META_LIST = f"{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def message(api_version: str, kind: str, obj: dict[str, Any]) -> bytes:
    struct = struct_of(api_version, kind)
    assert struct is not None
    return write_envelope(api_version, kind, encode(struct, obj))


def decoded(reply: Reply) -> dict[str, Any]:
    """Decodes a protobuf response."""
    assert reply.header("content-type") == PROTOBUF, reply
    return read_message(reply.body)


async def event(stream: WatchStream) -> tuple[str, dict[str, Any]]:
    """Returns the next event of a protobuf watch."""
    frame = await stream.frame()
    assert frame is not None
    fields = read_small(frame, 0, len(frame))
    obj = read_small(fields[2], 0, len(fields[2]))[1]
    return str(fields[1], "utf-8"), read_message(obj)


async def test_clients_that_accept_only_protobuf(api: ApiClient) -> None:
    """Objects, lists, scales and errors are sent as protobuf with the same content as in JSON."""
    await api.post(CONFIG_MAPS, config_map("a", {"k": "ü"}))
    assert (
        decoded(await api.get(f"{CONFIG_MAPS}/a", accept=PROTOBUF))
        == (await api.get(f"{CONFIG_MAPS}/a")).json
    )
    listed = decoded(await api.get(CONFIG_MAPS, accept=PROTOBUF))
    (item,) = (await api.get(CONFIG_MAPS)).json["items"]
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["metadata"]["resourceVersion"]
    assert [{"kind": "ConfigMap", "apiVersion": "v1", **each} for each in listed["items"]] == [item]
    missing = await api.get(f"{CONFIG_MAPS}/none", accept=PROTOBUF)
    assert (missing.status, decoded(missing)["reason"]) == (404, "NotFound")


async def test_reads_are_json_if_accepted(api: ApiClient) -> None:
    """A get, a list and a watch of a Go client are JSON: it accepts both, and JSON needs no
    conversion."""
    await api.post(CONFIG_MAPS, config_map("a"))
    for accept in (GO, f"{PROTOBUF}, */*"):
        for path in (f"{CONFIG_MAPS}/a", CONFIG_MAPS, f"{CONFIG_MAPS}/none"):
            assert (await api.get(path, accept=accept)).header("content-type") == JSON
        stream = await api.watch(CONFIG_MAPS, accept=accept)
        assert stream.headers["content-type"] == [JSON]


async def test_answers_to_writes(api: ApiClient) -> None:
    """Create, update, patch and delete respond in protobuf to clients that prefer it."""
    made = await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}), accept=GO)
    assert (made.status, decoded(made)["data"]) == (201, {"k": "v"})
    again = await api.post(CONFIG_MAPS, config_map("a"), accept=GO)
    assert (again.status, decoded(again)["reason"]) == (409, "AlreadyExists")
    put = await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"k": "w"}), accept=GO)
    assert decoded(put)["data"] == {"k": "w"}
    patched = await api.patch(f"{CONFIG_MAPS}/a", {"data": {"l": "1"}}, accept=GO)
    assert decoded(patched)["data"] == {"k": "w", "l": "1"}
    part = await api.patch(f"{CONFIG_MAPS}/a", {"data": {"l": "2"}}, accept=META)
    assert decoded(part)["kind"] == "PartialObjectMetadata"
    gone = await api.delete(f"{CONFIG_MAPS}/a", accept=GO)
    assert decoded(gone)["details"]["name"] == "a"
    await api.post(CONFIG_MAPS, config_map("b"))
    deleted = decoded(await api.delete(CONFIG_MAPS, accept=GO))
    assert [each["metadata"]["name"] for each in deleted["items"]] == ["b"]


async def test_long_objects_stay_json(api: ApiClient) -> None:
    """A long object is sent as protobuf only to clients that accept nothing else."""
    long = config_map("a", {"k": "x" * PROTOBUF_BYTES_MAX})
    assert (await api.post(CONFIG_MAPS, long, accept=GO)).header("content-type") == JSON
    put = await api.put(f"{CONFIG_MAPS}/a", long, accept=PROTOBUF)
    assert decoded(put)["data"] == long["data"]
    assert (await api.delete(CONFIG_MAPS, accept=GO)).header("content-type") == JSON


LISTED = 55
LONG_DATA = {"data": {"k": "x" * (LONG_BODY_SIZE // 50)}}


async def test_long_lists(api: ApiClient) -> None:
    """A list encoded in a thread is complete, pages continue, and a selector selects."""
    for number in range(LISTED):
        labels = {"odd": str(number % 2)}
        await api.post(CONFIG_MAPS, {**config_map(f"c{number:03}", labels=labels), **LONG_DATA})
    whole = decoded(await api.get(CONFIG_MAPS, accept=PROTOBUF))
    assert len(whole["items"]) == LISTED
    page = decoded(await api.get(f"{CONFIG_MAPS}?limit=3&labelSelector=odd%3D1", accept=PROTOBUF))
    token = page["metadata"]["continue"]
    rest = decoded(
        await api.get(f"{CONFIG_MAPS}?labelSelector=odd%3D1&continue={token}", accept=PROTOBUF)
    )
    names = [each["metadata"]["name"] for each in page["items"] + rest["items"]]
    assert names == [f"c{number:03}" for number in range(1, LISTED, 2)]


async def test_a_watch(api: ApiClient) -> None:
    """Each event is a length-prefixed message, for objects and bookmarks."""
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    options = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await api.watch(f"{CONFIG_MAPS}?{options}", accept=f"{PROTOBUF};stream=watch")
    assert stream.headers["content-type"] == [f"{PROTOBUF};stream=watch"]
    what, obj = await event(stream)
    assert (what, obj["kind"], obj["data"]) == ("ADDED", "ConfigMap", {"k": "v"})
    what, obj = await event(stream)
    assert (what, obj["kind"]) == ("BOOKMARK", "ConfigMap")
    assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"k": "w"}))
    what, obj = await event(stream)
    assert (what, obj["data"]) == ("MODIFIED", {"k": "w"})
    await api.delete(f"{CONFIG_MAPS}/a")
    assert (await event(stream))[0] == "DELETED"


async def test_watchers_of_either_form_do_not_mix(api: ApiClient) -> None:
    """Watchers of the same changes share encoded bytes only within one encoding."""
    version = (await api.get(CONFIG_MAPS)).version
    accepts = (PROTOBUF, JSON, META, PROTOBUF, JSON)
    streams = [
        await api.watch(f"{CONFIG_MAPS}?resourceVersion={version}", accept=accept)
        for accept in accepts
    ]
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    for accept, stream in zip(accepts, streams, strict=True):
        if accept == JSON:
            found = await stream.next()
            assert found is not None
            assert found["object"]["data"] == {"k": "v"}
        else:
            what, obj = await event(stream)
            assert (what, obj.get("data")) == ("ADDED", None if accept == META else {"k": "v"})


async def test_metadata_only(api: ApiClient) -> None:
    """PartialObjectMetadata and its list have protobuf forms; a Table has none."""
    await api.post(CONFIG_MAPS, config_map("a", {"k": "v"}, labels={"l": "m"}))
    one = decoded(await api.get(f"{CONFIG_MAPS}/a", accept=META))
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert one["metadata"]["labels"] == {"l": "m"}
    assert "data" not in one
    many = decoded(await api.get(CONFIG_MAPS, accept=META_LIST))
    assert (many["kind"], len(many["items"])) == ("PartialObjectMetadataList", 1)
    table = f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io"
    assert (await api.get(CONFIG_MAPS, accept=table)).status == 406


async def test_a_scale_both_ways(api: ApiClient) -> None:
    """A typed client reads a Scale and sends it back as protobuf; zero replicas are preserved."""
    pod = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.post(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
    scale = decoded(await api.get(f"{DEPLOYMENTS}/d/scale", accept=PROTOBUF))
    assert scale["spec"] == {"replicas": 1}
    scale["spec"] = {}
    body = message("autoscaling/v1", "Scale", scale)
    put = await api.put(f"{DEPLOYMENTS}/d/scale", body, content_type=PROTOBUF, accept=GO)
    assert (put.status, decoded(put)["spec"]) == (200, {})
    assert (await api.get(f"{DEPLOYMENTS}/d")).json["spec"]["replicas"] == 0
    for wrong in (message("v1", "ConfigMap", {}), b"k8s\x00", b"k8s\x00\x0a\x02\x12\x00"):
        refused = await api.put(f"{DEPLOYMENTS}/d/scale", wrong, content_type=PROTOBUF)
        assert refused.status == 400


async def test_reviews(api: ApiClient) -> None:
    """An access review is sent and answered in protobuf."""
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    body = message(
        "authorization.k8s.io/v1", "SelfSubjectAccessReview", {"metadata": {}, "spec": spec}
    )
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = decoded(await api.post(path, body, content_type=PROTOBUF, accept=GO))
    assert answer["status"]["allowed"] is True
    assert answer["spec"] == spec


async def test_delete_options(api: ApiClient) -> None:
    """DeleteOptions are read in every version; another kind is not accepted as options."""
    await api.post(CONFIG_MAPS, config_map("a"))
    other = message("v1", "ConfigMap", {"metadata": {"name": "a"}})
    refused = await api.delete(f"{CONFIG_MAPS}/a", other, content_type=PROTOBUF)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    options = {"preconditions": {"uid": "another"}}
    body = message("apps/v1", "DeleteOptions", options)
    kept = await api.delete(f"{CONFIG_MAPS}/a", body, content_type=PROTOBUF, accept=PROTOBUF)
    assert (kept.status, decoded(kept)["reason"]) == (409, "Conflict")
    body = message("policy/v1", "DeleteOptions", {"gracePeriodSeconds": 0})
    assert (await api.delete(f"{CONFIG_MAPS}/a", body, content_type=PROTOBUF)).status == 200


@pytest.mark.parametrize("driver", ["memory"], indirect=True)
async def test_custom_kinds_have_no_form_in_protobuf(start: StartServer) -> None:
    """Custom resources have protobuf metadata only; other protobuf requests get 406, or JSON."""
    catalog = builtin_catalog()
    server: RunningServer = await start(catalog)
    api = server.client
    await api.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    catalog.host(gadgets())
    base = f"/apis/{GROUP}/v1/namespaces/default/gadgets"
    assert (await api.post(base, gadget("a"), accept=GO)).header("content-type") == JSON
    for path in (f"{base}/a", base):
        assert (await api.get(path, accept=PROTOBUF)).status == 406
        assert (await api.get(path, accept=GO)).header("content-type") == JSON
    assert (await api.watch(base, accept=PROTOBUF)).status == 406
    assert decoded(await api.get(f"{base}/a", accept=META))["metadata"]["name"] == "a"
    assert len(decoded(await api.get(base, accept=META_LIST))["items"]) == 1
    states = "/apis/migration.k8s.io/v1alpha1/storagestates"
    assert (await api.get(states, accept=PROTOBUF)).status == 406


async def test_bodies_of_a_wrong_kind(api: ApiClient) -> None:
    """A message of another kind or version, or without a kind, is refused with the reason."""
    secret = message("v1", "Secret", {"metadata": {"name": "a"}})
    refused = await api.post(CONFIG_MAPS, secret, content_type=PROTOBUF)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    raw = read_envelope(message("v1", "ConfigMap", {"metadata": {"name": "a"}})).raw
    other = write_envelope("v2", "ConfigMap", raw)
    assert (await api.post(CONFIG_MAPS, other, content_type=PROTOBUF)).status == 400
    nameless = await api.post(CONFIG_MAPS, write_envelope("", "", raw), content_type=PROTOBUF)
    assert nameless.status == 201
    bad_text = write_envelope("v1", "ConfigMap", b"\x0a\x03\x0a\x01\xff")
    reply = await api.post(CONFIG_MAPS, bad_text, content_type=PROTOBUF, accept=PROTOBUF)
    assert (reply.status, decoded(reply)["code"]) == (400, 400)
    assert (await api.get(f"{NS}/configmaps/a")).status == 200
