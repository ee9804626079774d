"""Sign-out: the end of a session on all servers, and of its watches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from restow.aio import Runtime, SimulatedClock, Tasks
from restow.apimachinery import status
from restow.apiserver.ended_sessions import (
    ENDED_PER_USER_MAX,
    FRESH_SECONDS,
    KEPT,
    PREFIX,
    EndedSessions,
)
from restow.authentication.sessions import UNBOUND, SessionPass
from restow.registry.errors import DoAgain
from restow.request.context import User
from restow.storage.drivers import open_storage
from restow.storage.errors import Unavailable
from restow.storage.interface import Revision, Span
from restow.storage.memory import MemoryStorage
from tests.conformance.api.rights import JANE, binding, client_of, freshen, give, place, role, rule
from tests.conformance.api.servers import CONFIG_MAPS, RunningServer, config_map, start_server
from tests.support.api_client import ApiClient
from tests.unit.dashboard.test_paths import open_bundle, session_of, ticket_of

BUNDLED = f"{CONFIG_MAPS}?watch=1&timeoutSeconds=86400"


class UnreachableStorage(MemoryStorage):
    """A store that can be made unreachable."""

    is_reachable = True

    async def revision(self) -> Revision:
        if not self.is_reachable:
            raise Unavailable("the store does not respond")
        return await super().revision()


@pytest_asyncio.fixture
async def storage() -> AsyncIterator[UnreachableStorage]:
    made = UnreachableStorage()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def servers(storage: UnreachableStorage) -> AsyncIterator[list[RunningServer]]:
    """Two servers on one store."""
    made = [await start_server(storage), await start_server(storage)]
    reply = await made[0].client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert reply.status == 201
    yield made
    for each in made:
        await each.stop()


async def test_signing_out_ends_the_session_on_all_servers(servers: list[RunningServer]) -> None:
    """After sign-out at one server, a copy of the cookie is refused by both, and the bundles of
    this session end on both; another session of the same user goes on."""
    one = servers[0]
    await one.client.post(CONFIG_MAPS, config_map("one"))
    anyone = [ApiClient(each.port) for each in servers]
    cookie = await session_of(anyone[0], await ticket_of(one.client))
    other = {"Cookie": await session_of(anyone[0], await ticket_of(one.client))}
    bundles = [await open_bundle(each, BUNDLED, lines=[f"Cookie: {cookie}"]) for each in servers]
    for bundle in bundles:
        assert (await bundle.next())[1]["type"] == "ADDED"
    sent = {"Cookie": cookie}
    for client in anyone:
        assert (await client.get(CONFIG_MAPS, headers=sent)).status == 200
    assert (await anyone[0].request("DELETE", "/dashboard/session", headers=sent)).status == 200
    for client in anyone:
        assert (await client.get(CONFIG_MAPS, headers=sent)).status == 403  # as anonymous
        assert (await client.get("/dashboard/session", headers=sent)).json == {"user": None}
        assert (await client.get(CONFIG_MAPS, headers=other)).status == 200
    for bundle in bundles:
        number, event = await bundle.next()
        assert (number, event["type"], event["object"]["code"]) == (0, "ERROR", 401)
        assert (await bundle.next())[1] == {"type": "END"}
        assert await bundle.is_over()
        bundle.close()
    for each in servers:
        assert len(each.assembly.app.revocation.requests) == 0
    for client in anyone:
        await client.close()


async def test_signing_out_twice_is_no_error(servers: list[RunningServer]) -> None:
    """A second sign-out with the same cookie, at any server, gets a 200 as well."""
    anyone = [ApiClient(each.port) for each in servers]
    cookie = {"Cookie": await session_of(anyone[0], await ticket_of(servers[0].client))}
    for client in (*anyone, *anyone):
        reply = await client.request("DELETE", "/dashboard/session", headers=cookie)
        assert reply.status == 200
    for client in anyone:
        await client.close()


async def test_a_session_is_not_accepted_without_the_store(
    servers: list[RunningServer], storage: UnreachableStorage
) -> None:
    """A server that cannot learn from the store whether a session was ended refuses it with a 503,
    as soon as its last confirmation is too old; sign-out is a 503, not a success."""
    anyone = ApiClient(servers[0].port)
    cookie = {"Cookie": await session_of(anyone, await ticket_of(servers[0].client))}
    assert (await anyone.get("/dashboard/session", headers=cookie)).json["user"] == "admin"
    storage.is_reachable = False
    servers[0].assembly.ended_sessions._fresh_until_seconds = 0.0
    assert (await anyone.get("/api/v1/namespaces", headers=cookie)).status == 503
    assert (await anyone.request("DELETE", "/dashboard/session", headers=cookie)).status == 503
    storage.is_reachable = True
    assert (await anyone.get("/api/v1/namespaces", headers=cookie)).status == 200
    await anyone.close()


async def test_a_session_of_an_impersonated_user_ends_with_the_right_to_impersonate(
    servers: list[RunningServer],
) -> None:
    """Its requests are authorized as the impersonated user; without the right to impersonate they
    get a 403, and its watches end."""
    server = servers[0]
    await server.client.post(CONFIG_MAPS, config_map("one"))
    await give(server, "imp", rule("impersonate", "users groups"))
    made = role("maps", rule("get list watch", "configmaps"))
    await server.client.post(place("clusterroles"), made)
    ann = {**JANE, "name": "ann"}
    await server.client.post(place("clusterrolebindings"), binding("maps", "maps", ann))
    await freshen(server)
    jane, anyone = client_of(server), ApiClient(server.port)
    minted = await jane.request(
        "POST",
        "/dashboard/tickets",
        headers={"Impersonate-User": "ann", "Impersonate-Group": "some"},
    )
    cookie = {"Cookie": await session_of(anyone, minted.json["ticket"])}
    who = (await anyone.get("/dashboard/session", headers=cookie)).json
    assert who["user"] == "ann"
    assert who["expires"]
    assert (await anyone.get(CONFIG_MAPS, headers=cookie)).status == 200
    assert (await anyone.get("/api/v1/secrets", headers=cookie)).status == 403
    nested = await anyone.get(CONFIG_MAPS, headers={**cookie, "Impersonate-User": "bob"})
    assert nested.status == 403
    bundle = await open_bundle(server, BUNDLED, lines=[f"Cookie: {cookie['Cookie']}"])
    assert (await bundle.next())[1]["type"] == "ADDED"
    await server.client.delete(f"{place('clusterrolebindings')}/imp")
    await freshen(server)
    refused = await anyone.get(CONFIG_MAPS, headers=cookie)
    assert refused.status == 403
    assert 'User "jane" cannot impersonate resource "users"' in refused.message
    event = (await bundle.next())[1]
    assert (event["type"], event["object"]["code"]) == ("ERROR", 403)
    assert (await bundle.next())[1] == {"type": "END"}
    assert await bundle.is_over()
    bundle.close()
    await jane.close()
    await anyone.close()


async def test_bundles_need_a_user(servers: list[RunningServer]) -> None:
    """A bundle without a credential is one 401, and no inner request."""
    anyone = ApiClient(servers[0].port)
    targets = "&".join(["watch=/api/v1/pods%3Fwatch=1"] * 10)
    reply = await anyone.get(f"/dashboard/watch?{targets}")
    assert (reply.status, reply.reason) == (401, "Unauthorized")
    await anyone.close()


# The records.


def session(nonce: str, expires: datetime, user: str = "jane") -> SessionPass:
    return SessionPass(User(user), expires, nonce, UNBOUND)


@pytest_asyncio.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks("sessions") as made:
        yield made


async def test_an_answer_is_not_older_than_a_second(
    storage: UnreachableStorage, tasks: Tasks
) -> None:
    """Without a recent confirmation the answer is not given; with one it costs no request."""
    clock = SimulatedClock()
    ended = EndedSessions(storage, Runtime.simulated("fresh", clock=clock))
    await ended.start(tasks)
    with pytest.raises(DoAgain) as lack:
        ended.contains("a")
    await lack.value.settle()
    assert not ended.contains("a")
    await ended.end(session("a", clock.wall() + timedelta(hours=8)))
    assert ended.contains("a")
    await clock.advance(FRESH_SECONDS)
    assert ended.contains("a")
    with pytest.raises(DoAgain):
        ended.contains("b")


async def test_records_are_forgotten_when_they_are_too_old(tasks: Tasks) -> None:
    """The records of expired sessions are deleted when another session is ended."""
    storage = await open_storage("memory:", Runtime.system())
    clock = SimulatedClock()
    ended = EndedSessions(storage, Runtime.simulated("old", clock=clock))
    await ended.start(tasks)
    for number in range(5):
        await ended.end(session(f"old-{number}", clock.wall()))
    await clock.advance(KEPT.total_seconds() + 1)
    await ended.end(session("new", clock.wall()))
    kept = (await storage.range(Span.of_prefix(PREFIX))).items
    assert [item.key for item in kept] == [f"{PREFIX}new"]
    await tasks.close()
    await storage.close()


async def test_one_user_cannot_use_up_the_records(
    storage: UnreachableStorage, tasks: Tasks
) -> None:
    """A user who has ended too many sessions gets a 429; others can end theirs."""
    clock = SimulatedClock()
    ended = EndedSessions(storage, Runtime.simulated("many", clock=clock))
    await ended.start(tasks)
    expires = clock.wall() + timedelta(hours=8)
    for number in range(ENDED_PER_USER_MAX):
        await ended.end(session(f"s-{number}", expires))
    with pytest.raises(status.TooManyRequests):
        await ended.end(session("more", expires))
    await ended.end(session("other", expires, user="ann"))
    await ended.freshen()
    assert ended.contains("other")
    assert not ended.contains("more")
