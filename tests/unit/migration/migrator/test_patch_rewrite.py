"""Patches against a real server: all objects are rewritten, and no update is lost, under any
fault."""

from __future__ import annotations

import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import orjson
import pytest
import pytest_asyncio

from restow.admission import Attributes, WriteOf
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.apimachinery.status import Expired, NotFound, StatusError, Unauthorized
from restow.client import ConnectionFailed
from restow.client.transport import ClientRequest
from restow.migration.migrator.passes import ObjectFailure
from restow.migration.migrator.patch_rewrite import FIELD_MANAGER, PatchOptions, connections_for
from restow.migration.migrator.write_errors import CONFLICTS_MAX, WEBHOOK_ATTEMPTS_MAX
from restow.registry.stored_bytes import encode
from restow.storage.interface import Delete, Key, Put, Revision, Transaction
from tests.unit.migration.migrator.patch_rig import (
    OPTIONS,
    ROOT,
    V1,
    V2,
    Fault,
    Rig,
    lost,
    running,
    soon,
    totals,
    whole,
)

WIDGETS = GroupResource("example.com", "widgets")


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running(25) as made:
        yield made


def instead_of(method: str, *errors: StatusError | Exception | None) -> Fault:
    """The next requests of a method get these results, one each; later requests succeed."""
    left = list(errors)

    async def fault(request: ClientRequest) -> StatusError | Exception | None:
        return left.pop(0) if request.method == method and left else None

    return fault


def for_object(name: str, error: Callable[[], StatusError | None]) -> Fault:
    """Writes of one object get this error."""

    async def fault(request: ClientRequest) -> StatusError | None:
        is_meant = request.method in {"PATCH", "PUT"} and f"/{name}?" in request.target
        return error() if is_meant else None

    return fault


def before_patch_of(name: str, act: Callable[[], Awaitable[None]]) -> Fault:
    """Runs an action once, after the object is listed and before it is patched."""
    is_done = False

    async def fault(request: ClientRequest) -> None:
        nonlocal is_done
        if request.method == "PATCH" and f"/{name}?" in request.target and not is_done:
            is_done = True
            await act()

    return fault


async def test_everything_is_rewritten_once(rig: Rig) -> None:
    """All raw values end in the new version, objects are unchanged, and a second pass is a
    no-op."""
    before = await rig.objects()
    first = await whole(rig.patching())
    assert [(page.scanned, page.rewritten) for page in first] == [(10, 10), (10, 10), (5, 5)]
    assert [page.remaining for page in first] == [15, 5, None]
    assert await rig.versions() == {V2: 25}
    assert await rig.objects() == before
    assert totals(await whole(rig.patching())) == (0, 25, 0, 0)


async def test_requests_are_minimal(rig: Rig) -> None:
    """Lists and replies contain metadata only; a patch contains only the object's identity."""
    await whole(rig.patching())
    lists, patches = rig.transport.of("GET"), rig.transport.of("PATCH")
    assert (len(lists), len(patches)) == (3, 25)
    for request in lists:
        assert "as=PartialObjectMetadataList" in dict(request.headers)["Accept"]
    for request in patches:
        headers = dict(request.headers)
        assert headers["Content-Type"] == "application/merge-patch+json"
        assert "as=PartialObjectMetadata;" in headers["Accept"]
        assert request.target.endswith(f"?fieldManager={FIELD_MANAGER}")
        body = orjson.loads(request.body)
        assert set(body) == {"apiVersion", "kind", "metadata"}
        assert set(body["metadata"]) == {"uid", "resourceVersion"}


async def test_another_process_resumes(rig: Rig) -> None:
    """The token is all that another process needs; earlier objects are not read again."""
    page = await rig.patching().page("")
    assert totals(await whole(rig.patching(), page.token)) == (15, 0, 0, 0)
    again = await rig.patching().page("")
    assert (again.scanned, again.unchanged) == (10, 10)


