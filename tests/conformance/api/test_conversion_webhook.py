"""Objects of a kind that somebody else converts, through the whole server, over every verb."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from restow.apiserver.webhooks import ANSWER_BYTES_MAX, WebhookConversion
from restow.resources.definition import Resource
from restow.testing.api_client import JSON_PATCH, PARTIAL, TABLE, ApiClient
from restow.testing.certificates import make_certificate
from restow.testing.conversion_webhook import ConversionWebhook, Raw
from tests.conformance.api.conftest import StartServer
from tests.conformance.api.gears import (
    KEY,
    NEW,
    OLD,
    V1,
    V2,
    Object,
    catalog_with,
    convert,
    gear,
    gears,
    names_of,
)
from tests.conformance.api.servers import CONFIG_MAPS, TOKEN, RunningServer, config_map

EVERY_STORE = pytest.mark.parametrize("driver", ["memory", "sqlite", "etcd"], indirect=True)
HANG_SECONDS = 0.2
FAILED = f"conversion webhook for {V1}, Kind=Gear failed: "


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[ConversionWebhook]:
    made = await ConversionWebhook.start(tmp_path / "webhook", convert)
    yield made
    await made.stop()


Host = Callable[..., Any]


@pytest_asyncio.fixture
async def host(start: StartServer) -> AsyncIterator[Host]:
    """Starts a server that hosts gears, with the namespace `default`."""
    hosted: list[Resource] = []

    async def host_gears(conversion: Object, **options: Any) -> RunningServer:
        resource = gears(conversion, **options)
        hosted.append(resource)
        server = await start(catalog_with(resource))
        await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        return server

    yield host_gears
    for resource in hosted:
        assert isinstance(resource.remote, WebhookConversion)
        await resource.remote.close()


@pytest_asyncio.fixture
async def server(host: Host, webhook: ConversionWebhook) -> RunningServer:
    made: RunningServer = await host(webhook.definition_part())
    return made


async def make(api: ApiClient, count: int, **metadata: Any) -> None:
    for number in range(count):
        reply = await api.post(OLD, gear(f"g-{number:04}", number, **metadata))
        assert reply.status == 201, reply.body


@EVERY_STORE
async def test_both_versions(server: RunningServer, webhook: ConversionWebhook) -> None:
    """What is created in one version is stored in the other, and read in both."""
    api = server.client
    made = await api.post(NEW, gear("a", 12, version="v2"))
    assert made.status == 201
    assert made.json["apiVersion"] == V2
    assert made.json["spec"] == {"shape": {"teeth": 12}, "colour": "grey"}
    assert names_of(webhook) == [["a"]]  # the answer needed no question of its own
    stored = await server.raw(f"{KEY}/a")
    assert (stored["apiVersion"], stored["spec"]) == (V1, {"teeth": 12})
    old = await api.get(f"{OLD}/a")
    assert old.json["spec"] == {"teeth": 12}
    assert len(webhook.questions) == 1
    for _ in range(3):
        new = await api.get(f"{NEW}/a")
        assert (new.status, new.version) == (200, made.version)
        assert new.json["spec"] == {"shape": {"teeth": 12}, "colour": "grey"}
    assert len(webhook.questions) == 2  # a state of an object is converted once
    assert webhook.questions[-1].path == "/convert?timeout=30s"


@EVERY_STORE
async def test_update_and_patch(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A change in one version is a change in the other; what changes nothing writes nothing."""
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


async def test_list_in_few_questions(server: RunningServer, webhook: ConversionWebhook) -> None:
    """Five hundred objects are one question, and none the second time."""
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
    """Labels are those that the client sees: whoever converts may change them."""
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
    """A page of a list at a version that memory has left behind is converted, too."""
    api = server.client
    await make(api, 4)
    page = await api.get(f"{NEW}?limit=2")
    await api.patch(f"{OLD}/g-0003", {"spec": {"teeth": 99}})
    token = page.json["metadata"]["continue"]
    rest = await api.get(f"{NEW}?limit=2&continue={token}")
    assert [item["spec"]["shape"]["teeth"] for item in rest.json["items"]] == [2, 3]


