"""Discovery of a catalog that changes: the documents follow at once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.endpoints.discovery import Discovery
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.registry.catalog import Catalog, builtin_catalog, version_hash_of
from restow.registry.resource import Resource
from restow.request.context import Context
from restow.request.request_info import parse_request
from tests.unit.endpoints.custom_kinds import GROUP, gadgets


@pytest.fixture
def catalog() -> Catalog:
    return builtin_catalog()


def _hash(resource: Resource) -> str:
    return version_hash_of(resource, resource.storage_api_version)


def _discovery(catalog: Catalog) -> Discovery:
    return Discovery(catalog, _hash, address="")


def _plain(discovery: Discovery, path: str) -> Any:
    body = discovery.plain(path)
    return None if body is None else orjson.loads(body)


def _aggregated(discovery: Discovery) -> dict[str, Any]:
    items = orjson.loads(discovery.aggregated("/apis"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def _all_documents(catalog: Catalog, discovery: Discovery) -> dict[str, bytes | None]:
    paths = ["/api", "/apis"]
    for group, versions in catalog.groups.items():
        start = f"/apis/{group}" if group else "/api"
        paths += [start, *(f"{start}/{version}" for version in versions)]
    found: dict[str, bytes | None] = {path: discovery.plain(path) for path in paths}
    for path in ("/api", "/apis"):
        found[f"aggregated {path}"] = discovery.aggregated(path)
    return found


def test_a_hosted_kind_shows_at_once(catalog: Catalog) -> None:
    """A hosted kind is in every document, and in none after it is dropped."""
    discovery = _discovery(catalog)
    before = _all_documents(catalog, discovery)
    catalog.host(gadgets())
    names = [group["name"] for group in _plain(discovery, "/apis")["groups"]]
    assert names[-1] == GROUP
    assert _plain(discovery, f"/apis/{GROUP}")["preferredVersion"]["version"] == "v1"
    assert [each["version"] for each in _aggregated(discovery)[GROUP]["versions"]] == [
        "v1",
        "v1beta1",
    ]
    catalog.drop(GROUP, "gadgets")
    assert _plain(discovery, f"/apis/{GROUP}") is None
    assert _plain(discovery, f"/apis/{GROUP}/v1") is None
    assert _all_documents(catalog, discovery) == before


def test_each_version_has_its_own_subresources(catalog: Catalog) -> None:
    """A version lists the subresources that it declares, in both forms."""
    catalog.host(gadgets())
    discovery = _discovery(catalog)
    latest = _plain(discovery, f"/apis/{GROUP}/v1")["resources"]
    assert [each["name"] for each in latest] == ["gadgets", "gadgets/status", "gadgets/scale"]
    assert latest[0]["verbs"][:3] == ["delete", "deletecollection", "get"]
    assert latest[0]["storageVersionHash"]
    assert (latest[2]["group"], latest[2]["kind"]) == ("autoscaling", "Scale")
    old = _plain(discovery, f"/apis/{GROUP}/v1beta1")["resources"]
    assert [each["name"] for each in old] == ["gadgets"]
    first, second = _aggregated(discovery)[GROUP]["versions"]
    assert [each["subresource"] for each in first["resources"][0]["subresources"]] == [
        "status",
        "scale",
    ]
    assert "subresources" not in second["resources"][0]


def test_cached_parts_equal_rebuilt_ones(catalog: Catalog) -> None:
    """After each of many changes, documents assembled from cached parts equal rebuilt ones."""
    discovery = _discovery(catalog)
    other = "other.example.com"
    steps: list[Resource | tuple[str, str]] = [
        gadgets(),
        gadgets(other),
        gadgets(other, subresources={}),
        (GROUP, "gadgets"),
        gadgets(),
        gadgets(served=False),
        (other, "gadgets"),
    ]
    for step in steps:
        if isinstance(step, Resource):
            catalog.host(step)
        else:
            catalog.drop(*step)
        assert _all_documents(catalog, discovery) == _all_documents(catalog, _discovery(catalog))


def test_a_switched_storage_version_shows(catalog: Catalog) -> None:
    """The hash follows the storage version after `forget`."""
    shown = {"hash": "one"}
    discovery = Discovery(catalog, lambda _resource: shown["hash"], address="")
    assert b'"storageVersionHash":"one"' in (discovery.plain("/api/v1") or b"")
    aggregated = discovery.aggregated("/api")
    shown["hash"] = "two"
    discovery.forget()
    after = discovery.plain("/api/v1") or b""
    assert b'"storageVersionHash":"two"' in after
    assert b'"one"' not in after
    assert discovery.aggregated("/api") is aggregated


def test_the_tag_changes_with_the_document(catalog: Catalog) -> None:
    """A client with the current document gets 304 until something has changed."""
    discovery = _discovery(catalog)

    def ask(tag: str) -> tuple[int, bytes]:
        headers = Headers([("if-none-match", tag)] if tag else [])
        request = HttpRequest("GET", "/apis", "", headers, b"", Peer(1), 0.0)
        answer = discovery.answer(Context(request, parse_request("GET", "/apis")), "/apis")
        assert answer is not None
        return answer.status, answer.headers

    _, headers = ask("")
    tag = next(
        line.split(b": ", 1)[1].decode() for line in headers.split(b"\r\n") if b"ETag" in line
    )
    assert ask(tag)[0] == 304
    catalog.host(gadgets())
    assert ask(tag)[0] == 200


@pytest.mark.parametrize("path", ["/apis/", "/apis//", "/apis//v1", "/api/v9", "/apis/x/y/z"])
def test_paths_without_a_document(catalog: Catalog, path: str) -> None:
    """A path that names no document yields none."""
    discovery = _discovery(catalog)
    found = discovery.plain(path)
    assert found is None or found == discovery.plain("/apis")