async def test_an_update_meanwhile_is_kept(rig: Rig) -> None:
    """A concurrent update between list and patch is kept; the object is read and patched again."""

    async def change() -> None:
        path = "/apis/example.com/v2/namespaces/default/widgets/w003"
        assert (await rig.server.client.patch(path, {"spec": {"count": 7}})).status == 200

    rig.transport.fault = before_patch_of("w003", change)
    assert totals(await whole(rig.patching())) == (24, 0, 1, 0)
    assert (await rig.objects())["w003"]["spec"]["count"] == 7


async def test_an_update_in_the_old_version_is_rewritten(rig: Rig) -> None:
    """A conflict may come from a server that stores the old version: that object is rewritten
    too."""
    rig.transport.fault = before_patch_of("w003", lambda: rig.plant_one("w003"))
    assert totals(await whole(rig.patching())) == (25, 0, 0, 0)
    assert await rig.versions() == {V2: 25}


async def test_a_deleted_object_stays_deleted(rig: Rig) -> None:
    """A deleted object counts as settled, and is not recreated."""

    async def delete() -> None:
        await rig.storage.commit(Transaction(writes=(Delete(Key(f"{ROOT}default/w003")),)))

    rig.transport.fault = before_patch_of("w003", delete)
    assert totals(await whole(rig.patching())) == (24, 0, 1, 0)
    assert "w003" not in await rig.objects()


async def test_a_new_object_of_the_same_name_is_rewritten_too(rig: Rig) -> None:
    """It may have been created by a server that stores the old version."""
    rig.transport.fault = before_patch_of("w003", lambda: rig.plant_one("w003", uid="another"))
    assert totals(await whole(rig.patching())) == (25, 0, 0, 0)
    assert await rig.versions() == {V2: 25}
    assert (await rig.objects())["w003"]["metadata"]["uid"] == "another"


async def test_an_object_with_endless_conflicts_fails_by_name(rig: Rig) -> None:
    """Conflict retries are bounded; all other objects are rewritten."""
    rig.transport.fault = for_object("w003", lambda: status.conflict(WIDGETS, "w003"))
    pages = await whole(rig.patching())
    assert totals(pages) == (24, 0, 0, 1)
    [failure] = pages[0].failures
    assert (failure.namespace, failure.name, failure.reason) == ("default", "w003", "Conflict")
    tries = [each for each in rig.transport.of("PATCH") if "/w003?" in each.target]
    assert len(tries) == CONFLICTS_MAX + 1
    assert await rig.versions() == {V1: 1, V2: 24}


class RejectOne:
    """Rejects one object."""

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> None:
        if attributes.name == "w004":
            raise status.forbidden('admission webhook "rules" denied the request')


async def test_a_rejected_object_blocks_no_other() -> None:
    """An object that admission rejects is reported at once with its reason; the others are
    rewritten."""
    async with running(25, admission=[RejectOne()]) as rig:
        pages = await whole(rig.patching())
        assert totals(pages) == (24, 0, 0, 1)
        [failure] = pages[0].failures
        assert (failure.name, failure.reason) == ("w004", "Forbidden")
        assert "denied the request" in failure.message
        assert len(rig.transport.of("PATCH")) == 25
        assert await rig.versions() == {V1: 1, V2: 24}


async def test_a_webhook_that_is_down(rig: Rig) -> None:
    """Its object is retried a bounded number of times, and then reported by name."""
    error = status.internal('failed calling webhook "rules": connection refused')
    rig.transport.fault = for_object("w004", lambda: error)
    pages = await whole(rig.patching())
    assert totals(pages) == (24, 0, 0, 1)
    assert (pages[0].failures[0].name, pages[0].failures[0].reason) == ("w004", "InternalError")
    tries = [each for each in rig.transport.of("PATCH") if "/w004?" in each.target]
    assert len(tries) == WEBHOOK_ATTEMPTS_MAX
    left = [error]
    rig.transport.fault = for_object("w004", lambda: left.pop() if left else None)
    assert totals(await whole(rig.patching())) == (1, 24, 0, 0)


