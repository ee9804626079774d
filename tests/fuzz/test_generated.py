"""Requests generated from our own OpenAPI documents: no answer is a 5xx, and each is what it says.

Half of them are as the documents ask, the others are not. The server is in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest
import requests
import schemathesis
import uvloop
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok

from restow.runtime import Runtime
from restow.storage.opening import open_storage
from restow.testing.api_client import Reply
from tests.conformance.api.servers import RunningServer, start_server
from tests.sizes import SIZES

SERVER_ERROR: Final = 500
# A version of the future is waited for, and then a 504; a watch does not end by itself.
LEFT_OUT: Final = frozenset({"resourceVersion", "watch"})
NOT_SENT: Final = frozenset({"Host", "Content-Length", "Content-Type", "Connection"})
LATE: Final = 504


@dataclass(slots=True)
class World:
    """A server, and the loop that it runs on while it is asked."""

    runner: asyncio.Runner
    server: RunningServer

    def ask(self, method: str, target: str, body: bytes = b"", **more: Any) -> Reply:
        client = self.server.client
        return self.runner.run(client.request(method, target, body or None, **more))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        storage = runner.run(open_storage("memory:", Runtime.system()))
        server = runner.run(start_server(storage))
        made = World(runner, server)
        body = orjson.dumps({"metadata": {"name": "default"}})
        assert made.ask("POST", "/api/v1/namespaces", body).status == 201
        yield made
        runner.run(server.stop())
        runner.run(storage.close())


def _groups(world: World) -> list[str]:
    """What is asked about: `api/v1` and its like."""
    index = world.ask("GET", "/openapi/v3").json["paths"]
    return list(SIZES.generated_groups) or sorted(path for path in index if path.startswith("api"))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=str)
def test_generated_requests(world: World, mode: GenerationMode) -> None:
    """Every operation of the groups, with many bodies and parameters."""
    sent = 0
    for group in _groups(world):
        document = world.ask("GET", f"/openapi/v3/{group}").json
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            assert isinstance(found, Ok), found
            sent += _try_operation(world, found.ok(), mode)
    assert sent > SIZES.generated_requests
    assert world.ask("GET", "/api/v1/namespaces/default").status == 200


def _try_operation(world: World, operation: Any, mode: GenerationMode) -> int:
    sent = 0

    @settings(
        max_examples=SIZES.generated_requests,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Case[Any]) -> None:
        nonlocal sent
        if mode is GenerationMode.POSITIVE and "namespace" in case.path_parameters:
            case.path_parameters["namespace"] = "default"
        sent += _send(world, case)

    try:
        send()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing can be wrong in a plain GET
    return sent


def _send(world: World, case: Case[Any]) -> bool:
    """Whether it could be sent: some headers are none, and no client sends them."""
    made = case.as_transport_kwargs(base_url="http://localhost")
    made["params"] = {
        name: value for name, value in (made.get("params") or {}).items() if name not in LEFT_OUT
    }
    try:
        prepared = requests.Request(**made).prepare()
    except (requests.exceptions.InvalidHeader, UnicodeError):
        return False
    body = prepared.body or b""
    assert isinstance(body, str | bytes)
    reply = world.ask(
        str(prepared.method),
        prepared.path_url,
        body.encode() if isinstance(body, str) else body,
        content_type=prepared.headers.get("Content-Type"),
        headers={name: value for name, value in prepared.headers.items() if name not in NOT_SENT},
    )
    _check(reply)
    return True


def _check(reply: Reply) -> None:
    assert reply.status < SERVER_ERROR or reply.status == LATE, reply.body[:1000]
    media_type = reply.header("content-type").partition(";")[0]
    if media_type == "application/json":
        said = reply.json
    elif media_type == "application/yaml":
        said = yaml.safe_load(reply.body)
    else:
        assert media_type in ("text/plain", "application/vnd.kubernetes.protobuf"), media_type
        return
    if reply.status >= 400:
        assert (said["kind"], said["code"]) == ("Status", reply.status)
