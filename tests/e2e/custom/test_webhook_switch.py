"""The storage version changes while a slow webhook converts objects in flight (R6).

A write that began while v1 was stored may end in v2, or with an error that asks for a retry. It
never commits in v1 after its server has reported v2: each object contains its writer, and the whole
log of the store is compared with the reports of that server.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.crds import small
from tests.e2e.custom.stage import (
    Stage,
    definition,
    gadget,
    is_retryable,
    object_name,
)
from tests.e2e.custom.switching import DEFINITIONS, client_of
from tests.e2e.custom.tracing import VERSIONS
from tests.e2e.custom.webhook_thread import WebhookThread
from tests.e2e.storageversion.clusters import ENDLESS_LEASE
from tests.e2e.storageversion.conftest import NewCluster
from tests.sizes import SIZES
from tests.support.api_client import ApiClient, Reply
from tests.support.server_process import ServerProcess

COUNT: Final = 20
HELD_PER_SERVER: Final = 12
QUESTIONS_PER_SERVER: Final = 8
"""Maximum of concurrent calls of one server to a webhook; others wait for a slot."""
WRITERS_PER_SERVER: Final = 4
WRITES: Final = SIZES.switch_writes_converted
SWITCHES_MIN: Final = 4
ANSWER_SECONDS_MAX: Final = 0.03
PAUSE_SECONDS_MAX: Final = 0.3
SEED: Final = 7


@pytest.fixture(scope="module", params=SIZES.migration_stores)
def two(
    request: pytest.FixtureRequest,
    new_cluster: NewCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """Two servers that keep running, each with one identity, which the writes contain."""
    cluster = new_cluster(request.param)
    stage = Stage(cluster, tmp_path_factory.mktemp("stage"))
    stage.servers = cluster.start("builtin", "builtin", others=ENDLESS_LEASE)
    yield stage
    cluster.close()


@pytest.fixture
def stage(two: Stage, group: str, webhook: WebhookThread) -> Iterator[Stage]:
    """Two servers, and some objects stored in v1."""
    two.begin(group, conversion=webhook.conversion)
    two.fill(COUNT)
    yield two
    webhook.release()
    two.end()


def test_writes_under_way(stage: Stage, webhook: WebhookThread) -> None:
    """Writes that wait for the webhook while both servers switch end in v2, or ask for a retry;
    meanwhile the switch and all other kinds are not blocked."""
    ids = stage.ids()
    replies = asyncio.run(write_and_flip(stage, webhook, ids))
    assert len(replies) == 2 * HELD_PER_SERVER
    for reply in replies:
        assert reply.status in (200, 201) or is_retryable(reply), reply.body
    trace = stage.trace(by_writer=True)
    done = sum(reply.status in (200, 201) for reply in replies)
    assert trace.written["v2"] == done
    assert trace.written["v1"] == COUNT
    # A retry succeeds.
    for reply in asyncio.run(write_all(stage, ids)):
        assert reply.status in (200, 201), reply.body
    assert stage.trace(by_writer=True).left["v2"] == HELD_PER_SERVER // 2 * 3


async def write_and_flip(stage: Stage, webhook: WebhookThread, ids: dict[int, str]) -> list[Reply]:
    webhook.hold()
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_all(stage, ids))
        await asyncio.to_thread(webhook.wait_held, 2 * QUESTIONS_PER_SERVER)
        await asyncio.to_thread(stage.flip, "v2")
        await asyncio.to_thread(stage.wait_agreed, "v2")
        await asyncio.to_thread(use_others, stage)
        assert webhook.held == 2 * QUESTIONS_PER_SERVER
        assert not writing.done()
        webhook.release()
    return writing.result()


async def write_all(stage: Stage, ids: dict[int, str]) -> list[Reply]:
    """Creates and changes objects, on each server at once."""

    async def write(server: ServerProcess, number: int) -> Reply:
        client, spec = client_of(server), {"writer": ids[server.port], "turn": number}
        try:
            if number % 2:
                name = f"new-{server.port}-{number}"
                body = gadget(stage.place, name, version="v2", **spec)
                reply = await client.post(stage.place.path("v2"), body)
                if reply.status != 409:
                    return reply
            else:
                name = object_name(number)
            return await client.patch(stage.place.path("v2", name), {"spec": spec})
        finally:
            await client.close()

    return await asyncio.gather(
        *(write(server, number) for server in stage.servers for number in range(HELD_PER_SERVER))
    )


def test_crd_recreated_during_a_write(stage: Stage, webhook: WebhookThread) -> None:
    """A write that began under a deleted CRD is validated by the next one of its name: no object
    is stored that this one refuses, or that was deleted with the other."""
    replies = asyncio.run(write_and_recreate_crd(stage, webhook, stage.ids()))
    answers = Counter(reply.status for reply in replies)
    assert answers == {404: HELD_PER_SERVER, 422: HELD_PER_SERVER}
    trace = stage.trace(by_writer=True)
    assert (trace.left, trace.written) == ({}, {"v1": COUNT})


async def write_and_recreate_crd(
    stage: Stage, webhook: WebhookThread, ids: dict[int, str]
) -> list[Reply]:
    other = definition(stage.place, webhook.conversion, turn={"type": "string"})
    webhook.hold()
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_all(stage, ids))
        await asyncio.to_thread(webhook.wait_held, 2 * QUESTIONS_PER_SERVER)
        await asyncio.to_thread(stage.undefine)
        await asyncio.to_thread(stage.define, other)
        assert not writing.done()
        webhook.release()
    return writing.result()


def use_others(stage: Stage) -> None:
    """Creates, writes and reads other kinds: each step must succeed."""
    group = f"others.{stage.place.group}"
    family = small.widget(group)
    stage.define(family.definition)
    for server in stage.servers:
        assert server.get("/readyz")[0] == 200
        obj = family.good[0] | {"metadata": {"name": f"w-{server.port}"}}
        config = {"metadata": {"name": f"{group}-{server.port}"}, "data": {"a": "b"}}
        for path, body in (
            (family.path(), obj),
            ("/api/v1/namespaces/default/configmaps", config),
        ):
            code, answer = server.request("POST", path, body)
            assert code == 201, answer
            assert server.get(path)[0] == 200
        assert server.get(f"/apis/{stage.place.group}/v2")[0] == 200, "discovery"
    stage.ask("DELETE", f"{DEFINITIONS}/{family.name}")


def test_constant_writes(stage: Stage, webhook: WebhookThread) -> None:
    """Each write during repeated switches, with a slow webhook, is in the version that its
    server had reported."""
    chance = random.Random(SEED)
    webhook.seconds = lambda: chance.uniform(0, ANSWER_SECONDS_MAX)
    hammer = SlowHammer(stage)
    asyncio.run(hammer.run())
    assert hammer.unexpected == []
    trace = stage.trace(by_writer=True)
    assert sum(trace.written.values()) >= hammer.written >= WRITES
    # Without switches and writes in both versions the test would prove nothing.
    assert hammer.switches >= SWITCHES_MIN
    assert min(trace.written[version] for version in VERSIONS) > hammer.written * 0.1


class SlowHammer:
    """Writers on every server, and a task that switches the storage version."""

    def __init__(self, stage: Stage) -> None:
        self.written = 0
        self.switches = 0
        self.unexpected: list[str] = []
        self._stage = stage
        self._ids = stage.ids()

    @property
    def _is_enough(self) -> bool:
        return self.written >= WRITES and self.switches >= SWITCHES_MIN

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for server in self._stage.servers:
                for number in range(WRITERS_PER_SERVER):
                    tasks.create_task(self._write(server, number))
            tasks.create_task(self._switch())

    async def _write(self, server: ServerProcess, number: int) -> None:
        client, turn = client_of(server), 0
        try:
            while not self._is_enough and not self.unexpected:
                turn += 1
                reply = await self._write_one(client, server, number, turn)
                if reply.status in (200, 201):
                    self.written += 1
                elif not is_retryable(reply):
                    self.unexpected.append(f"{reply.status} {reply.message}")
        finally:
            await client.close()

    async def _write_one(
        self, client: ApiClient, server: ServerProcess, number: int, turn: int
    ) -> Reply:
        place, version = self._stage.place, VERSIONS[turn // 2 % 2]
        spec = {"writer": self._ids[server.port], "turn": turn}
        if turn % 2:
            name = object_name((turn + number) % COUNT)  # the other server's, too
            return await client.patch(place.path(version, name), {"spec": spec})
        name = f"new-{server.port}-{number}-{turn}"
        return await client.post(place.path(version), gadget(place, name, version=version, **spec))

    async def _switch(self) -> None:
        chance = random.Random(SEED)
        clients = [client_of(server) for server in self._stage.servers]
        path = f"{DEFINITIONS}/{self._stage.place.name}"
        try:
            while not self._is_enough and not self.unexpected:
                await asyncio.sleep(chance.uniform(0, PAUSE_SECONDS_MAX))
                client = chance.choice(clients)
                found = (await client.get(path)).json
                for version in found["spec"]["versions"]:
                    version["storage"] = not version["storage"]
                reply = await client.put(path, found)
                if reply.status == 200:
                    self.switches += 1
                elif reply.status not in (409, 503):
                    self.unexpected.append(f"the switch: {reply.status} {reply.message}")
        finally:
            for client in clients:
                await client.close()


def test_stopped_webhook(stage: Stage, webhook: WebhookThread, group: str) -> None:
    """Without its webhook a kind is served in its storage version, and refused in the other one
    with a clear error; all other kinds work, and this one when the webhook is back."""
    webhook.stop()
    old, new = stage.place.path("v1"), stage.place.path("v2")
    name = object_name(0)
    for server in stage.servers:
        assert len(json.loads(server.get(old)[1])["items"]) >= COUNT
        for method, path, body in (
            ("POST", old, gadget(stage.place, f"old-{server.port}")),
            ("GET", f"{old}/{name}", None),
            ("PUT", f"{old}/{name}", json.loads(server.get(f"{old}/{name}")[1])),
        ):
            code, answer = server.request(method, path, body)
            assert code in (200, 201), answer
        for method, path, body in (
            ("POST", new, gadget(stage.place, "new", version="v2")),
            ("GET", f"{new}/{name}", None),
            ("GET", new, None),
        ):
            code, answer = server.request(method, path, body)
            assert code == 500, answer
            assert f"conversion webhook for {group}/" in json.loads(answer)["message"]
    use_others(stage)
    webhook.restart()
    for server in stage.servers:
        found = json.loads(server.get(new)[1])["items"]
        assert len(found) == COUNT + 2
        assert all("paint" in each["spec"] for each in found)


def test_deleted_without_its_webhook(stage: Stage, webhook: WebhookThread) -> None:
    """A kind whose webhook is stopped can be deleted, in whatever version its objects are
    stored; and so can a namespace with such objects."""
    space = f"{stage.place.group.replace('.', '-')}-space"
    stage.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    inside = stage.place.path("v1").replace("/default/", f"/{space}/")
    stage.ask("POST", inside, gadget(stage.place, "inside"))
    stage.flip("v2")
    stage.wait_agreed("v2")
    writer = stage.ids()[stage.servers[0].port]
    new = gadget(stage.place, "new", version="v2", writer=writer)
    stage.ask("POST", stage.place.path("v2"), new)
    webhook.stop()
    stage.ask("DELETE", f"/api/v1/namespaces/{space}")
    stage.wait(lambda: stage.answer("GET", f"/api/v1/namespaces/{space}")[0] == 404, "it goes")
    assert stage.trace().left == {"v1": COUNT, "v2": 1}
    stage.undefine()
    for server in stage.servers:
        stage.wait(
            lambda server=server: server.get(stage.place.path("v2"))[0] == 404,  # type: ignore[misc]
            "nobody serves it",
        )
    trace = stage.trace()
    assert (trace.left, trace.listed) == ({}, ())
