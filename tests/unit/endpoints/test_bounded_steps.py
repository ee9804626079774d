"""No step of the event loop takes long, whatever a client sends or asks for."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio

from restow.registry.catalog import builtin_catalog
from restow.registry.custom.crds import definition_of
from restow.registry.custom.custom_resource import custom_resource
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import TOKEN, RunningServer, start_server
from tests.support.long_requests import (
    LongRequest,
    established,
    large_definition,
    long_changes,
    long_reads,
    long_writes,
    many,
    ruled_definition,
    stored,
)
from tests.support.loop_steps import LongestStep, measured_steps

CALLS_MAX: Final = 25_000
"""Calls of one step: less than 10 ms, see `python -m benchmarks.steps`."""
JSON_BYTES_MAX: Final = 256 * 1024
"""Bytes of JSON that one call in the event loop's thread may decode or encode."""
MANY: Final = 600
SECONDS_MAX: Final = 120


def ask(port: int, request: LongRequest) -> int:
    """Send a request from another thread and read the whole response; return its status code."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    body = None if request.body is None else request.content
    connection.request(request.method, request.target, body, {**headers, **request.headers})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    assert content or reply.status == 200
    return reply.status


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    storage = MemoryStorage()
    catalog = builtin_catalog()
    running = await start_server(storage, catalog)
    for each in (ruled_definition(), large_definition(16_000)):
        catalog.host(custom_resource(definition_of(established(each), 1)))
    for request in (*stored(), *many(MANY)):
        reply = await running.client.request(request.method, request.target, request.content)
        assert reply.status == request.code, reply.body[:500]
    yield running
    await running.stop()
    await storage.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def longest(server: RunningServer) -> AsyncIterator[LongestStep]:
    assert server.port
    with measured_steps(counts_calls=True) as found:
        yield found


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "request_of",
    [pytest.param(each, id=each.name) for each in (*long_writes(), *long_changes(), *long_reads())],
)
async def test_steps_are_bounded(
    server: RunningServer, longest: LongestStep, request_of: LongRequest
) -> None:
    """Each step of a request at the limits makes a bounded number of calls, and encodes a bounded
    number of bytes."""
    longest.reset()
    code = await asyncio.to_thread(ask, server.port, request_of)
    assert code == request_of.code
    assert longest.calls <= CALLS_MAX, longest.callback
    assert longest.json_bytes <= JSON_BYTES_MAX
