"""The `rewrite` subresource of migrations: one page per request, on real stores, among other
clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.endpoints.barrier import WriteBarrier
from restow.endpoints.handlers.server import Server
from restow.registry.stored_bytes import encode
from restow.storage.interface import Delete, Storage, Transaction
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.identity import Mode
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.records import encoder_key
from tests.conformance.api.servers import OTHER_TOKEN, RunningServer, catalog_of, start_server
from tests.support.api_client import ApiClient, Reply
from tests.support.storageversion_audit import audit_history, stored_versions

V1, V2 = "example.com/v1", "example.com/v2"
ROOT = "/registry/example.com/widgets/"
WIDGETS = "/apis/example.com/v2/namespaces/default/widgets"
RESOURCE = {"group": "example.com", "resource": "widgets"}
GROUP_VERSIONS = (
    "migration.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1beta1",
    "storagemigration.k8s.io/v1",
)
MIGRATIONS = f"/apis/{GROUP_VERSIONS[0]}/storageversionmigrations"
REWRITE = f"{MIGRATIONS}/m/rewrite"
both_drivers = pytest.mark.parametrize("driver", ["sqlite", "etcd"], indirect=True)

OpenStore = Callable[[], Awaitable[Storage]]


@dataclass(slots=True)
class Member:
    """A complete server that participates in coordination."""

    coordinator: Coordinator
    server: RunningServer
    is_gone: bool = False

    @property
    def api(self) -> ApiClient:
        return self.server.client

    async def crash(self) -> None:
        """Stops without cleanup: its entries stay until they are garbage collected."""
        await self.coordinator.abandon()
        await self.server.stop()
        self.is_gone = True

    async def leave(self) -> None:
        await self.coordinator.close()
        await self.server.stop()
        self.is_gone = True


JoinCluster = Callable[..., Awaitable[Member]]


@pytest_asyncio.fixture
async def join(open_store: OpenStore) -> AsyncIterator[JoinCluster]:
    """Starts participating servers of one cluster."""
    members: list[Member] = []

    async def start(release: str = "x+2", *, is_open: bool = True, mode: Mode = "report") -> Member:
        storage, catalog = await open_store(), catalog_of(release)
        options = CoordinatorOptions(
            membership=MembershipOptions(host=f"h{len(members)}", mode=mode)
        )
        coordinator = Coordinator(storage, catalog, Runtime.system(), options)
        server = await start_server(
            storage, catalog, policy=coordinator.policy, barrier=WriteBarrier(coordinator)
        )
        members.append(Member(coordinator, server))
        if is_open:
            await coordinator.start()
            await server.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
        return members[-1]

    yield start
    for member in members:
        if not member.is_gone:
            await member.leave()


def good(reply: Reply, code: int = 200) -> Any:
    assert reply.status == code, reply.json
    return reply.json


async def fill(member: Member, count: int, version: str = V1) -> None:
    """Writes objects as an older release does."""
    for number in range(count):
        name = f"w{number:03d}"
        metadata = {"name": name, "namespace": "default", "uid": f"u-{name}", "generation": 4}
        value = encode({"metadata": metadata, "spec": {"count": 0}}, version, "Widget")
        await member.server.put_raw(f"{ROOT}default/{name}", value)


async def migrate(api: ApiClient, group_version: str = GROUP_VERSIONS[0], **fields: Any) -> str:
    """Creates a migration; returns the path of its subresource."""
    path = f"/apis/{group_version}/storageversionmigrations"
    spec = {"resource": {**RESOURCE, **fields.pop("resource", {})}}
    good(await api.post(path, {"metadata": {"name": "m", **fields}, "spec": spec}), 201)
    return f"{path}/m/rewrite"


async def versions(member: Member) -> dict[str, int]:
    return dict(await stored_versions(member.server.storage, ROOT))


async def objects(api: ApiClient) -> list[Any]:
    """Returns the objects as clients see them, without resource versions."""
    items = good(await api.get(WIDGETS))["items"]
    for item in items:
        del item["metadata"]["resourceVersion"]
    return list(items)


async def whole(api: ApiClient, path: str, **requested: Any) -> list[Any]:
    """Runs a complete pass."""
    pages = [good(await api.post(path, requested))]
    while pages[-1]["continue"]:
        requested["continue"] = pages[-1]["continue"]
        pages.append(good(await api.post(path, requested)))
    return pages


@both_drivers
@pytest.mark.parametrize("group_version", GROUP_VERSIONS)
async def test_page_by_page(join: JoinCluster, group_version: str) -> None:
    """All objects are rewritten and unchanged for clients; each watcher gets one MODIFIED per
    object."""
    member = await join()
    await fill(member, 23)
    path = await migrate(member.api, group_version)
    before = await objects(member.api)
    revision = (await member.api.get(WIDGETS)).version
    watch = await member.api.watch(f"{WIDGETS}?resourceVersion={revision}")
    pages = await whole(member.api, path, limit=10, target=V2)
    assert [(p["scanned"], p["rewritten"]) for p in pages] == [(10, 10), (10, 10), (3, 3)]
    first = pages[0]
    assert (first["kind"], first["apiVersion"]) == ("RewriteResult", group_version)
    assert (first["resource"], first["target"]) == (RESOURCE, V2)
    assert (first["skipped"], first["settled"], first["failed"]) == (0, 0, [])
    report = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets"
    assert first["storageVersionUID"] == good(await member.api.get(report))["metadata"]["uid"]
    assert {page["epoch"] for page in pages} == {1}
    assert await versions(member) == {V2: 23}
    assert await objects(member.api) == before
    events = await watch.take(23)
    assert {event["type"] for event in events} == {"MODIFIED"}
    assert len({event["object"]["metadata"]["name"] for event in events}) == 23
    assert await audit_history(member.server.storage, catalog_of("x+2")) >= 23
    [proof] = await whole(member.api, path)
    assert (proof["scanned"], proof["rewritten"], proof["skipped"]) == (23, 0, 23)


@both_drivers
async def test_another_server_continues_after_a_crash(join: JoinCluster) -> None:
    """The token suffices to continue: no object before it is visited again, none after it is
    missed."""
    one, two = await join(), await join()
    await fill(one, 12)
    path = await migrate(one.api)
    page = good(await one.api.post(path, {"limit": 5}))
    await one.crash()
    pages = await whole(two.api, path, **{"limit": 5, "continue": page["continue"]})
    assert [found["scanned"] for found in pages] == [5, 2]
    assert {found["epoch"] for found in pages} == {page["epoch"]}
    assert await versions(two) == {V2: 12}


@both_drivers
@pytest.mark.parametrize("seed", [1, 2])
async def test_among_other_clients(join: JoinCluster, seed: int) -> None:
    """Updates and deletes through another server while pages run: no update is lost, no deleted
    object returns."""
    one, two = await join(), await join()
    await fill(one, 30)
    path = await migrate(one.api)
    chance = random.Random(seed)
    expected: dict[str, int] = {f"w{number:03d}": 0 for number in range(30)}

    async def use(api: ApiClient) -> None:
        for step in range(1, 80):
            name = chance.choice(sorted(expected))
            if chance.random() < 0.2:
                good(await api.delete(f"{WIDGETS}/{name}"))
                del expected[name]
            else:
                good(await api.patch(f"{WIDGETS}/{name}", {"spec": {"count": step}}))
                expected[name] = step

    async def rewrite() -> list[Any]:
        return await whole(one.api, path, limit=4)

    _, pages, _ = await asyncio.gather(use(two.api), rewrite(), rewrite_again(one, path))
    assert not [page["failed"] for page in pages if page["failed"]]
    assert await versions(one) == {V2: len(expected)}
    found = await objects(one.api)
    assert {item["metadata"]["name"]: item["spec"]["count"] for item in found} == expected


async def rewrite_again(member: Member, path: str) -> None:
    """Runs a second migrator at the same time."""
    api = ApiClient(member.server.port, token="masters-token")
    await whole(api, path, limit=7)
    await api.close()


@both_drivers
async def test_a_failed_fence_is_a_conflict(join: JoinCluster) -> None:
    """A server whose fence fails rewrites nothing; after registering again, it does."""
    member = await join()
    await fill(member, 20)
    path = await migrate(member.api)
    key = encoder_key(member.coordinator.membership.id, "example.com.widgets")
    await member.server.storage.commit(Transaction(writes=(Delete(key),)))
    reply = await member.api.post(path, {})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "this server may no longer write" in reply.message
    assert await versions(member) == {V1: 20}
    good(await member.api.post(WIDGETS, {"metadata": {"name": "new"}}), 201)
    assert sum(page["rewritten"] for page in await whole(member.api, path)) == 20
    assert await versions(member) == {V2: 21}


async def test_failed_objects_are_named(join: JoinCluster) -> None:
    """By namespace and name, with the reason; the list is bounded, the count is not."""
    member = await join()
    await fill(member, 2)
    for number in range(120):
        await member.server.put_raw(f"{ROOT}default/x{number:03d}", b"\x00k8s")
    path = await migrate(member.api)
    [page] = await whole(member.api, path)
    assert (page["scanned"], page["rewritten"], page["failedCount"]) == (122, 2, 120)
    assert len(page["failed"]) == 100
    assert {each["namespace"] for each in page["failed"]} == {"default"}
    assert all(each["name"].startswith("x") and each["reason"] for each in page["failed"])


async def test_a_changed_encoding_version(join: JoinCluster) -> None:
    """Tokens and epochs from before the change are refused with a conflict, as is every request
    while servers disagree."""
    member = await join()
    await fill(member, 6)
    path = await migrate(member.api)
    page = good(await member.api.post(path, {"limit": 2, "epoch": 1}))
    old = await join("x+1")
    reply = await member.api.post(path, {"limit": 2})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert "do not agree" in reply.message
    await old.leave()
    for rewrite_options in ({"continue": page["continue"]}, {"epoch": 1}):
        reply = await member.api.post(path, rewrite_options)
        assert (reply.status, reply.reason) == (409, "Conflict")
        assert "its epoch is 3, not 1" in reply.message
    reply = await member.api.post(path, {"continue": page["continue"], "epoch": 3})
    assert (reply.status, reply.reason) == (409, "Conflict")
    assert await versions(member) == {V1: 4, V2: 2}
    await whole(member.api, path, epoch=3)
    assert await versions(member) == {V2: 6}


async def test_tokens_are_for_one_migration_to_one_target(join: JoinCluster) -> None:
    """A token of another migration, of a deleted and recreated one, or a forged one is refused."""
    member = await join()
    await fill(member, 6)
    path = await migrate(member.api)
    token = good(await member.api.post(path, {"limit": 2}))["continue"]
    good(await member.api.delete(f"{MIGRATIONS}/m"))
    assert (await member.api.post(path, {})).status == 404  # and nothing more is rewritten
    await migrate(member.api)
    for wrong in (token, "e30", "!"):
        reply = await member.api.post(path, {"continue": wrong})
        assert (reply.status, reply.reason) == (400, "BadRequest")
    assert await versions(member) == {V1: 4, V2: 2}


async def test_a_migration_that_is_being_deleted_rewrites_nothing(join: JoinCluster) -> None:
    """A finalizer keeps the object, but rewriting stops."""
    member = await join()
    await fill(member, 2)
    path = await migrate(member.api, finalizers=["example.com/hold"])
    good(await member.api.delete(f"{MIGRATIONS}/m"))
    reply = await member.api.post(path, {})
    assert (reply.status, reply.reason) == (409, "Conflict")
    good(await member.api.patch(f"{MIGRATIONS}/m", {"metadata": {"finalizers": None}}))
    assert await versions(member) == {V1: 2}


async def test_bad_fields(join: JoinCluster) -> None:
    """Each is named in a 422."""
    member = await join()
    path = await migrate(member.api)
    table: list[tuple[dict[str, Any], list[str]]] = [
        ({"limit": 0}, ["limit"]),
        ({"limit": "5"}, ["limit"]),
        ({"limit": True}, ["limit"]),
        ({"limit": 10_001}, ["limit"]),
        ({"epoch": -1}, ["epoch"]),
        ({"epoch": 1.5}, ["epoch"]),
        ({"target": 2}, ["target"]),
        ({"target": "x" * 5000}, ["target"]),
        ({"continue": ["a"]}, ["continue"]),
        ({"Limit": 5, "limit": -1}, ["Limit", "limit"]),
    ]
    for body, expected in table:
        reply = await member.api.post(path, body)
        assert (reply.status, reply.reason) == (422, "Invalid"), body
        assert [cause["field"] for cause in reply.json["details"]["causes"]] == expected


async def test_refusals(join: JoinCluster) -> None:
    """Unknown migrations, missing permissions, and resources that this server does not rewrite."""
    member = await join()
    api = member.api
    assert (await api.post(REWRITE, {})).status == 404
    path = await migrate(api)
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert (await api.request(method, path, {})).status == 405, method
    assert (await api.post(f"{path}/more", {})).status == 404
    assert (await api.post(f"/apis/{GROUP_VERSIONS[0]}/storagestates/m/rewrite", {})).status == 404
    assert (await api.post(f"{path}?dryRun=All", {})).status == 400
    assert (await api.post(path, [])).status == 400
    assert (await api.post(path, b"{")).status == 400
    for target in (V1, "example.com/v9", "apps/v1"):
        reply = await api.post(path, {"target": target})
        assert (reply.status, reply.reason) == (409, "Conflict"), target
    jane = ApiClient(member.server.port, token=OTHER_TOKEN)
    assert (await jane.post(path, {})).status == 403
    await jane.close()


@pytest.mark.parametrize(
    "resource",
    [
        {"resource": "gadgets"},
        {"group": "other.example.com"},
        {"group": "authentication.k8s.io", "resource": "tokenreviews"},
    ],
)
async def test_a_resource_that_this_server_does_not_store(
    join: JoinCluster, resource: dict[str, str]
) -> None:
    """A migration may name any resource; a server rewrites only those that it stores."""
    member = await join()
    path = await migrate(member.api, resource=resource)
    reply = await member.api.post(path, {})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "spec.resource" in reply.message


async def test_a_starting_server_asks_for_a_retry(
    join: JoinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not loaded all custom resources yet: Retry-After, instead of a migration that
    fails."""
    member = await join()
    path = await migrate(member.api, resource={"group": "later.example.com", "resource": "things"})
    monkeypatch.setattr(Server, "is_whole", lambda _server: False)
    reply = await member.api.post(path, {})
    assert (reply.status, reply.reason) == (503, "ServiceUnavailable")
    assert reply.headers["retry-after"] == ["1"]
    monkeypatch.undo()
    assert (await member.api.post(path, {})).status == 422


