"""Objects of a kind with webhook conversion, through the whole server, with every verb."""

from __future__ import annotations

import pytest

from tests.conformance.api.servers import RunningServer
from tests.conformance.api.webhooks.conftest import Host, make
from tests.conformance.api.webhooks.gears import (
    KEY,
    NEW,
    OLD,
    V1,
    V2,
    Object,
    changed,
    convert,
    gear,
    names_of,
)
from tests.support.api_client import JSON_PATCH, PARTIAL, TABLE
from tests.support.conversion_webhook import ConversionWebhook
from tests.support.webhook_server import Raw

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
HANG_SECONDS = 0.2
FAILED = f"conversion webhook for {V1}, Kind=Gear failed: "


@EVERY_STORE
async def test_both_versions(server: RunningServer, webhook: ConversionWebhook) -> None:
    """An object created in one version is stored in the other, and read in both."""
    api = server.client
    made = await api.post(NEW, gear("a", 12, version="v2"))
    assert made.status == 201
    assert made.json["apiVersion"] == V2
    assert made.json["spec"] == {"shape": {"teeth": 12}, "colour": "grey"}
    assert names_of(webhook) == [["a"]]  # the response needed no conversion
    stored = await server.raw(f"{KEY}/a")
    assert (stored["apiVersion"], stored["spec"]) == (V1, {"teeth": 12})
    old = await api.get(f"{OLD}/a")
    assert old.json["spec"] == {"teeth": 12}
    assert len(webhook.questions) == 1
    for _ in range(3):
        new = await api.get(f"{NEW}/a")
        assert (new.status, new.version) == (200, made.version)
        assert new.json["spec"] == {"shape": {"teeth": 12}, "colour": "grey"}
    assert len(webhook.questions) == 2  # each state of an object is converted once
    assert webhook.questions[-1].path == "/convert?timeout=30s"