@pytest.mark.parametrize("seed", range(4))
async def test_storms(rig: Rig, seed: int) -> None:
    """After random refusals, faults, lost replies and concurrent updates, all objects are
    rewritten."""
    chance = random.Random(seed)
    errors: list[Callable[[], StatusError | Exception]] = [
        status.too_many_requests,
        lambda: status.unavailable("busy", retry_after_seconds=1),
        lambda: status.internal("a bad moment"),
        lambda: status.server_timeout(WIDGETS, "update"),
        lambda: status.conflict(WIDGETS, "x"),
        lost,
    ]

    async def fault(request: ClientRequest) -> StatusError | Exception | None:
        if request.method == "PATCH" and chance.random() < 0.05:
            name = request.target.partition("?")[0].rpartition("/")[2]
            await rig.plant_one(name, chance.choice([V1, V2]))
        return chance.choice(errors)() if chance.random() < 0.2 else None

    rig.transport.fault = fault
    pages = await whole(rig.patching())
    assert sum(page.scanned for page in pages) == 25
    assert [page.failures for page in pages if page.failures] == []
    assert sum(totals(pages)) == 25
    rig.transport.fault = no_more
    assert await rig.versions() == {V2: 25}
    assert totals(await whole(rig.patching())) == (0, 25, 0, 0)


async def no_more(_request: ClientRequest) -> None:
    return None


async def test_a_lost_reply_causes_no_second_rewrite(rig: Rig) -> None:
    """A patch whose reply was lost was carried out: the object counts as settled."""
    rig.transport.fault = instead_of("PATCH", lost())
    assert totals(await whole(rig.patching())) == (24, 0, 1, 0)
    assert await rig.versions() == {V2: 25}


async def test_an_expired_token_continues(rig: Rig) -> None:
    """If the revision of the list was compacted, the list continues with the current objects."""
    pages = rig.patching()
    first = await rig.patching().page("")
    newest = await rig.storage.revision()
    await rig.plant_one("w999")
    await rig.storage.compact(Revision(newest + 1))
    done = await whole(pages, first.token)
    assert totals(done) == (16, 0, 0, 0)
    assert await rig.versions() == {V2: 26}


async def test_an_expired_token_without_another(rig: Rig) -> None:
    """A server that offers no new token is not retried endlessly, and the list does not restart."""
    rig.transport.fault = instead_of("GET", status.expired("too old"))
    with pytest.raises(Expired):
        await rig.patching().page("")
    rig.transport.fault = instead_of(
        "GET", *(status.expired("too old", continue_token="x") for _ in range(20))
    )
    with pytest.raises(Expired):
        await rig.patching().page("")
    assert not rig.transport.of("PATCH")


async def test_an_undecodable_object_fails_the_page(rig: Rig) -> None:
    """The object is not skipped: the list fails and names it."""
    await rig.plant_raw("w003", b"garbage")
    with pytest.raises(StatusError, match="default/w003") as raised:
        await whole(rig.patching())
    assert raised.value.code == 500
    assert "have not been looked at" in str(raised.value)


async def test_all_before_an_undecodable_object_are_rewritten(rig: Rig) -> None:
    """On a server that lists up to the broken object, the limit is reduced until it is isolated."""

    async def fault(request: ClientRequest) -> StatusError | None:
        if request.method != "GET":
            return None
        begin = 0 if "continue" not in request.target else rig_position(rig)
        limit = int(request.target.partition("limit=")[2].partition("&")[0])
        is_bad = begin <= 13 < begin + limit
        return StatusError("invalid character", code=500) if is_bad else None

    rig.transport.fault = fault
    with pytest.raises(StatusError, match=r"behind default/w012.*invalid character"):
        await whole(rig.patching())
    assert await rig.versions() == {V1: 12, V2: 13}


@pytest.mark.parametrize(
    ("token", "place"),
    [
        (b'{"v":"meta.k8s.io/v1","rv":7,"start":"default/w012\\u0000"}', "behind default/w012,"),
        (b'{"start":7}', "in the middle,"),
        (b'["start"]', "in the middle,"),
        (b"opaque", "in the middle,"),
    ],
)
async def test_a_resumed_list_that_ends(rig: Rig, token: bytes, place: str) -> None:
    """A list that starts from a token and fails names the token's position, if it can be
    decoded."""
    error = StatusError("invalid character", code=500)
    rig.transport.fault = instead_of("GET", *(error for _ in range(100)))
    with pytest.raises(StatusError, match=f"ends {place}"):
        await whole(rig.patching(), urlsafe_b64encode(token).decode().rstrip("="))


