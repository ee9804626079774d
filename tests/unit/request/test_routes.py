"""The cache of request lines: it contains those that may be repeated, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from restow.httpserver import Headers, HttpRequest, Limits, Peer, PushStream
from restow.httpserver.byte_budgets import Budgets
from restow.httpserver.reader import RequestLineCache, RequestReader
from restow.registry.catalog import builtin_catalog
from restow.request.routes import ROUTES_MAX, Routes
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.support.in_process import answer_of

HEADERS = f"Host: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
WATCHES = 1_000


@pytest.fixture
async def server() -> AsyncIterator[RunningServer]:
    storage = MemoryStorage()
    server = await start_server(storage, builtin_catalog())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    assert (await server.client.post("/api/v1/namespaces", namespace)).status == 201
    assert (await server.client.post(CONFIG_MAPS, config_map("a", {"b": "1"}))).status == 201
    yield server
    await server.stop()
    await storage.close()


def _request(method: str, target: str) -> HttpRequest:
    path, _, query = target.partition("?")
    return HttpRequest(method, path, query, Headers([]), b"", Peer(1), 0.0)


def _lines_of(server: RunningServer) -> RequestLineCache:
    return server.listener._shared.lines


def _reader(server: RunningServer) -> RequestReader:
    """The reader of a connection that has sent a request before."""
    limits = Limits()
    budgets = Budgets(limits)
    reader = RequestReader(limits, budgets=budgets, peer=Peer(1), lines=_lines_of(server))
    reader.feed(b"GET /version HTTP/1.1\r\n" + HEADERS)
    assert reader.next_request(0.0) is not None
    assert reader.next_request(0.0) is None
    return reader


async def test_watches_are_not_cached(
    server: RunningServer,
) -> None:
    """A thousand watches from different resource versions leave no line and no route in the
    cache."""
    reader, app = _reader(server), server.assembly.app
    clock = server.assembly.server.runtime.clock
    sizes = []
    for number in range(WATCHES + 1):
        query = f"watch=true&resourceVersion={number}&timeoutSeconds=400"
        line = f"GET {CONFIG_MAPS}?{query} HTTP/1.1\r\n".encode()
        request = reader.whole_request(line + HEADERS, clock.monotonic())
        assert request is not None
        stream = await answer_of(app(request))
        assert isinstance(stream, PushStream)
        stream.close()
        sizes.append((len(_lines_of(server).known), len(app._routes._routes)))
    assert sizes[0] == sizes[-1]


async def test_hot_routes_stay_beside_watches(server: RunningServer) -> None:
    """More watches than the cache has entries do not evict lines that are repeated often."""
    app = server.assembly.app
    path = f"{CONFIG_MAPS}/a"
    for _ in range(2):
        assert (await server.client.get(path)).status == 200
    hot = app._routes.of(_request("GET", path))
    assert hot.short is not None
    for number in range(ROUTES_MAX + 1):
        app._routes.of(_request("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={number}"))
    assert app._routes.of(_request("GET", path)) is hot
    assert not hot.short.is_stale


@pytest.mark.parametrize(
    ("query", "is_kept"),
    [
        ("", True),
        ("limit=500", True),
        ("limit=500&resourceVersion=0", True),
        ("resourceVersion=", True),
        ("labelSelector=watch%3Dtrue", True),
        ("watch=0", True),
        ("watch=true", False),
        ("limit=500&continue=abc", False),
        ("resourceVersion=17&resourceVersionMatch=NotOlderThan", False),
    ],
)
def test_cached_lists(query: str, *, is_kept: bool) -> None:
    """A list that can be repeated is cached; a continuation or a list at a revision is not."""
    routes, target = Routes(), f"{CONFIG_MAPS}?{query}".removesuffix("?")
    first = routes.of(_request("GET", target))
    assert (routes.of(_request("GET", target)) is first) is is_kept


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        (f"GET {CONFIG_MAPS}/a", True),
        (f"GET {CONFIG_MAPS}", True),
        (f"GET {CONFIG_MAPS}?limit=1", False),
        (f"DELETE {CONFIG_MAPS}/a", False),
        (f"HEAD {CONFIG_MAPS}/a", False),
    ],
)
async def test_cached_request_lines(server: RunningServer, line: str, *, is_kept: bool) -> None:
    """Those that may have a fast path; no delete, since each names an object once."""
    data = f"{line} HTTP/1.1\r\n".encode()
    assert _reader(server).whole_request(data + HEADERS, 0.0) is not None
    assert (data in _lines_of(server).known) is is_kept