@EVERY_STORE
async def test_update_and_patch(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A change in one version is visible in the other; a no-op writes nothing."""
    api = server.client
    await make(api, 1)
    new = await api.get(f"{NEW}/g-0000")
    body = new.json
    same = await api.put(f"{NEW}/g-0000", body)
    assert (same.status, same.version) == (200, new.version)
    assert same.json == body
    body["spec"]["shape"]["teeth"] = 5
    put = await api.put(f"{NEW}/g-0000", body)
    assert put.status == 200
    assert put.json["spec"]["shape"] == {"teeth": 5}
    assert put.version > new.version
    assert (await api.get(f"{OLD}/g-0000")).json["spec"] == {"teeth": 5}
    assert (await api.put(f"{NEW}/g-0000", body)).status == 409
    merged = await api.patch(f"{NEW}/g-0000", {"spec": {"shape": {"teeth": 6}}})
    assert merged.json["spec"]["shape"] == {"teeth": 6}
    change = [{"op": "replace", "path": "/spec/shape/teeth", "value": 7}]
    patched = await api.patch(f"{NEW}/g-0000", change, JSON_PATCH)
    assert patched.json["spec"]["shape"] == {"teeth": 7}
    dry = await api.patch(f"{NEW}/g-0000?dryRun=All", {"spec": {"shape": {"teeth": 8}}})
    assert dry.json["spec"]["shape"] == {"teeth": 8}
    stored = await server.raw(f"{KEY}/g-0000")
    assert (stored["apiVersion"], stored["spec"]) == (V1, {"teeth": 7})
    wrong = await api.patch(f"{NEW}/g-0000", {"spec": {"shape": {"teeth": "many"}}})
    assert (wrong.status, wrong.reason) == (422, "Invalid")


async def test_delete(server: RunningServer) -> None:
    """Objects are deleted in either version, with finalizers and without."""
    api = server.client
    await make(api, 2, finalizers=["example.com/hold"])
    held = await api.delete(f"{NEW}/g-0000")
    assert held.status == 200
    assert held.json["apiVersion"] == V2
    assert held.json["metadata"]["deletionTimestamp"]
    freed = await api.patch(f"{NEW}/g-0000", {"metadata": {"finalizers": None}})
    assert freed.status == 200
    assert (await api.get(f"{OLD}/g-0000")).status == 404
    assert (await api.patch(f"{OLD}/g-0001", {"metadata": {"finalizers": None}})).status == 200
    assert (await api.delete(f"{NEW}/g-0001")).json["status"] == "Success"
    assert (await api.get(OLD)).names == []


async def test_lists_are_converted_in_one_request(
    server: RunningServer, webhook: ConversionWebhook
) -> None:
    """500 objects are converted by one request, and the second list needs none."""
    api = server.client
    for number in range(500):
        obj = {**gear(f"g-{number:04}", number), "metadata": {"name": f"g-{number:04}"}}
        obj["metadata"]["namespace"] = "default"
        await server.put_raw(f"{KEY}/g-{number:04}", obj)
    listed = await api.get(NEW)
    assert listed.status == 200
    assert [item["spec"]["shape"]["teeth"] for item in listed.json["items"]] == list(range(500))
    assert {item["apiVersion"] for item in listed.json["items"]} == {V2}
    assert len(webhook.questions) == 1
    assert (await api.get(NEW)).json["items"] == listed.json["items"]
    assert len(webhook.questions) == 1
    assert len((await api.get(OLD)).names) == 500
    page = await api.get(f"{NEW}?limit=3")
    assert page.names == ["g-0000", "g-0001", "g-0002"]
    token = page.json["metadata"]["continue"]
    following = await api.get(f"{NEW}?limit=3&continue={token}")
    assert following.names == ["g-0003", "g-0004", "g-0005"]
    assert len(webhook.questions) == 1


async def test_selection(server: RunningServer) -> None:
    """Label selectors use the converted labels: a conversion may change them."""
    api = server.client
    await make(api, 3, labels={"colour": "red"})
    assert len((await api.get(f"{NEW}?labelSelector=seen-in=v2")).names) == 3
    assert (await api.get(f"{OLD}?labelSelector=seen-in=v2")).names == []
    single = f"{NEW}?labelSelector=seen-in=v2&fieldSelector=metadata.name=g-0001"
    assert (await api.get(single)).names == ["g-0001"]
    limited = await api.get(f"{NEW}?labelSelector=seen-in=v2&limit=2")
    assert limited.names == ["g-0000", "g-0001"]
    watch = await api.watch(f"{NEW}?labelSelector=seen-in=v2")
    assert [event["type"] for event in await watch.take(3)] == ["ADDED"] * 3
    await api.patch(f"{OLD}/g-0001", {"spec": {"teeth": 40}})
    event = await watch.next()
    assert event is not None
    assert (event["type"], event["object"]["spec"]["shape"]["teeth"]) == ("MODIFIED", 40)


@EVERY_STORE
async def test_older_page(server: RunningServer) -> None:
    """A page at a resource version no longer in memory is converted too."""
    api = server.client
    await make(api, 4)
    page = await api.get(f"{NEW}?limit=2")
    await api.patch(f"{OLD}/g-0003", {"spec": {"teeth": 99}})
    token = page.json["metadata"]["continue"]
    rest = await api.get(f"{NEW}?limit=2&continue={token}")
    assert [item["spec"]["shape"]["teeth"] for item in rest.json["items"]] == [2, 3]


async def test_forms(server: RunningServer) -> None:
    """Tables and PartialObjectMetadata have the requested version."""
    api = server.client
    await make(api, 2)
    table = await api.get(NEW, accept=TABLE)
    assert table.json["kind"] == "Table"
    assert [row["object"]["metadata"]["name"] for row in table.json["rows"]] == [
        "g-0000",
        "g-0001",
    ]
    partial = await api.get(f"{NEW}/g-0001", accept=PARTIAL)
    assert partial.json["kind"] == "PartialObjectMetadata"
    assert partial.json["metadata"]["labels"] == {"seen-in": "v2"}
    watch = await api.watch(NEW, accept=PARTIAL)
    event = await watch.next()
    assert event is not None
    assert event["object"]["metadata"]["labels"] == {"seen-in": "v2"}


@EVERY_STORE
async def test_watch(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A watch gets every change, in order, converted once for all watchers of the same version."""
    api = server.client
    await make(api, 3)
    watches = [await api.watch(NEW) for _ in range(4)]
    for watch in watches:
        added = await watch.take(3)
        assert [event["object"]["spec"]["shape"]["teeth"] for event in added] == [0, 1, 2]
    asked = webhook.asked
    for teeth in range(20):
        assert (await api.patch(f"{OLD}/g-0001", {"spec": {"teeth": 100 + teeth}})).status == 200
    await api.delete(f"{OLD}/g-0001")
    versions: list[int] = []
    for watch in watches:
        events = await watch.take(21)
        assert [event["type"] for event in events] == ["MODIFIED"] * 20 + ["DELETED"]
        seen = [event["object"]["spec"]["shape"]["teeth"] for event in events[:20]]
        assert seen == [100 + teeth for teeth in range(20)]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions))
    assert webhook.asked - asked == 21
    resumed = await api.watch(f"{NEW}?resourceVersion={versions[9]}")
    assert len(await resumed.take(11)) == 11


