"""The verbs of the client, with an in-memory server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery import status
from restow.apimachinery.names import GroupVersionResource
from restow.client import (
    NO_RETRY,
    AnswerTooLarge,
    ApiClient,
    ClientLimits,
    ConnectionFailed,
    InProcessResponse,
    InProcessTransport,
    ListOptions,
    PatchType,
    Propagation,
    WriteOptions,
    key_of,
)
from restow.client.client import EXPIRATIONS_MAX
from tests.unit.client.fake_api import CONFIG_MAPS, FakeApi, new_client

PATH = "/api/v1/namespaces/n/configmaps"


def filled(count: int) -> FakeApi:
    api = FakeApi()
    for number in range(count):
        api.put(f"{PATH}/{number}", {})
    return api


async def test_write_and_read() -> None:
    """A created object can be read, updated and deleted, in its own namespace."""
    api = FakeApi()
    client, _ = new_client(api)
    made = await client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "n"}})
    assert await client.get(CONFIG_MAPS, "a", namespace="n") == made
    changed = await client.update(CONFIG_MAPS, made | {"data": {"k": "v"}})
    with pytest.raises(status.Conflict):
        await client.update(CONFIG_MAPS, made)
    with pytest.raises(status.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace="n", resource_version="1")
    version = changed["metadata"]["resourceVersion"]
    await client.delete(CONFIG_MAPS, "a", namespace="n", resource_version=version)
    with pytest.raises(status.NotFound, match='configmaps "a" not found'):
        await client.get(CONFIG_MAPS, "a", namespace="n")


async def test_requests_have_the_form_of_kubernetes() -> None:
    """Options, content types and representations are sent as Kubernetes defines them."""
    api = filled(1)
    client, _ = new_client(api)
    await client.get(CONFIG_MAPS, "0", namespace="n", metadata_only=True, resource_version="5")
    await client.list_page(CONFIG_MAPS, metadata_only=True)
    for patch_type in PatchType:
        with pytest.raises(status.MethodNotAllowed):
            await client.patch(
                CONFIG_MAPS,
                "0",
                {},
                namespace="n",
                patch_type=patch_type,
                subresource="status",
                options=WriteOptions(field_manager="m", dry_run=True),
                metadata_only=patch_type is PatchType.JSON,
            )
    await client.delete(
        CONFIG_MAPS,
        "0",
        namespace="n",
        uid="u",
        propagation=Propagation.FOREGROUND,
        grace_period_seconds=0,
        dry_run=True,
    )
    get, listed, *patches, deleted = api.sent
    assert get.query == {"resourceVersion": "5"}
    assert "as=PartialObjectMetadata;" in get.headers["accept"]
    assert "as=PartialObjectMetadataList;" in listed.headers["accept"]
    assert (listed.path, listed.query) == ("/api/v1/configmaps", {"limit": "500"})
    assert [each.headers["content-type"] for each in patches] == [str(each) for each in PatchType]
    assert [each.headers["accept"] == "application/json" for each in patches] == [
        patch_type is not PatchType.JSON for patch_type in PatchType
    ]
    assert patches[0].path == f"{PATH}/0/status"
    assert patches[0].query == {"dryRun": "All", "fieldManager": "m"}
    assert deleted.body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }
    assert all(each.headers["user-agent"].startswith("restow/") for each in api.sent)


async def test_mistakes_of_the_caller_are_not_sent() -> None:
    """An object without a name, and an apply without a field manager, are rejected locally."""
    api = FakeApi()
    client, _ = new_client(api)
    with pytest.raises(ValueError, match="no name"):
        await client.get(CONFIG_MAPS, "")
    with pytest.raises(ValueError, match="no name"):
        await client.update(CONFIG_MAPS, {})
    with pytest.raises(ValueError, match="field manager"):
        await client.patch(CONFIG_MAPS, "a", {}, patch_type=PatchType.APPLY)
    assert api.sent == []


async def test_pages() -> None:
    """All objects are listed in pages of one version, each with its kind."""
    api = filled(7)
    client, _ = new_client(api)
    pages = [page async for page in client.pages(CONFIG_MAPS, options=ListOptions(limit=3))]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert [page.remaining for page in pages] == [4, 1, None]
    assert {page.resource_version for page in pages} == {"17"}
    assert all(page.is_consistent for page in pages)
    assert {(item["apiVersion"], item["kind"]) for page in pages for item in page.items} == {
        ("v1", "ConfigMap")
    }
    rest = client.pages(
        CONFIG_MAPS, options=ListOptions(limit=3), continue_token=pages[0].continue_token
    )
    assert len([page async for page in rest]) == 2


async def test_a_list_that_outlives_its_moment() -> None:
    """When the token expires, a list raises Expired or, with the option, continues from now."""
    options = ListOptions(limit=3)
    api = filled(7)
    client, _ = new_client(api)
    pages = client.pages(CONFIG_MAPS, options=options)
    assert len((await anext(pages)).items) == 3
    api.put(f"{PATH}/0", {})
    api.compact()
    with pytest.raises(status.Expired):
        await anext(pages)
    found = []
    options = ListOptions(limit=1)
    async for page in client.pages(CONFIG_MAPS, options=options, continue_when_expired=True):
        found.append(page)
        api.put(f"{PATH}/0", {})
        api.compact()
    assert [key_of(page.items[0]).name for page in found] == list("0123456")
    assert [page.is_consistent for page in found] == [True] + 6 * [False]


async def test_a_list_does_not_go_on_for_ever() -> None:
    """Tokens that always expire, pages that refer to themselves, and too many pages end it."""
    api = filled(7)
    client, _ = new_client(api)
    too_old = [status.expired("old", continue_token="0-0") for _ in range(EXPIRATIONS_MAX + 1)]
    api.refuse = [*too_old]
    with pytest.raises(status.Expired):
        [_ async for _ in client.pages(CONFIG_MAPS, continue_when_expired=True)]

    async def same(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        return InProcessResponse(200, b'{"kind":"XList","metadata":{"continue":"t"},"items":[]}')

    client = ApiClient(InProcessTransport(same), runtime=Runtime.simulated("same"))
    with pytest.raises(ConnectionFailed, match="continue token is its own"):
        [_ async for _ in client.pages(CONFIG_MAPS)]
    short = ApiClient(
        InProcessTransport(filled(7).handle),
        runtime=Runtime.simulated("short"),
        limits=ClientLimits(pages_max=2),
    )
    with pytest.raises(ConnectionFailed, match="more than 2 pages"):
        [_ async for _ in short.items(CONFIG_MAPS, options=ListOptions(limit=3))]


async def test_busy_servers_are_waited_for() -> None:
    """429 and 503 with Retry-After are retried after that time, with jitter."""
    api = filled(1)
    client, clock = new_client(api)
    api.refuse = [
        status.too_many_requests(retry_after_seconds=2),
        status.unavailable("not yet", retry_after_seconds=4),
    ]
    found = await clock.run_until_done(client.get(CONFIG_MAPS, "0", namespace="n"))
    assert key_of(found) == ("n", "0")
    assert 6 <= clock.monotonic() <= 6 * 1.25
    api.refuse = [status.too_many_requests(retry_after_seconds=2)]
    with pytest.raises(status.TooManyRequests):
        await client.with_retry(NO_RETRY).get(CONFIG_MAPS, "0", namespace="n")


async def test_a_lost_answer_is_not_asked_for_again() -> None:
    """A write whose response is lost is sent once, and the error says that it may be executed."""
    api = FakeApi()
    client, _ = new_client(api)
    api.lost_answers = 1
    with pytest.raises(ConnectionFailed, match="may have been executed"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="n")
    assert len(api.sent) == 1
    assert list(api.objects) == [f"{PATH}/a"]


async def test_a_server_that_does_not_answer() -> None:
    """A request has a deadline, after which the connection counts as failed."""
    clock = SimulatedClock()

    async def hang(
        method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        await asyncio.Event().wait()
        return InProcessResponse(200)

    client = ApiClient(
        InProcessTransport(hang),
        runtime=Runtime.simulated("hang", clock=clock),
        limits=ClientLimits(request_seconds_max=5),
    )
    with pytest.raises(ConnectionFailed, match="no response in time"):
        await clock.run_until_done(client.version())
    assert clock.monotonic() == 5
    with pytest.raises(ConnectionFailed, match="may have been executed"):
        await clock.run_until_done(client.delete(CONFIG_MAPS, "a", namespace="n"))


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"\xff"])
async def test_answers_that_are_no_objects(body: bytes) -> None:
    """A successful response without a JSON object is not one of an API server."""

    async def serve(
        method: str, target: str, headers: Mapping[str, str], body_: bytes
    ) -> InProcessResponse:
        return InProcessResponse(200, body)

    client = ApiClient(InProcessTransport(serve), runtime=Runtime.simulated("html"))
    with pytest.raises(ConnectionFailed, match="not a JSON object"):
        await client.get(GroupVersionResource("g", "v1", "things"), "a")


async def test_answers_that_are_too_large() -> None:
    """A response over the limit is aborted, with the advice to list in pages."""
    client = ApiClient(
        InProcessTransport(filled(50).handle),
        runtime=Runtime.simulated("large"),
        limits=ClientLimits(answer_bytes_max=1_000),
    )
    with pytest.raises(AnswerTooLarge, match="list with a limit"):
        await client.list_page(CONFIG_MAPS)


async def test_a_closed_client() -> None:
    """A closed client raises an error."""
    client, _ = new_client(FakeApi())
    async with client:
        pass
    with pytest.raises(ConnectionFailed, match="closed"):
        await client.version()