async def test_a_resource_that_shares_a_store(join: JoinCluster) -> None:
    """Events of either group are rewritten where they are stored."""
    member = await join()
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "reportingController": "c",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }
    value = encode(event, "events.k8s.io/v1", "Event")
    await member.server.put_raw("/registry/events/default/e", value)
    seen = good(await member.api.get("/apis/events.k8s.io/v1/namespaces/default/events/e"))
    path = await migrate(member.api, resource={"group": "events.k8s.io", "resource": "events"})
    [page] = await whole(member.api, path)
    assert (page["rewritten"], page["failed"], page["target"]) == (1, [], "v1")
    assert page["resource"] == {"group": "", "resource": "events"}
    again = good(await member.api.get("/apis/events.k8s.io/v1/namespaces/default/events/e"))
    del seen["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]
    assert again == seen


async def test_no_rewrite_before_registration(join: JoinCluster) -> None:
    """A server that has not registered its storage versions yet rewrites nothing."""
    member = await join(is_open=False)
    reply = await member.api.post(REWRITE, {})
    assert (reply.status, reply.header("retry-after")) == (503, "1")


async def test_it_is_listed_in_discovery(join: JoinCluster) -> None:
    """If it is absent, a migrator sends patches instead."""
    member = await join()
    for group_version in GROUP_VERSIONS:
        listed = good(await member.api.get(f"/apis/{group_version}"))["resources"]
        found = {each["name"]: each for each in listed}
        entry = found["storageversionmigrations/rewrite"]
        assert (entry["verbs"], entry["kind"]) == (["create"], "RewriteResult")
        assert "storagestates/rewrite" not in found


async def test_openapi_has_request_and_response_types(join: JoinCluster) -> None:
    """Each version has both types, in OpenAPI v2 and v3, with every field."""
    member = await join()
    await fill(member, 1)
    path = await migrate(member.api)
    answer = good(await member.api.post(path, {}))
    v2 = good(await member.api.get("/openapi/v2"))
    for group_version in GROUP_VERSIONS:
        v3 = good(await member.api.get(f"/openapi/v3/apis/{group_version}"))
        place = f"/apis/{group_version}/storageversionmigrations/{{name}}/rewrite"
        post = v3["paths"][place]["post"]
        sent = post["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        answered = post["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        assert sent.endswith(".RewriteRequest")
        assert answered.endswith(".RewriteResult")
        schemas = v3["components"]["schemas"]
        request = schemas[sent.rpartition("/")[2]]
        assert {"limit", "continue", "target", "epoch"} <= set(request["properties"])
        result = schemas[answered.rpartition("/")[2]]
        assert set(answer) == set(result["properties"])
        group, _, version = group_version.partition("/")
        assert result["x-kubernetes-group-version-kind"] == [
            {"group": group, "version": version, "kind": "RewriteResult"}
        ]
        assert "post" in v2["paths"][place]
        assert answered.rpartition("/")[2] in v2["definitions"]
