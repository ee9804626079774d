"""OpenAPI of a catalog that changes: no document is older than the catalog."""

from __future__ import annotations

import asyncio
import gzip
import threading
from typing import Any

import orjson
import pytest

from restow.endpoints import openapi_paths
from restow.endpoints.openapi_paths import OpenApi
from restow.httpserver import HttpResponse
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.openapi import ApiInfo, Document, V2Assembly, v3_document
from restow.registry.catalog import Catalog, builtin_catalog
from restow.request.context import Context
from restow.request.request_info import parse_request
from tests.unit.endpoints.custom_kinds import GROUP, gadgets

INFO = ApiInfo(version="v1.36.0")
KIND = "com.example.test.v1.Gadget"


def _whole(answer: HttpResponse) -> bytes:
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


class Asking:
    """A catalog, and its documents as a client gets them."""

    def __init__(self) -> None:
        self.catalog: Catalog = builtin_catalog()
        self.openapi = OpenApi(self.catalog, INFO)

    async def __call__(self, path: str, query: str = "", **headers: str) -> HttpResponse | None:
        lines = [(name.replace("_", "-"), value) for name, value in headers.items()]
        request = HttpRequest("GET", path, query, Headers(lines), b"", Peer(1), 0.0)
        target = f"{path}?{query}" if query else path
        return await self.openapi.answer(Context(request, parse_request("GET", target)), path)

    async def document(self, path: str) -> Any:
        answer = await self(path)
        assert answer is not None
        assert answer.status == 200
        return orjson.loads(_whole(answer))

    async def index(self) -> dict[str, str]:
        paths = (await self.document("/openapi/v3"))["paths"]
        return {name: entry["serverRelativeURL"] for name, entry in paths.items()}


@pytest.fixture
def asking() -> Asking:
    return Asking()


async def test_a_custom_kind_is_published(asking: Asking) -> None:
    """Its schema, its list and its operations are in the documents of its versions and in v2."""
    asking.catalog.host(gadgets())
    latest = await asking.document(f"/openapi/v3/apis/{GROUP}/v1")
    schema = latest["components"]["schemas"][KIND]
    assert schema["properties"]["spec"]["properties"]["color"]["description"] == "How it looks."
    assert [each["fieldPath"] for each in schema["x-kubernetes-selectable-fields"]] == [
        "spec.color",
        "spec.count",
        "spec.on",
    ]
    ends = [path.partition("{name}")[2] for path in latest["paths"] if "{name}" in path]
    assert sorted(ends) == ["", "/scale", "/status"]
    old = await asking.document(f"/openapi/v3/apis/{GROUP}/v1beta1")
    assert not any(path.endswith("/scale") for path in old["paths"])
    whole = await asking.document("/openapi/v2")
    assert whole["definitions"][KIND]["properties"]["spec"]["type"] == "object"
    assert f"/apis/{GROUP}/v1/gadgets" in whole["paths"]


async def test_documents_follow_the_catalogue(asking: Asking) -> None:
    """Hosted, changed and dropped kinds are reflected in the next response."""
    before = await asking.index()
    old_whole = await asking("/openapi/v2")
    asking.catalog.host(gadgets())
    hosted = await asking.index()
    assert set(hosted) - set(before) == {f"apis/{GROUP}/v1", f"apis/{GROUP}/v1beta1"}
    first = await asking.document(f"/openapi/v3/apis/{GROUP}/v1")
    asking.catalog.host(gadgets(schema={"openAPIV3Schema": {"type": "object"}}))
    changed = await asking.index()
    assert changed[f"apis/{GROUP}/v1"] != hosted[f"apis/{GROUP}/v1"]
    assert {**changed, f"apis/{GROUP}/v1": ""} == {**hosted, f"apis/{GROUP}/v1": ""}
    second = await asking.document(f"/openapi/v3/apis/{GROUP}/v1")
    assert first["components"]["schemas"][KIND] != second["components"]["schemas"][KIND]
    asking.catalog.drop(GROUP, "gadgets")
    assert await asking.index() == before
    assert await asking(f"/openapi/v3/apis/{GROUP}/v1") is None
    new_whole = await asking("/openapi/v2")
    assert old_whole is not None
    assert new_whole is not None
    assert new_whole.headers == old_whole.headers


async def test_the_index_names_the_hash_of_each_document(asking: Asking) -> None:
    """A document requested with the hash in the index is cacheable for ever; other hashes
    redirect."""
    asking.catalog.host(gadgets())
    url = (await asking.index())[f"apis/{GROUP}/v1"]
    path, _, query = url.partition("?")
    answer = await asking(path, query)
    assert answer is not None
    assert b"immutable" in answer.headers
    asking.catalog.host(gadgets(schema={"openAPIV3Schema": {"type": "object"}}))
    moved = await asking(path, query)
    assert moved is not None
    assert moved.status == 301
    assert query.encode() not in moved.headers


async def test_documents_built_during_a_change_are_not_cached(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document built from an outdated catalog is not served to later requests."""
    asking.catalog.host(gadgets())
    begun, go_on = threading.Event(), threading.Event()

    def slow(*args: Any, **named: Any) -> Document:
        begun.set()
        assert go_on.wait(10)
        return v3_document(*args, **named)

    monkeypatch.setattr(openapi_paths, "v3_document", slow)
    path = f"/openapi/v3/apis/{GROUP}/v1"
    early = asyncio.ensure_future(asking.document(path))
    await asyncio.to_thread(begun.wait, 10)
    asking.catalog.host(gadgets(schema={"openAPIV3Schema": {"type": "object"}}))
    late = asyncio.ensure_future(asking.document(path))
    go_on.set()
    assert "spec" in (await early)["components"]["schemas"][KIND]["properties"]
    assert "spec" not in (await late)["components"]["schemas"][KIND]["properties"]
    assert await asking.document(path) == await late


async def test_other_kinds_are_not_written_again(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one kind changes, the v2 document reuses the cached parts of all others."""
    asking.catalog.host(gadgets())
    await asking.document("/openapi/v2")
    made: list[str] = []
    part = V2Assembly.part

    def counted(self: Any, kind: Any) -> Any:
        made.append(kind.group)
        return part(self, kind)

    monkeypatch.setattr(V2Assembly, "part", counted)
    asking.catalog.host(gadgets("other.example.com"))
    whole = await asking.document("/openapi/v2")
    assert made == ["other.example.com"] * 2
    assert orjson.dumps(whole) == orjson.dumps(await asking_like(asking).document("/openapi/v2"))


def asking_like(other: Asking) -> Asking:
    """The same catalog, with nothing cached yet."""
    fresh = Asking()
    fresh.catalog = other.catalog
    fresh.openapi = OpenApi(other.catalog, INFO)
    return fresh


async def test_both_encodings_are_the_same(asking: Asking) -> None:
    """A client that accepts gzip gets the same document as one that does not."""
    for number in range(40):
        asking.catalog.host(gadgets(f"g{number}.example.com"))
    plain = await asking("/openapi/v2")
    packed = await asking("/openapi/v2", accept_encoding="gzip")
    assert plain is not None
    assert packed is not None
    assert gzip.decompress(_whole(packed)) == _whole(plain)