def rig_position(rig: Rig) -> int:
    """Returns the list's position: the number of objects that have been patched, or are next."""
    return len({each.target for each in rig.transport.of("PATCH")})


@pytest.mark.parametrize("code", [406, 415])
async def test_a_server_without_metadata_only(rig: Rig, code: int) -> None:
    """Whole objects are read instead; metadata only is tried once."""
    error = StatusError("not here", code=code, reason="NotAcceptable" if code == 406 else "")

    async def fault(request: ClientRequest) -> StatusError | None:
        is_partial = "PartialObject" in dict(request.headers)["Accept"]
        return error if is_partial and (request.method == "GET" or code == 406) else None

    rig.transport.fault = fault
    assert totals(await whole(rig.patching())) == (25, 0, 0, 0)
    assert await rig.versions() == {V2: 25}
    assert len(rig.transport.of("GET")) == 4


@pytest.mark.parametrize("how", ["no verb", "405", "415"])
async def test_a_resource_without_patch(rig: Rig, how: str) -> None:
    """Objects are read and updated instead, with the same preconditions."""
    resource = rig.resource
    if how == "no verb":
        resource = replace(resource, verbs=resource.verbs - {"patch"})
    else:
        error = StatusError("not here", code=int(how))

        async def fault(request: ClientRequest) -> StatusError | None:
            return error if request.method == "PATCH" else None

        rig.transport.fault = fault
    before = await rig.objects()
    rig.transport.sent.clear()
    pages = rig.patching(PatchOptions(page_objects=10, in_flight_max=1), resource=resource)
    assert totals(await whole(pages)) == (25, 0, 0, 0)
    assert await rig.objects() == before
    assert len(rig.transport.of("PUT")) == 25
    assert len(rig.transport.of("PATCH")) == (how != "no verb")
    assert totals(await whole(rig.patching(resource=resource))) == (0, 25, 0, 0)
    for request in rig.transport.of("PUT"):
        assert {"uid", "resourceVersion"} <= set(orjson.loads(request.body)["metadata"])


async def test_an_update_meanwhile_is_kept_without_patch(rig: Rig) -> None:
    """A PUT has the resource version that was read; after a conflict the object is read again."""
    resource = replace(rig.resource, verbs=rig.resource.verbs - {"patch"})
    rig.transport.fault = instead_of("PUT", status.conflict(WIDGETS, "x"))
    assert totals(await whole(rig.patching(resource=resource))) == (25, 0, 0, 0)


async def test_a_rejected_credential_stops_the_page(rig: Rig) -> None:
    """The error is not attributed to an object, and few further requests are sent."""
    rig.transport.fault = instead_of("PATCH", *(status.unauthorized() for _ in range(100)))
    with pytest.raises(Unauthorized):
        await rig.patching().page("")
    assert len(rig.transport.of("PATCH")) <= 8


async def test_a_resource_that_is_not_served_any_more(rig: Rig) -> None:
    """A path that is not served does not mean that the object was deleted."""
    rig.transport.fault = instead_of("PATCH", *(status.resource_not_found() for _ in range(100)))
    with pytest.raises(NotFound):
        await rig.patching().page("")


async def test_a_server_that_is_down_stops_the_page(rig: Rig) -> None:
    """After bounded retries the page fails, not its objects."""
    pages = rig.patching()
    token = (await pages.page("")).token
    await rig.client.close()
    with pytest.raises(ConnectionFailed):
        await pages.page(token)
    with pytest.raises(ConnectionFailed):
        await rig.patching().page("")


async def test_a_server_that_keeps_refusing_stops_the_page(rig: Rig) -> None:
    """Load is not attributed to an object either; Retry-After was respected."""
    errors = (status.too_many_requests(retry_after_seconds=7) for _ in range(1000))
    rig.transport.fault = instead_of("PATCH", *errors)
    with pytest.raises(StatusError) as raised:
        await rig.patching().page("")
    assert raised.value.code == 429
    assert max(rig.clock.slept) >= 6
    assert await rig.versions() == {V1: 25}


