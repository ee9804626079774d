"""OpenAPI of remote APIs: their own v3 documents, and one v2 document for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from restow.client.transport import InProcessResponse
from restow.openapi import V2_PROTOBUF_ACCEPTED, V2Assembly
from tests.conformance.aggregation.documents_world import GROUP, World, api, running_world
from tests.unit.endpoints.custom_kinds import gadgets
from tests.unit.openapi import gnostic

NAME = f"v1.{GROUP}"
KIND = "com.example.remote.v1.Gadget"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
V3 = f"/openapi/v3/apis/{GROUP}/v1"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as made:
        yield made


async def _fetched(world: World) -> None:
    world.directory.put(api())
    await world.until(lambda: world.is_current(NAME))


def _script(world: World, target: str, document: Any) -> None:
    world.backends.scripts["gadgets", target] = InProcessResponse(200, orjson.dumps(document))


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*(_references(each) for each in value.values()))
    if isinstance(value, list):
        return set[str]().union(*(_references(each) for each in value))
    return set()


async def _index(world: World) -> dict[str, str]:
    paths = (await world.site.document("/openapi/v3"))["paths"]
    return {name: each["serverRelativeURL"] for name, each in paths.items()}


async def test_v3_documents_are_served_as_fetched(world: World) -> None:
    """The index contains a remote version with a hash; its document is the backend's, from
    memory."""
    before = await _index(world)
    await _fetched(world)
    index = await _index(world)
    assert set(index) - set(before) == {f"apis/{GROUP}/v1"}
    theirs = await world.backends.sites["gadgets"].ask(V3)
    asked = len(world.backends.asked)
    ours = await world.site.ask(index[f"apis/{GROUP}/v1"])
    assert ours.body == theirs.body
    assert "immutable" in ours.headers["Cache-Control"]
    assert len(world.backends.asked) == asked
    assert (await world.site.ask(f"/openapi/v3/apis/{GROUP}/v1beta1")).status == 404


async def test_v3_documents_follow_the_backend(world: World) -> None:
    """A change gets another hash, and the old URL redirects to it; deleted documents are
    removed."""
    await _fetched(world)
    old = (await _index(world))[f"apis/{GROUP}/v1"]
    world.backends.sites["gadgets"].catalog.host(
        gadgets(GROUP, schema={"openAPIV3Schema": {"type": "object"}})
    )
    await world.clock.advance(61)
    known = world.documents.version(GROUP, "v1")
    await world.until(lambda: world.documents.version(GROUP, "v1") != known)
    new = (await _index(world))[f"apis/{GROUP}/v1"]
    assert new != old
    assert (await world.site.ask(old)).headers["Location"] == new
    world.directory.drop(NAME)
    assert f"apis/{GROUP}/v1" not in await _index(world)
    assert (await world.site.ask(V3)).status == 404


async def test_v3_documents_are_not_asked_for_needlessly(world: World) -> None:
    """While the index contains the same hash, the document itself is not fetched again."""
    await _fetched(world)
    await world.clock.advance(61)
    await world.until(lambda: world.backends.count("/openapi/v3") == 2)
    await world.until(lambda: world.backends.count("/openapi/v2") == 2)
    assert world.backends.count(V3) == 1


@pytest.mark.parametrize(
    "garbage", [b"", b"null", b'{"openapi":"2"}', b'{"openapi":"3.0.0"}', b"[" * 10_000]
)
async def test_garbage_is_no_v3_document(world: World, garbage: bytes) -> None:
    """It is reported; the version has no v3 document, and its v2 parts are read all the same."""
    world.backends.scripts["gadgets", V3] = InProcessResponse(200, garbage)
    world.directory.put(api())
    await world.until(lambda: NAME in world.documents.problems())
    assert "invalid response" in world.documents.problems()[NAME]
    assert (await world.site.ask(V3)).status == 404
    known = world.documents.version(GROUP, "v1")
    assert known is not None
    assert known.v2 is not None


async def test_v2_has_the_paths_of_the_version(world: World) -> None:
    """Its paths and the definitions they refer to are in the document; equal ones are shared."""
    before = await world.site.document("/openapi/v2")
    await _fetched(world)
    whole = await world.site.document("/openapi/v2")
    theirs = await world.backends.sites["gadgets"].document("/openapi/v2")
    start = f"/apis/{GROUP}/v1/"
    added = whole["paths"].keys() - before["paths"].keys()
    assert added == {path for path in theirs["paths"] if path.startswith(start)}
    assert whole["definitions"][KIND] == theirs["definitions"][KIND]
    for path in added:
        assert whole["paths"][path]["get" if path == start else next(iter(whole["paths"][path]))]
    assert not [name for name in whole["definitions"] if "_v2" in name]
    kinds = whole["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    named = kinds["x-kubernetes-group-version-kind"]
    assert {"group": GROUP, "version": "v1", "kind": "DeleteOptions"} in named
    known = {f"#/definitions/{name}" for name in whole["definitions"]}
    known |= {f"#/parameters/{name}" for name in whole["parameters"]}
    assert _references(whole) <= known
    world.directory.drop(NAME)
    assert await world.site.document("/openapi/v2") == before


async def test_v2_renames_conflicting_definitions(world: World) -> None:
    """A definition or parameter with a local name but other content is renamed."""
    theirs = await world.backends.sites["gadgets"].document("/openapi/v2")
    theirs["definitions"][META]["properties"]["extra"] = {"type": "string"}
    theirs["parameters"]["pretty"]["description"] = "Other words."
    _script(world, "/openapi/v2", theirs)
    await _fetched(world)
    whole = await world.site.document("/openapi/v2")
    assert "extra" not in whole["definitions"][META]["properties"]
    assert "extra" in whole["definitions"][f"{META}_v2"]["properties"]
    metadata = whole["definitions"][KIND]["properties"]["metadata"]
    assert metadata["$ref"] == f"#/definitions/{META}_v2"
    assert whole["parameters"]["pretty_v2"]["description"] == "Other words."
    item = whole["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/gadgets/{{name}}"]
    assert {"$ref": "#/parameters/pretty_v2"} in item["parameters"]
    # A second version of the same server needs no third name.
    world.directory.put(api(version="v1beta1"))
    await world.until(lambda: world.is_current(f"v1beta1.{GROUP}"))
    both = await world.site.document("/openapi/v2")
    assert [name for name in both["definitions"] if name.startswith(META)] == [META, f"{META}_v2"]


async def test_v2_in_both_forms(world: World) -> None:
    """The protobuf document describes remote kinds like the JSON document."""
    await _fetched(world)
    whole = await world.site.document("/openapi/v2")
    answer = await world.site.ask("/openapi/v2", {"Accept": V2_PROTOBUF_ACCEPTED})
    assert isinstance(answer.body, bytes)
    decoded = gnostic.document(answer.body)
    assert decoded["definitions"][KIND] == whole["definitions"][KIND]
    path = f"/apis/{GROUP}/v1/namespaces/{{namespace}}/gadgets/{{name}}"
    assert decoded["paths"][path] == whole["paths"][path]


async def test_only_paths_of_the_version_are_taken(world: World) -> None:
    """A backend can describe only its own paths: others are dropped from its document."""
    theirs = await world.backends.sites["gadgets"].document("/openapi/v2")
    stolen = theirs["paths"][f"/apis/{GROUP}/v1/gadgets"]
    for path in ("/api/v1/pods", "/apis/apps/v1/gadgets", f"/apis/{GROUP}/v1beta1/gadgets", "/x"):
        theirs["paths"][path] = stolen
    _script(world, "/openapi/v2", theirs)
    await _fetched(world)
    whole = await world.site.document("/openapi/v2")
    assert not {"/api/v1/pods", "/apis/apps/v1/gadgets", "/x"} & whole["paths"].keys()
    assert f"/apis/{GROUP}/v1beta1/gadgets" not in whole["paths"]


async def test_v2_is_not_made_again_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a backend that is away for a while nor an equal document rebuilds the document."""
    made: list[int] = []
    whole = V2Assembly.whole

    def counted(*arguments: Any) -> Any:
        made.append(1)
        return whole(*arguments)

    await _fetched(world)
    monkeypatch.setattr(V2Assembly, "whole", counted)
    first = await world.site.ask("/openapi/v2")
    world.directory.say(NAME, "gone")
    assert (await world.site.ask("/openapi/v2")).headers == first.headers
    world.directory.say(NAME, None)
    await world.until(lambda: world.backends.count("/openapi/v2") == 2)
    await world.clock.advance(61)
    await world.until(lambda: world.backends.count("/openapi/v2") == 3)
    assert (await world.site.ask("/openapi/v2")).headers == first.headers
    assert len(made) == 1


