"""Bad input: the right 4xx Status, never a 500, in bounded time and memory.

Each row is one request that a careless or hostile client may send. After every row the server still
answers, and nothing was stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio

from restow.aio import Runtime
from restow.endpoints.handlers.server import Server
from restow.storage.drivers import open_storage
from tests.conformance.api.bad_bodies import (
    BODIES,
    METADATA,
    PATCHES,
    PROTOBUF_BODIES,
    TYPES,
    YAML_BODIES,
)
from tests.conformance.api.bad_input import CONFIG_MAP, MIB, Case
from tests.conformance.api.bad_requests import HEADERS, PARAMETERS, PATHS, REVIEWS
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    RunningServer,
    config_map,
    start_server,
)
from tests.support.api_client import ApiClient

NAMESPACES: Final = "/api/v1/namespaces"
SECONDS_MAX: Final = 5.0
"""CPU time, which a busy machine does not lengthen. The server runs in this process."""
REASONS: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    504: "Timeout",
}

CASES = [
    *BODIES,
    *YAML_BODIES,
    *PROTOBUF_BODIES,
    *TYPES,
    *METADATA,
    *PATCHES,
    *PARAMETERS,
    *PATHS,
    *HEADERS,
    *REVIEWS,
]


def test_case_names_are_unique() -> None:
    """No case overrides another, and the number of cases is at least the documented one."""
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert len(names) >= 150


async def ask(client: ApiClient, case: Case) -> None:
    begin = time.process_time()
    reply = await client.request(
        case.method,
        case.target,
        case.body,
        content_type=case.content_type,
        headers=case.headers,
    )
    seconds = time.process_time() - begin
    codes = case.code if isinstance(case.code, tuple) else (case.code,)
    assert reply.status in codes, reply.body[:500]
    assert seconds < SECONDS_MAX
    if reply.status >= 400:
        found = reply.json
        assert (found["kind"], found["status"], found["code"]) == (
            "Status",
            "Failure",
            reply.status,
        )
        assert found["reason"] == REASONS[reply.status]
        assert found["message"]
        assert len(reply.body) < 128 * 1024
        assert "x-evil" not in reply.headers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """One server for all rows, with one ConfigMap: no row changes anything."""
    path = tmp_path_factory.mktemp("bad") / "store"
    storage = await open_storage(f"sqlite:{path}", Runtime.system())
    server = await start_server(storage)
    assert (await server.client.post(NAMESPACES, {"metadata": {"name": "default"}})).status == 201
    made = await server.client.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    assert made.status == 201
    yield server
    await server.stop()
    await storage.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_bad_input(shared: RunningServer, case: Case) -> None:
    """The answer is the right 4xx, in time, and the server continues unchanged."""
    api = shared.client
    before = await api.get(CONFIG_MAPS)
    assert before.names == ["a"]
    await ask(api, case)
    assert (await api.get(CONFIG_MAPS)).json == before.json


async def test_bad_input_does_not_block_others(server: RunningServer) -> None:
    """While slow bodies are parsed, a get of another client is answered quickly."""
    await server.client.post(CONFIG_MAPS, config_map("a"))
    slow = [case for case in CASES if case.body is not None and len(_bytes(case.body)) > 100_000]
    assert len(slow) > 10
    worst = 0.0

    async def read_on() -> None:
        nonlocal worst
        while True:
            begin = time.process_time()
            assert (await server.client.get(CONFIG_MAP)).status == 200
            worst = max(worst, time.process_time() - begin)
            await asyncio.sleep(0.002)

    reading = asyncio.ensure_future(read_on())
    other = ApiClient(server.port, token="masters-token")
    try:
        for case in slow:
            await ask(other, case)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await other.close()
    assert worst < SECONDS_MAX / 2


async def test_memory_does_not_grow(server: RunningServer) -> None:
    """Requests that all differ do not stay in memory: no cache keeps them."""
    import tracemalloc

    api = server.client
    await api.post(CONFIG_MAPS, config_map("a"))

    async def load(label: str) -> None:
        for i in range(300):
            filler = f"{label}{i}".ljust(20_000, "x")
            await api.get(f"{CONFIG_MAPS}/{filler}")
            await api.get(f"{CONFIG_MAP}?x={filler}")
            await api.get(CONFIG_MAP, accept=f"application/json;a={filler[:8000]}")

    await load("warm")
    tracemalloc.start()
    await load("a")
    first = tracemalloc.get_traced_memory()[0]
    await load("b")
    second = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert second - first < 8 * MIB


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else orjson.dumps(body)


async def test_a_server_that_has_not_loaded_all_crds(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until all CRDs are loaded, unknown paths get 503 instead of 404."""
    unknown = ("/apis/nowhere.example.com/v1/things", "/apis/apps/v1/things")
    assert [(await server.client.get(path)).status for path in unknown] == [404, 404]
    monkeypatch.setattr(Server, "is_whole", lambda _server: False)
    for path in unknown:
        reply = await server.client.get(path)
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable")
        assert reply.header("retry-after") == "1"
    assert (await server.client.get("/api/v1/namespaces")).status == 200