async def test_in_flight_is_bounded_and_reported(rig: Rig) -> None:
    """At most the allowed number of requests is in flight; the callback gets each count, and 0 at
    the end."""
    counts: list[int] = []
    options = PatchOptions(page_objects=25, in_flight_max=3)
    await whole(rig.patching(options, in_flight=counts.append))
    assert rig.transport.in_flight_peak <= 3 + 1
    assert max(counts) == 3
    assert counts[-1] == 0


async def test_a_rate_is_kept(rig: Rig) -> None:
    """At most this many objects per second."""
    begin = rig.clock.monotonic()
    await whole(rig.patching(replace(OPTIONS, objects_per_second=2)))
    assert rig.clock.monotonic() - begin >= 24 / 2


async def test_cancelled_at_any_time(rig: Rig) -> None:
    """After a page is cancelled, no request is in flight, and the page can be repeated."""
    held = asyncio.Event()

    async def hold(request: ClientRequest) -> None:
        if request.method == "PATCH":
            await held.wait()

    rig.transport.fault = hold
    pages = rig.patching()
    task = asyncio.ensure_future(pages.page(""))
    await soon(lambda: rig.transport.in_flight >= 8)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.transport.in_flight == 0
    held.set()
    assert totals(await whole(pages)) == (25, 0, 0, 0)


async def test_no_objects() -> None:
    """An empty resource has one empty page."""
    async with running() as rig:
        page = await rig.patching().page("")
        assert (page.token, page.scanned, page.rewritten) == ("", 0, 0)


async def test_failures_are_shortened(rig: Rig) -> None:
    """The message of a webhook is truncated."""
    error = StatusError("no" * 5000, code=403, reason="Forbidden")
    rig.transport.fault = for_object("w000", lambda: error)
    page = await rig.patching().page("")
    [failure] = page.failures
    assert isinstance(failure, ObjectFailure)
    assert len(failure.message) == 1024


def test_options() -> None:
    """Invalid options are rejected; the connection limit suffices for all requests in flight."""
    for bad in ({"page_objects": 0}, {"in_flight_max": 0}, {"objects_per_second": 0.0}):
        with pytest.raises(ValueError, match="must be"):
            PatchOptions(**bad)
    limits = connections_for(PatchOptions(in_flight_max=64), resources=4)
    assert limits.requests_max > 256
    assert limits.kept_max == limits.requests_max


async def test_groups_that_share_a_store(rig: Rig) -> None:
    """An object is written through the group that its managed fields name, if it is still served:
    through another group, the server would lose the field managers."""
    pod = {"kind": "Pod", "namespace": "default", "name": "p"}
    for name, version in (("core", "v1"), ("new", "events.k8s.io/v1")):
        entry = {"manager": "m", "operation": "Update", "apiVersion": version}
        metadata = {"name": name, "namespace": "default", "uid": name, "managedFields": [entry]}
        value = encode(
            {"metadata": metadata, "involvedObject": pod, "reason": "Test"}, "v1", "Event"
        )
        put = Put(Key(f"/registry/events/default/{name}"), value)
        await rig.storage.commit(Transaction(writes=(put,)))
    events = (await rig.client.discover()).find("events")
    assert events.group == ""
    assert sum(page.failed for page in await whole(rig.patching(resource=events))) == 0
    assert {each.target.partition("?")[0] for each in rig.transport.of("PATCH")} == {
        "/api/v1/namespaces/default/events/core",
        "/apis/events.k8s.io/v1/namespaces/default/events/new",
    }


@pytest.mark.parametrize("version", ["gone.example.com/v1", "a/b/c", "v7"])
async def test_fields_of_a_group_that_is_gone(rig: Rig, version: str) -> None:
    """Managed fields of a version that is no longer served are ignored."""
    entry = {"manager": "m", "operation": "Update", "apiVersion": version}
    metadata = {"name": "w", "namespace": "default", "uid": "u-w", "managedFields": [entry]}
    await rig.plant_raw("w", encode({"metadata": metadata, "spec": {"count": 0}}, V1, "Widget"))
    pages = await whole(rig.patching())
    assert sum(page.rewritten for page in pages) == 26
    assert await rig.versions() == {V2: 26}