@pytest.mark.parametrize("code", [404, 403, 500])
async def test_backends_without_openapi(world: World, code: int) -> None:
    """A backend without such documents counts as current, and adds nothing."""
    before = await world.site.ask("/openapi/v2")
    for target in ("/openapi/v2", "/openapi/v3"):
        world.backends.scripts["gadgets", target] = InProcessResponse(code)
    world.directory.put(api())
    await world.until(lambda: world.state() == {"v1": ("Current", ["gadgets"])})
    await world.until(lambda: world.backends.count("/openapi/v2") == 1)
    assert (await world.site.ask("/openapi/v2")).headers == before.headers
    await world.until(lambda: (NAME in world.documents.problems()) == (code != 404))


async def test_a_backend_with_the_old_document_only(world: World) -> None:
    """Its v3 document is derived from v2, equivalent to it, and replaced by a real one."""
    world.backends.scripts["gadgets", "/openapi/v3"] = InProcessResponse(404)
    await _fetched(world)
    made = await world.site.document(V3)
    theirs = await world.backends.sites["gadgets"].document(V3)
    assert made["paths"].keys() == theirs["paths"].keys()
    ours, own = made["components"]["schemas"][KIND], theirs["components"]["schemas"][KIND]
    assert ours["properties"]["spec"] == own["properties"]["spec"]
    assert ours["properties"]["metadata"]["allOf"][0] == {"$ref": f"#/components/schemas/{META}"}
    assert _references(made) <= {
        f"#/components/schemas/{each}" for each in made["components"]["schemas"]
    }
    path = f"/apis/{GROUP}/v1/namespaces/{{namespace}}/gadgets/{{name}}"
    patch, wanted = made["paths"][path]["patch"], theirs["paths"][path]["patch"]
    for word in ("requestBody", "responses", "operationId", "x-kubernetes-group-version-kind"):
        assert patch[word] == wanted[word]
    assert "fieldValidation" in {each["name"] for each in patch["parameters"]}
    del world.backends.scripts["gadgets", "/openapi/v3"]
    known = world.documents.version(GROUP, "v1")
    await world.clock.advance(61)
    await world.until(lambda: world.documents.version(GROUP, "v1") != known)
    assert await world.site.document(V3) == theirs
    world.backends.scripts["gadgets", "/openapi/v3"] = InProcessResponse(404)
    world.backends.scripts["gadgets", "/openapi/v2"] = InProcessResponse(404)
    await world.clock.advance(61)
    await world.until(lambda: (v := world.documents.version(GROUP, "v1")) is not None and not v.v3)
    assert (await world.site.ask(V3)).status == 404
