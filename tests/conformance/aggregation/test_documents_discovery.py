"""Discovery of remote APIs: merged with this server's, cached, and robust against backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
import pytest

from restow.aggregator import documents_backend
from restow.client.transport import InProcessResponse
from restow.registry.catalog import Catalog
from tests.conformance.aggregation.documents_world import (
    AGGREGATED,
    GROUP,
    Site,
    World,
    api,
    running_world,
)
from tests.unit.endpoints.custom_kinds import gadgets

NAME = f"v1.{GROUP}"
CURRENT = ("Current", ["gadgets"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as made:
        yield made


async def _fetched(world: World, *more: Any) -> None:
    world.directory.put(api(), *more)
    await world.until(lambda: world.is_current(NAME))


def _aggregated(*versions: dict[str, Any], group: str = GROUP) -> InProcessResponse:
    body = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [{"metadata": {"name": group}, "versions": list(versions)}],
    }
    return InProcessResponse(200, orjson.dumps(body), {"Content-Type": AGGREGATED})


async def test_remote_groups_stand_by_their_priority(world: World) -> None:
    """Remote groups are sorted among local ones by priority, and versions within a group as
    well."""
    world.directory.put(
        api("first.example.com", group_priority=20000),
        api("last.example.com", group_priority=100),
        api("apps", "v2", version_priority=500),
        api("batch", "v1alpha1", version_priority=1),
    )
    groups = (await world.site.document("/apis"))["groups"]
    assert [each["name"] for each in groups] == [
        "first.example.com",
        "apps",
        "batch",
        "last.example.com",
    ]
    apps, batch = groups[1], groups[2]
    assert [each["version"] for each in apps["versions"]] == ["v2", "v1"]
    assert apps["preferredVersion"]["groupVersion"] == "apps/v2"
    assert [each["version"] for each in batch["versions"]][-1] == "v1alpha1"
    alone = await world.site.document("/apis/first.example.com")
    assert alone["preferredVersion"] == {"groupVersion": "first.example.com/v1", "version": "v1"}
    paths = (await world.site.document("/"))["paths"]
    assert {"/apis/last.example.com", "/apis/last.example.com/v1"} <= set(paths)


async def test_remote_apis_do_not_change_local_versions(world: World) -> None:
    """A remote API that claims a local version changes nothing of it."""
    before = await world.site.document("/apis/apps")
    described = await world.site.document("/openapi/v3/apis/apps/v1")
    world.directory.put(api("apps", "v1"))
    assert await world.site.document("/apis/apps") == before
    assert world.state("apps")["v1"][0] == "Current"
    assert await world.site.document("/openapi/v3/apis/apps/v1") == described


async def test_freshness_follows_the_backend(world: World) -> None:
    """Never queried is stale and empty; queried is current; unreachable is stale with the last
    content."""
    world.directory.put(api())
    assert world.state() == {"v1": ("Stale", [])}
    await world.until(lambda: world.state() == {"v1": CURRENT})
    assert world.documents.is_whole()
    world.directory.say(NAME, "no endpoints")
    assert world.state() == {"v1": ("Stale", ["gadgets"])}
    world.directory.say(NAME, None)
    await world.until(lambda: world.state() == {"v1": CURRENT})
    world.directory.drop(NAME)
    assert (await world.site.ask(f"/apis/{GROUP}")).status == 404


async def test_all_of_a_resource_is_passed_on(world: World) -> None:
    """Names, verbs and subresources are those of the backend."""
    await _fetched(world)
    ours = orjson.loads(world.site.discovery.aggregated("/apis"))["items"]
    theirs = orjson.loads(world.backends.sites["gadgets"].discovery.aggregated("/apis"))["items"]
    (shown,) = [item for item in ours if item["metadata"]["name"] == GROUP]
    assert shown["versions"] == theirs[0]["versions"][:1]


@pytest.mark.parametrize("code", [404, 406, 200])
async def test_a_backend_without_aggregated_discovery(world: World, code: int) -> None:
    """An old backend, which rejects aggregated discovery or returns plain, gives the same
    result."""
    await _fetched(world)
    before = world.site.discovery.aggregated("/apis")
    plain = InProcessResponse(
        code, b'{"kind":"APIGroupList"}', {"Content-Type": "application/json"}
    )
    world.backends.scripts["gadgets", "/apis"] = plain
    world.directory.drop(NAME)
    await _fetched(world)
    assert world.backends.count(f"/apis/{GROUP}/v1") == 1
    assert orjson.loads(world.site.discovery.aggregated("/apis")) == orjson.loads(before)


async def test_one_plain_document_missing(world: World) -> None:
    """If an old backend lacks the document of one version, only that version is stale."""
    world.backends.scripts["gadgets", "/apis"] = InProcessResponse(404)
    world.directory.put(api(version="v3"), api())
    await world.until(world.documents.is_whole)
    assert world.state() == {"v3": ("Stale", []), "v1": CURRENT}


async def test_redirects_are_not_followed(world: World) -> None:
    """A redirect is an error for every document, and its target is not called."""
    moved = InProcessResponse(302, b"", {"Location": "https://169.254.169.254/apis"})
    for target in ("/apis", "/openapi/v3", "/openapi/v2"):
        world.backends.scripts["gadgets", target] = moved
    world.directory.put(api())
    await world.until(lambda: "redirect" in world.documents.problems().get(NAME, ""))
    assert world.state() == {"v1": ("Stale", [])}
    await world.until(lambda: world.backends.count("/openapi/v2") == 1)
    asked = {target for _, target, _ in world.backends.asked}
    assert asked == {"/apis", "/openapi/v3", "/openapi/v2"}


_RESOURCE = {"resource": "things", "scope": "Cluster", "verbs": ["get"]}


@pytest.mark.parametrize(
    "answer",
    [
        InProcessResponse(200, b"<html>", {"Content-Type": AGGREGATED}),
        InProcessResponse(200, b"[" * 100_000, {"Content-Type": AGGREGATED}),
        InProcessResponse(200, b'{"kind":"Status"}', {"Content-Type": AGGREGATED}),
        InProcessResponse(200, b'{"kind":"\xff"}', {"Content-Type": AGGREGATED}),
        InProcessResponse(
            200, b" " * (documents_backend.DISCOVERY_BYTES_MAX + 1), {"Content-Type": AGGREGATED}
        ),
        _aggregated({"version": "v1", "resources": [{**_RESOURCE, "verbs": "get"}]}),
        _aggregated({"version": "v1", "resources": [{**_RESOURCE, "resource": 7}]}),
        _aggregated({"version": "v1", "resources": {"things": _RESOURCE}}),
        InProcessResponse(304),
        InProcessResponse(500),
        InProcessResponse(503),
    ],
    ids=range(11),
)
async def test_garbage_is_reported_and_dropped(world: World, answer: InProcessResponse) -> None:
    """An invalid document is reported as a problem; the cached one and other backends stay."""
    await _fetched(world)
    world.backends.scripts["gadgets", "/apis"] = answer
    world.backends.sites["other"] = Site(Catalog([gadgets("other.example.com")]))
    world.directory.drop(NAME)
    world.directory.put(api("other.example.com", service="other"), api())
    await world.until(lambda: NAME in world.documents.problems())
    assert world.documents.problems()[NAME].startswith("/apis: ")
    assert world.state() == {"v1": ("Stale", [])}
    await world.until(lambda: world.state("other.example.com") == {"v1": CURRENT})
    del world.backends.scripts["gadgets", "/apis"]
    await world.clock.advance(1)
    await world.until(lambda: world.state() == {"v1": CURRENT})
    assert world.documents.problems() == {}


async def test_kinds_that_are_missing_are_filled_in(world: World) -> None:
    """Old clients crash on a resource without a kind, and on lists that are null."""
    below = {"subresource": "status", "verbs": None}
    things = {**_RESOURCE, "verbs": None, "subresources": [below], "unknown": {"x": 1}}
    world.backends.scripts["gadgets", "/apis"] = _aggregated(
        {"version": "v1", "resources": [things]}
    )
    await _fetched(world)
    items = orjson.loads(world.site.discovery.aggregated("/apis"))["items"]
    (resource,) = next(each for each in items if each["metadata"]["name"] == GROUP)["versions"][0][
        "resources"
    ]
    empty = {"group": "", "version": "", "kind": ""}
    assert resource == {
        **_RESOURCE,
        "verbs": [],
        "responseKind": empty,
        "subresources": [{"subresource": "status", "verbs": [], "responseKind": empty}],
    }


async def test_a_hanging_backend_delays_no_others(world: World) -> None:
    """While many backends do not respond, others are read and clients are answered."""

    async def hang(_headers: Mapping[str, str]) -> InProcessResponse:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    slow = [api(f"slow{each}.example.com", service=f"slow{each}") for each in range(20)]
    for each in slow:
        for target in ("/apis", "/openapi/v3", "/openapi/v2"):
            world.backends.scripts[each.service.name, target] = hang
    world.directory.put(*slow, api())
    assert world.state() == {"v1": ("Stale", [])}
    # Each waits until its timeout at most.
    for _ in range(4):
        await world.clock.advance(documents_backend.DISCOVERY_SECONDS_MAX)
    await world.until(lambda: world.state() == {"v1": CURRENT})
    assert "no response in 5 s" in world.documents.problems()["v1.slow0.example.com"]
    assert world.state("slow0.example.com") == {"v1": ("Stale", [])}


async def test_documents_are_asked_for_again(world: World) -> None:
    """Every minute, with the ETag of the cached document: only changes are sent and shown."""
    await _fetched(world)
    tag = world.site.discovery.aggregated("/apis")
    asked = world.backends.count("/apis")
    await world.clock.advance(61)
    await world.until(lambda: world.backends.count("/apis") == asked + 1)
    headers = [each[2] for each in world.backends.asked if each[1] == "/apis"]
    assert headers[-1]["if-none-match"]
    assert headers[-1]["x-remote-user"] == "system:kube-aggregator"
    assert world.site.discovery.aggregated("/apis") == tag
    world.backends.sites["gadgets"].catalog.host(gadgets(GROUP, subresources={}))
    await world.clock.advance(61)
    await world.until(lambda: world.site.discovery.aggregated("/apis") != tag)
    assert world.state() == {"v1": CURRENT}


async def test_a_failure_is_tried_again_with_growing_delays(world: World) -> None:
    """A backend that is down is queried a few times a minute, and soon after its recovery."""
    site = world.backends.sites.pop("gadgets")
    world.directory.put(api())
    await world.until(lambda: world.backends.count("/apis") == 1)
    await world.clock.advance(600)
    assert 8 < world.backends.count("/apis") < 30
    world.backends.sites["gadgets"] = site
    await world.clock.advance(61)
    await world.until(lambda: world.state() == {"v1": CURRENT})


async def test_another_version_of_a_known_backend(world: World) -> None:
    """A version that is added later is read although the backend reports no change."""
    await _fetched(world)
    world.directory.put(api(version="v1beta1", version_priority=5))
    await world.until(lambda: world.is_current(f"v1beta1.{GROUP}"))
    assert world.state() == {"v1": CURRENT, "v1beta1": CURRENT}
    world.directory.drop(NAME)
    assert world.state() == {"v1beta1": CURRENT}


async def test_caches_of_clients_notice(world: World) -> None:
    """A document gets another ETag with each change of its content, and only then."""

    async def tag() -> str:
        answer = await world.site.ask("/apis", {"Accept": AGGREGATED})
        return answer.headers["ETag"]

    tags = [await tag()]
    world.directory.put(api())
    tags.append(await tag())
    await world.until(lambda: world.is_current(NAME))
    tags.append(await tag())
    world.directory.say(NAME, "gone")
    tags.append(await tag())
    assert len(set(tags)) == 4
    world.directory.say(NAME, None)
    await world.until(lambda: world.is_current(NAME))
    assert await tag() == tags[2]
    again = await world.site.ask("/apis", {"Accept": AGGREGATED, "If-None-Match": tags[2]})
    assert again.status == 304


async def test_plain_documents_are_passed_through(world: World) -> None:
    """The document of a remote version is returned unchanged from its server, hashes included."""
    await _fetched(world)
    ours = await world.site.ask(f"/apis/{GROUP}/v1")
    theirs = await world.backends.sites["gadgets"].ask(f"/apis/{GROUP}/v1")
    assert ours.body == theirs.body
    assert isinstance(ours.body, bytes)
    assert orjson.loads(ours.body)["resources"][0]["storageVersionHash"]
    assert world.forwarded == [(f"/apis/{GROUP}/v1", NAME)]
    await world.site.document("/apis/apps/v1")
    assert (await world.site.ask("/apis/nobody.example.com/v1")).status == 404
    assert len(world.forwarded) == 1


async def test_entries_with_bad_names_are_left_out(world: World) -> None:
    """Names that are invalid in a path or a command are not shown to clients."""
    good: dict[str, Any] = {
        **_RESOURCE,
        "shortNames": ["g", "a b", "../x", ""],
        "categories": ["all", "-"],
    }
    good["verbs"] = ["get", "li st"]
    good["subresources"] = [
        {"subresource": name, "verbs": ["get"], "responseKind": {}}
        for name in ("status", "http_requests:rate5m", "..", "a//b", "a b", "")
    ]
    bad: list[dict[str, Any]] = [
        {**_RESOURCE, "resource": name}
        for name in ("../x", "..", "a b", "", "x" * 300, "a/b", "a%2fb", "caf\u00e9", "x\n")
    ]
    bad += [
        {**_RESOURCE, "resource": "one", "singularResource": "a b"},
        {**_RESOURCE, "resource": "two", "scope": "Everywhere"},
        {**_RESOURCE, "resource": "three", "responseKind": {"kind": "A B"}},
        {**_RESOURCE, "resource": "four", "responseKind": {"group": "a/b", "version": "v1"}},
    ]
    again = {**_RESOURCE, "singularResource": "another"}
    world.backends.scripts["gadgets", "/apis"] = _aggregated(
        {"version": "v1", "resources": [*bad, good, again]}
    )
    await _fetched(world)
    items = orjson.loads(world.site.discovery.aggregated("/apis"))["items"]
    (shown,) = [each for each in items if each["metadata"]["name"] == GROUP]
    (resource,) = shown["versions"][0]["resources"]
    assert resource["shortNames"] == ["g"]
    assert resource["categories"] == ["all"]
    assert resource["verbs"] == ["get"]
    names = [each["subresource"] for each in resource["subresources"]]
    assert names == ["status", "http_requests:rate5m"]
