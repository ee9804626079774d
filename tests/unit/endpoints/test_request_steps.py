"""Steps of requests on the event loop are attributed to bounded labels, and named by their
route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import orjson
import pytest

from restow.aio import LoopSteps, Runtime, SimulatedClock
from restow.aio.loop_steps import PERIOD_SECONDS
from restow.endpoints.request_steps import PATH_LENGTH_MAX, USER_LENGTH_MAX
from restow.httpserver import Peer
from restow.registry.catalog import builtin_catalog
from restow.registry.encoding import Encoding, FixedPolicy
from restow.registry.resource import Resource
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.support.api_client import JSON, MERGE_PATCH, TABLE
from tests.support.in_process import answer_of, request_of
from tests.unit.endpoints.custom_kinds import GROUP, gadget, gadgets

GADGETS: Final = f"/apis/{GROUP}/v1/namespaces/default/gadgets"
BLOCKED_SECONDS: Final = 0.06


class _Slow(FixedPolicy):
    """Blocks the event loop in each write, in simulated time."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self.clock = clock
        self.is_slow = False

    def encoding(self, resource: Resource) -> Encoding:
        if self.is_slow:
            self.clock.stall(BLOCKED_SECONDS)
        return super().encoding(resource)


class Rig:
    """The chain of a server whose writes block its loop, by a simulated clock that only the
    measurement has; without the listener, whose steps take real time."""

    def __init__(self, server: RunningServer, policy: _Slow, runtime: Runtime) -> None:
        self._app = server.assembly.app
        self.metrics = server.assembly.metrics
        self._policy = policy
        self._steps = runtime.steps
        self._received_seconds = runtime.clock.monotonic

    async def send(
        self, method: str, path: str, body: Any, *, content_type: str = JSON, accept: str = JSON
    ) -> Any:
        """Sends a request that blocks the loop if it writes; returns its status and the labels of
        the steps that blocked the loop."""
        headers = {"content-type": content_type, "accept": accept}
        data = b"" if body is None else orjson.dumps(body)
        request = request_of(method, path, headers, data, token=TOKEN, peer=Peer(1))
        self._policy.clock.stall(3 * PERIOD_SECONDS)
        self._policy.is_slow = True
        found = await answer_of(self._app(request(self._received_seconds())))
        self._policy.is_slow = False
        return found.status, [labels for labels, _ in self._steps.longest()]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    clock = SimulatedClock()
    runtime = replace(Runtime.system(), steps=LoopSteps(clock.monotonic))
    policy, storage, catalog = _Slow(clock), MemoryStorage(), builtin_catalog()
    server = await start_server(storage, catalog, policy=policy, runtime=runtime)
    catalog.host(gadgets())
    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}
    assert (await server.client.post("/api/v1/namespaces", namespace)).status == 201
    yield Rig(server, policy, runtime)
    await server.stop()
    await storage.close()


async def test_a_step_has_verb_resource_and_forms(rig: Rig) -> None:
    """Built-in resources are labels, with the representations of request and response; resources
    from CRDs are one label, whatever their names."""
    found = await rig.send("POST", CONFIG_MAPS, config_map("a", {"b": "1"}), accept=TABLE)
    assert found == (201, [("create", "configmaps", "json>Table")])
    found = await rig.send(
        "PATCH", f"{CONFIG_MAPS}/a", {"data": {"b": "2"}}, content_type=MERGE_PATCH
    )
    assert found == (200, [("patch", "configmaps", "merge-patch>json")])
    found = await rig.send("DELETE", f"{CONFIG_MAPS}/a", None)
    assert found == (200, [("delete", "configmaps", "json")])
    assert await rig.send("POST", GADGETS, gadget("x")) == (
        201,
        [("create", "custom", "json>json")],
    )
    found = await rig.send(
        "PATCH", f"{GADGETS}/x/status", {"status": {"replicas": 1}}, content_type=MERGE_PATCH
    )
    assert found == (200, [("patch", "custom/status", "merge-patch>json")])
    assert await rig.send("GET", f"{GADGETS}/x", None) == (200, [])


async def test_the_log_names_the_route_and_the_user(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for a step that blocks the loop, whose parts from the client are escaped and of
    limited length."""
    name = "x" * 200
    await rig.send("POST", f"{CONFIG_MAPS}?dryRun=All", config_map(name, {"b": "1"}))
    assert caplog.messages == []  # a dry run is not encoded, so it did not block
    await rig.send("POST", CONFIG_MAPS, config_map(name, {"b": "1"}))
    await rig.send("PATCH", f"{CONFIG_MAPS}/{name}", {"data": {"b": "2"}}, content_type=MERGE_PATCH)
    created, patched = caplog.messages
    assert created.startswith(
        f"the event loop was blocked for 60 ms by create {CONFIG_MAPS!r}, user '"
    )
    assert created.endswith("bytes json, answered in json")
    assert f"{CONFIG_MAPS}/xxx" in patched
    assert len(patched) < PATH_LENGTH_MAX + USER_LENGTH_MAX + 150


async def test_unknown_names_are_no_labels(rig: Rig) -> None:
    """Methods, paths and resources that a client invents add no series."""
    for method in ("GET", "POST", "BREW"):
        for path in ("/apis/a.b/v1/namespaces/c/unknown/d", "/invented/path", "/api/v1/unknown"):
            await rig.send(method, path, None)
    text = rig.metrics.document().decode()
    handlers = {
        line.partition('handler="')[2].partition('"')[0]
        for line in text.splitlines()
        if line.startswith("restow_event_loop_step_seconds_count")
    }
    assert {"get", "create", "other", "task"} <= handlers
    assert not {each for each in handlers if each.lower() == "brew" or "invented" in each}