async def test_forms(server: RunningServer) -> None:
    """Tables and metadata alone show the version that was asked for."""
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
    """A watch gets every change, in order, converted once for all who watch the same version."""
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
    """A change that cannot be converted is not left out: the watch ends, and says why."""
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
    """All objects of a collection are deleted, with one question for all of them."""
    api = server.client
    await make(api, 40, labels={"a": "b"})
    deleted = await api.delete(f"{NEW}?labelSelector=seen-in=v2")
    assert deleted.status == 200
    assert len(deleted.json["items"]) == 40
    assert {item["apiVersion"] for item in deleted.json["items"]} == {V2}
    assert len(webhook.questions) == 1
    assert (await api.get(OLD)).names == []


async def test_storage_version_changes(host: Host, webhook: ConversionWebhook) -> None:
    """Objects in two stored versions are listed in both, each converted only where it must be."""
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


def changed(**metadata: Any) -> Callable[[Object, str], Object]:
    def wrong(obj: Object, target: str) -> Object:
        found = convert(obj, target)
        return {**found, "metadata": {**found["metadata"], **metadata}}

    return wrong


WRONG_OBJECTS = [
    (changed(name="other"), "returned invalid object: must have the same name: g-0000 != other"),
    (
        changed(namespace="other"),
        "returned invalid object: must have the same namespace: default != other",
    ),
    (changed(uid="u"), "returned invalid object: must have the same UID: "),
    (
        changed(labels={"a": 1}),
        "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted",
    ),
    (changed(labels={"a": "no label!"}), "returned invalid metadata: metadata.labels: Invalid"),
    (
        lambda obj, _: obj,
        f"returned invalid object at index 0: invalid groupVersion (expected {V2}, received {V1})",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_OBJECTS)
async def test_wrong_objects(
    server: RunningServer,
    webhook: ConversionWebhook,
    wrong: Callable[[Object, str], Object],
    message: str,
) -> None:
    """An object that comes back as another one is refused, and nothing is stored or served."""
    api = server.client
    await make(api, 1)
    webhook.convert = wrong
    for reply in (await api.get(f"{NEW}/g-0000"), await api.get(NEW)):
        assert (reply.status, reply.reason) == (500, "")
        assert reply.message.startswith(f"conversion webhook for {V1}, Kind=Gear {message}")
    webhook.convert = convert
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_metadata_is_restored(server: RunningServer, webhook: ConversionWebhook) -> None:
    """Whatever else comes back in the metadata of an object, it is as it was."""
    api = server.client
    await make(api, 1, finalizers=["example.com/hold"])
    before = (await api.get(f"{OLD}/g-0000")).json["metadata"]
    webhook.convert = changed(
        finalizers=[], generation=77, creationTimestamp=None, annotations={"a": "b"}
    )
    seen = (await api.get(f"{NEW}/g-0000")).json["metadata"]
    assert seen == {**before, "labels": {"seen-in": "v2"}, "annotations": {"a": "b"}}


WRONG_ANSWERS = [
    (lambda _: Raw(b"{"), "couldn't get version/kind; json parse error: "),
    (lambda _: {"kind": "Status"}, "expected webhook response of "),
    (lambda _: Raw(b"gone", "404 Not Found"), "the server could not find the requested resource"),
    (
        lambda _: Raw(b"", "302 Found", (("Location", "https://127.0.0.1:1/"),)),
        "the server responded with the status code 302 but did not return more information",
    ),
    (
        lambda _: Raw(b"no idea", "503 Service Unavailable"),
        'an error on the server ("no idea") has prevented the request from succeeding',
    ),
    (lambda _: Raw(b" " * (ANSWER_BYTES_MAX + 1)), "Post "),
]


@pytest.mark.parametrize(("behave", "message"), WRONG_ANSWERS)
async def test_wrong_answers(
    server: RunningServer, webhook: ConversionWebhook, behave: Any, message: str
) -> None:
    """An answer that is no review fails the request, and only that."""
    api = server.client
    await make(api, 1)
    webhook.behave = behave
    reply = await api.get(f"{NEW}/g-0000")
    assert reply.status == 500
    assert reply.message.startswith(FAILED + message)
    refused = await api.post(NEW, gear("b", 1, version="v2"))
    assert refused.status == 500
    assert await server.raw(f"{KEY}/b") is None
    assert (await api.get(f"{OLD}/g-0000")).status == 200
    webhook.behave = None
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_own_words(server: RunningServer, webhook: ConversionWebhook) -> None:
    """What the webhook says when it refuses is told to the client."""
    api = server.client
    await make(api, 1)

    def refuse(review: Object) -> Object:
        answer = webhook.answer(review)
        answer["response"]["result"] = {"status": "Failed", "message": "no gears today"}
        return answer

    webhook.behave = refuse
    assert (await api.get(f"{NEW}/g-0000")).message == f"{FAILED}no gears today"


async def test_hanging(host: Host, webhook: ConversionWebhook) -> None:
    """While a webhook hangs, other kinds and the stored version are served; then it is given up."""
    server: RunningServer = await host(webhook.definition_part(), seconds_max=HANG_SECONDS)
    api = server.client
    await make(api, 1)
    hanging = asyncio.Event()

    async def hang(review: Object) -> Object:
        await hanging.wait()
        return webhook.answer(review)

    webhook.behave = hang
    clients = [ApiClient(server.port, token=TOKEN) for _ in range(20)]
    try:
        waiting = [asyncio.ensure_future(each.get(f"{NEW}/g-0000")) for each in clients]
        assert (await api.post(CONFIG_MAPS, config_map("c"))).status == 201
        assert (await api.get(f"{OLD}/g-0000")).status == 200
        assert (await api.post(OLD, gear("b", 1))).status == 201
        replies = await asyncio.gather(*waiting)
    finally:
        for each in clients:
            await each.close()
    why = f"no answer within {HANG_SECONDS:g} seconds"
    assert {reply.status for reply in replies} == {500}
    assert all(reply.message.startswith(f'{FAILED}Post "https:') for reply in replies)
    assert all(reply.message.endswith(why) for reply in replies)
    hanging.set()
    webhook.behave = None
    assert (await api.get(f"{NEW}/g-0000")).status == 200


async def test_gone_and_back(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A webhook that is gone fails requests; one that was only restarted does not."""
    api = server.client
    await make(api, 3)
    assert (await api.get(f"{NEW}/g-0000")).status == 200
    webhook.cut()
    assert (await api.get(f"{NEW}/g-0001")).status == 200
    assert webhook.connections == 2
    await webhook.stop()
    gone = await api.get(f"{NEW}/g-0002")
    assert gone.status == 500
    assert gone.message == f'{FAILED}Post "{webhook.url}?timeout=30s": connection refused'
    assert (await api.get(f"{OLD}/g-0002")).status == 200
    await webhook.listen()
    assert (await api.get(f"{NEW}/g-0002")).status == 200


async def test_authorities(host: Host, webhook: ConversionWebhook, tmp_path: Path) -> None:
    """Only a server that the definition's own authority vouches for is asked."""
    stranger = make_certificate(tmp_path / "stranger", name="stranger")
    pem = stranger.ca_file.read_bytes()
    other = webhook.definition_part()
    other["webhook"]["clientConfig"]["caBundle"] = base64.b64encode(pem).decode()
    server: RunningServer = await host(other)
    await make(server.client, 1)
    reply = await server.client.get(f"{NEW}/g-0000")
    assert reply.status == 500
    assert "certificate is not trusted" in reply.message
    assert not webhook.questions


async def test_rewrite_by_batches(host: Host, webhook: ConversionWebhook) -> None:
    """A rewrite converts many objects at once, and names those that could not be."""
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
    """Nothing is created any more while the definition is being deleted; the rest goes on."""
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


def replace(server: RunningServer, resource: Resource) -> None:
    """Host another resource in the place of the gears, as a changed definition would."""
    catalog = server.assembly.catalog
    before = catalog.named("example.com", "gears")
    assert before is not None
    server.assembly.store.forget(before)
    catalog.host(resource)


class Hanging:
    """Holds all answers of a webhook back until it is told otherwise."""

    def __init__(self, webhook: ConversionWebhook) -> None:
        self._webhook = webhook
        self._go_on = asyncio.Event()
        self.was_asked = asyncio.Event()
        webhook.behave = self._answer

    async def _answer(self, review: Object) -> Object:
        self.was_asked.set()
        await self._go_on.wait()
        return self._webhook.answer(review)

    def end(self) -> None:
        self._webhook.behave = None
        self._go_on.set()


@pytest.mark.parametrize("verb", ["create", "update", "patch", "get", "list", "deletecollection"])
async def test_replaced_while_under_way(
    server: RunningServer, webhook: ConversionWebhook, verb: str
) -> None:
    """A request that waits while its definition changes is done anew, as the new one says."""
    api = server.client
    await make(api, 2)
    before = server.assembly.catalog.named("example.com", "gears")
    assert before is not None
    body = gear("g-0000", 7, version="v2", resourceVersion=str((await api.get(OLD)).version))
    requests = {
        "create": api.post(NEW, gear("n", 7, version="v2")),
        "update": api.put(f"{NEW}/g-0001", {**body, "metadata": {"name": "g-0001"}}),
        "patch": api.patch(f"{NEW}/g-0000", {"spec": {"shape": {"teeth": 7}}}),
        "get": api.get(f"{NEW}/g-0000"),
        "list": api.get(NEW),
        "deletecollection": api.delete(NEW),
    }
    request = asyncio.ensure_future(requests.pop(verb))
    for other in requests.values():
        other.close()
    hanging = Hanging(webhook)
    await hanging.was_asked.wait()
    replace(server, gears({}, storage="v2", remote=before.remote))
    hanging.end()
    reply = await request
    # An update must say what it was made from; that it is asked for shows that it was looked at.
    assert reply.status == {"create": 201, "update": 422}.get(verb, 200), reply.body
    stored = {"create": "n", "patch": "g-0000"}.get(verb)
    if stored is not None:
        found = await server.raw(f"{KEY}/{stored}")
        assert (found["apiVersion"], found["spec"]["shape"]) == (V2, {"teeth": 7})
    if verb == "deletecollection":
        assert (await api.get(OLD)).names == []


async def test_watches_end_when_replaced(server: RunningServer, webhook: ConversionWebhook) -> None:
    """A watch ends when its definition changes, also one that waits for a conversion."""
    api = server.client
    await make(api, 1)
    before = server.assembly.catalog.named("example.com", "gears")
    assert before is not None
    seen = await api.watch(NEW)
    assert await seen.next() is not None
    hanging = Hanging(webhook)
    waits = await api.watch(f"{NEW}?resourceVersion={(await api.get(OLD)).version}")
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 5}})
    await hanging.was_asked.wait()
    replace(server, gears({}, storage="v2", remote=before.remote))
    assert await seen.next() is None
    assert await waits.next() is None
    hanging.end()
    again = await api.watch(NEW)
    event = await again.next()
    assert event is not None
    assert event["object"]["spec"]["shape"] == {"teeth": 5}