async def test_watch_ends_with_an_error(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A change that cannot be converted is not omitted: the watch ends with an error."""
    api = server.client
    await make(api, 1)
    watch = await api.watch(NEW)
    others = await api.watch(OLD)
    assert await watch.next() is not None
    assert await others.next() is not None
    webhook.behave = lambda _: Raw(b"no idea", "500 Internal Server Error")
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 1}})
    event = await watch.next()
    assert event is not None
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
    assert event["object"]["message"].startswith(FAILED)
    assert await watch.next() is None
    seen = await others.next()
    assert seen is not None
    assert seen["object"]["spec"] == {"teeth": 1}


async def test_delete_collection(server: RunningServer, webhook: ConversionWebhook) -> None:
    """All objects of a collection are deleted, with one conversion request."""
    api = server.client
    await make(api, 40, labels={"a": "b"})
    deleted = await api.delete(f"{NEW}?labelSelector=seen-in=v2")
    assert deleted.status == 200
    assert len(deleted.json["items"]) == 40
    assert {item["apiVersion"] for item in deleted.json["items"]} == {V2}
    assert len(webhook.questions) == 1
    assert (await api.get(OLD)).names == []


async def test_storage_version_changes(host: Host, webhook: ConversionWebhook) -> None:
    """Objects in two stored versions are listed in both, each converted only if needed."""
    server: RunningServer = await host(webhook.definition_part(), storage="v2")
    api = server.client
    await server.put_raw(f"{KEY}/a", gear("a", 1, namespace="default"))
    assert (await api.post(OLD, gear("b", 2))).status == 201
    assert (await server.raw(f"{KEY}/b"))["apiVersion"] == V2
    webhook.questions.clear()
    assert [item["spec"]["teeth"] for item in (await api.get(OLD)).json["items"]] == [1, 2]
    assert names_of(webhook) == [["b"]]
    shapes = [item["spec"]["shape"] for item in (await api.get(NEW)).json["items"]]
    assert shapes == [{"teeth": 1}, {"teeth": 2}]
    assert names_of(webhook) == [["b"], ["a"]]
    same = (await api.get(f"{OLD}/a")).json
    assert (await api.put(f"{OLD}/a", same)).status == 200
    assert (await server.raw(f"{KEY}/a"))["apiVersion"] == V2  # a write, though nothing changed


async def test_rewrite_by_batches(host: Host, webhook: ConversionWebhook) -> None:
    """A rewrite converts many objects at once, and names those that failed."""
    server: RunningServer = await host(webhook.definition_part(), storage="v2")
    for number in range(60):
        body = gear(f"g-{number:04}", number, namespace="default")
        await server.put_raw(f"{KEY}/g-{number:04}", body)

    def all_but_one(obj: Object, target: str) -> Object:
        found = convert(obj, target)
        is_bad = obj["metadata"]["name"] == "g-0007"
        return changed(name="other")(obj, target) if is_bad else found

    webhook.convert = all_but_one
    resource = server.assembly.catalog.named("example.com", "gears")
    assert resource is not None
    page = await server.assembly.rewriter.rewrite_page(resource, target_version=V2)
    assert (page.rewritten, page.next_key) == (59, None)
    assert [failure.key for failure in page.failed] == [f"{KEY}/g-0007"]
    assert "must have the same name: g-0007 != other" in page.failed[0].reason
    assert len(webhook.questions) < 20
    assert (await server.raw(f"{KEY}/g-0008"))["spec"] == {"shape": {"teeth": 8}}
    webhook.convert = convert
    again = await server.assembly.rewriter.rewrite_page(resource, target_version=V2)
    assert (again.rewritten, again.skipped, again.failed) == (1, 59, [])


async def test_terminating(server: RunningServer) -> None:
    """No object can be created while the CRD is being deleted; other requests work."""
    api = server.client
    await make(api, 1)
    resource = server.assembly.catalog.named("example.com", "gears")
    assert resource is not None
    assert resource.origin is not None
    resource.origin.is_closing = True
    for path, version in ((OLD, "v1"), (NEW, "v2")):
        reply = await api.post(path, gear("n", 1, version=version))
        assert (reply.status, reply.reason) == (403, "Forbidden")
        assert reply.message == (
            'gears.example.com "n" is forbidden: create not allowed while custom resource'
            " definition is terminating"
        )
    assert (await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 3}})).status == 200
    assert (await api.delete(f"{NEW}/g-0000")).status == 200