async def test_other_watches_go_on(server: RunningServer, webhook: ConversionWebhook) -> None:
    """While the conversions of one watch hang, watches of other versions and kinds go on."""
    api = server.client
    await make(api, 1)
    version = (await api.get(OLD)).version
    waits = await api.watch(f"{NEW}?resourceVersion={version}&allowWatchBookmarks=true")
    same_kind = await api.watch(f"{OLD}?resourceVersion={version}")
    other_kind = await api.watch(CONFIG_MAPS)
    hanging = Hanging(webhook)
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 5}})
    await hanging.was_asked.wait()
    await api.post(CONFIG_MAPS, config_map("c"))
    assert (await same_kind.next() or {})["type"] == "MODIFIED"
    assert (await other_kind.next() or {})["type"] == "ADDED"
    await api.patch(f"{OLD}/g-0000", {"spec": {"teeth": 6}})
    hanging.end()
    teeth = [event["object"]["spec"]["shape"]["teeth"] for event in await waits.take(2)]
    assert teeth == [5, 6]


async def test_a_bad_object_ends_only_its_watches(
    server: RunningServer, webhook: ConversionWebhook
) -> None:
    """An object that cannot be converted ends the watches that ask for it, and no others."""
    api = server.client
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    other = NEW.replace("default", "other")
    assert (await api.post(OLD, gear("good", 1))).status == 201
    hanging = Hanging(webhook)
    first = await api.watch(NEW)  # so that what follows is asked for together
    await hanging.was_asked.wait()
    assert (await api.post(OLD.replace("default", "other"), gear("bad", 1))).status == 201
    watches = [await api.watch(each) for each in (other, NEW, other)]
    webhook.convert = lambda obj, target: (
        changed(name="x")(obj, target) if obj["metadata"]["name"] == "bad" else convert(obj, target)
    )
    hanging.end()
    for watch in (first, watches[1]):
        event = await watch.next()
        assert event is not None
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "good")
    for watch in (watches[0], watches[2]):
        event = await watch.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert "must have the same name: bad != x" in event["object"]["message"]
