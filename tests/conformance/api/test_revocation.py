"""Running watches end when a new request of their sender would be refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from restow.aio import Runtime, SystemClock
from restow.storage.interface import Storage
from tests.conformance.api.rights import binding, client_of, freshen, give, place, role, rule
from tests.conformance.api.servers import CONFIG_MAPS, NS, RunningServer, config_map, start_server
from tests.conformance.api.test_service_accounts import RULES
from tests.conformance.api.websockets import ASKED, WAIT_SECONDS, Socket
from tests.support.api_client import ApiClient, WatchStream

ACCOUNTS = f"{NS}/serviceaccounts"
BOB: dict[str, Any] = {"kind": "ServiceAccount", "name": "bob", "namespace": "default"}
WATCH = f"{CONFIG_MAPS}?timeoutSeconds=86400"


class MovableClock(SystemClock):
    """Real time with an adjustable date."""

    ahead = timedelta(0)

    def wall(self) -> datetime:
        return super().wall() + self.ahead


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """The in-memory store: these tests do not depend on the store."""
    return str(getattr(request, "param", "memory"))


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def server(
    open_store: Callable[[], Awaitable[Storage]], clock: MovableClock
) -> AsyncIterator[RunningServer]:
    """A server with the service account `bob`, who may read ConfigMaps."""
    runtime = replace(Runtime.system(), clock=clock)
    made = await start_server(await open_store(), accounts=RULES, runtime=runtime)
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": "default"}}),
        (ACCOUNTS, {"metadata": {"name": "bob"}}),
        (CONFIG_MAPS, config_map("one")),
        (place("clusterroles"), role("bobs", rule("get list watch", "configmaps"))),
        (place("rolebindings", "default"), binding("bobs", "bobs", BOB)),
    ):
        reply = await made.client.post(path, body)
        assert reply.status == 201, reply.body
    await freshen(made)
    yield made
    await made.stop()


async def token_of_bob(server: RunningServer, **spec: Any) -> str:
    reply = await server.client.post(f"{ACCOUNTS}/bob/token", {"spec": spec})
    assert reply.status == 201, reply.body
    return str(reply.json["status"]["token"])


async def watch_as(server: RunningServer, token: str) -> tuple[ApiClient, WatchStream]:
    client = ApiClient(server.port, token=token)
    stream = await client.watch(WATCH)
    assert (await stream.take(1))[0]["type"] == "ADDED"
    return client, stream


async def check(server: RunningServer) -> None:
    """What the server does every few seconds."""
    await server.assembly.app.revocation.check_all()


def assert_revoked(event: dict[str, Any] | None, code: int, reason: str) -> None:
    assert event is not None
    assert event["type"] == "ERROR"
    error = event["object"]
    assert (error["kind"], error["status"], error["code"]) == ("Status", "Failure", code)
    assert error["reason"] == reason


def registered(server: RunningServer) -> int:
    return len(server.assembly.app.revocation.requests)


async def test_a_watch_ends_with_its_right(server: RunningServer) -> None:
    """After the binding is deleted, the watch gets a 403 as its last event and the stream ends,
    without another request; watches of other users go on."""
    await give(server, "jane", rule("get list watch", "configmaps"), namespace="default")
    jane = client_of(server)
    others, other = await watch_as(server, await token_of_bob(server))
    stream = await jane.watch(WATCH)
    await stream.take(1)
    await server.client.delete(f"{place('rolebindings', 'default')}/jane")
    event = await stream.next()
    assert_revoked(event, 403, "Forbidden")
    assert event is not None
    refused = await jane.get(f"{CONFIG_MAPS}?watch=true")
    assert event["object"]["message"] == refused.message
    assert await stream.next() is None
    assert await other.is_silent()
    assert registered(server) == 1
    await jane.close()
    await others.close()


async def test_a_watch_goes_on_while_it_is_allowed(server: RunningServer) -> None:
    """A change of roles that leaves the right, and any number of checks, do not disturb a watch."""
    client, stream = await watch_as(server, await token_of_bob(server))
    await give(server, "more", rule("list", "pods"), namespace="default")
    for _ in range(3):
        await check(server)
    await server.client.post(CONFIG_MAPS, config_map("two"))
    assert [each["type"] for each in await stream.take(1)] == ["ADDED"]
    await client.close()


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_watch_ends_with_its_account(server: RunningServer, *, is_made_again: bool) -> None:
    """A deleted account ends its watches with a 401, even if one with the same name exists
    again."""
    client, stream = await watch_as(server, await token_of_bob(server))
    await server.client.delete(f"{ACCOUNTS}/bob")
    if is_made_again:
        await server.client.post(ACCOUNTS, {"metadata": {"name": "bob"}})
    await check(server)
    assert_revoked(await stream.next(), 401, "Unauthorized")
    assert await stream.next() is None
    await client.close()


async def test_a_watch_ends_with_the_object_that_its_token_is_bound_to(
    server: RunningServer,
) -> None:
    """Deleting the Secret that a token is bound to ends the watches with this token."""
    secret = await server.client.post(f"{NS}/secrets", {"metadata": {"name": "s"}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
    reference["uid"] = secret.json["metadata"]["uid"]
    client, stream = await watch_as(server, await token_of_bob(server, boundObjectRef=reference))
    await server.client.delete(f"{NS}/secrets/s")
    await check(server)
    assert_revoked(await stream.next(), 401, "Unauthorized")
    await client.close()


async def test_a_watch_ends_with_the_token_in_its_secret(server: RunningServer) -> None:
    """Replacing the token in a token Secret ends the watches with the old one."""
    account = (await server.client.get(f"{ACCOUNTS}/bob")).json["metadata"]
    token = RULES.sign_for_secret("default", ("bob", account["uid"]), "s")
    names = {"kubernetes.io/service-account.name": "bob"}
    secret = {
        "metadata": {"name": "s", "annotations": names},
        "type": "kubernetes.io/service-account-token",
        "stringData": {"token": token},
    }
    assert (await server.client.post(f"{NS}/secrets", secret)).status == 201
    client, stream = await watch_as(server, token)
    await server.client.patch(f"{NS}/secrets/s", {"stringData": {"token": "another"}})
    await check(server)
    assert_revoked(await stream.next(), 401, "Unauthorized")
    await client.close()


async def test_a_watch_ends_when_its_token_expires(
    server: RunningServer, clock: MovableClock
) -> None:
    """An expired token ends its watches, also if the date jumps past the expiry."""
    client, stream = await watch_as(server, await token_of_bob(server, expirationSeconds=600))
    await check(server)
    assert await stream.is_silent()
    clock.ahead = timedelta(hours=2)
    await check(server)
    assert_revoked(await stream.next(), 401, "Unauthorized")
    await client.close()


async def test_a_watch_requests_no_longer_time_than_its_token_has(
    server: RunningServer, clock: MovableClock
) -> None:
    """A watch for a day with a token that is valid for one more second ends cleanly then."""
    token = await token_of_bob(server, expirationSeconds=600)
    clock.ahead = timedelta(seconds=600 + 60 - 1)  # the leeway of tokens is a minute
    client, stream = await watch_as(server, token)
    assert await stream.next() is None
    await client.close()


async def test_a_watch_ends_with_the_right_to_impersonate(server: RunningServer) -> None:
    """A watch as another user ends with a 403 when its sender may not impersonate this user any
    more."""
    await give(server, "imp", rule("impersonate", "serviceaccounts"), namespace="default")
    jane = client_of(server)
    head = {"Impersonate-User": "system:serviceaccount:default:bob"}
    stream = await WatchStream.open(
        server.port, jane._head("GET", f"{WATCH}&watch=true", b"", headers=head)
    )
    await stream.take(1)
    await server.client.delete(f"{place('rolebindings', 'default')}/imp")
    await freshen(server)
    await check(server)
    event = await stream.next()
    assert_revoked(event, 403, "Forbidden")
    assert event is not None
    assert "cannot impersonate" in event["object"]["message"]
    await stream.close()
    await jane.close()


async def test_a_websocket_ends_with_its_right(server: RunningServer) -> None:
    """A watch over a WebSocket gets the 403 as its last message, and then a close frame."""
    token = await token_of_bob(server)
    socket = await Socket.ask(server.port, f"{WATCH}&watch=true", *ASKED, token=token)
    assert socket.status == 101
    assert (await socket.event())["type"] == "ADDED"
    await server.client.delete(f"{place('rolebindings', 'default')}/bobs")
    await freshen(server)
    await check(server)
    assert_revoked(await socket.event(), 403, "Forbidden")
    assert await socket.closed() == 1000
    await socket.leave()


async def test_a_watch_in_protobuf_ends_with_its_right(server: RunningServer) -> None:
    """A watch in protobuf gets an ERROR event in protobuf."""
    client = ApiClient(server.port, token=await token_of_bob(server))
    accept = "application/vnd.kubernetes.protobuf"
    stream = await client.watch(WATCH, accept=accept)
    assert await stream.frame() is not None
    await server.client.delete(f"{place('rolebindings', 'default')}/bobs")
    await freshen(server)
    await check(server)
    event = await stream.frame()
    assert event is not None
    assert b"ERROR" in event
    assert b"Forbidden" in event
    assert await stream.frame() is None
    await client.close()


async def test_equal_requests_are_checked_once(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten watches with one token cost one authentication, and one authorization for each distinct
    question."""
    token = await token_of_bob(server)
    clients = [(await watch_as(server, token))[0] for _ in range(8)]
    for name in ("a", "b"):
        client = ApiClient(server.port, token=token)
        await client.watch(f"{WATCH}&fieldSelector=metadata.name%3D{name}")
        clients.append(client)
    access = server.assembly.app.access
    counts = {"authenticate_again": 0, "authorize": 0}
    for name in counts:
        check_one = getattr(access, name)

        def counted(*args: Any, name: str = name, check_one: Any = check_one) -> Any:
            counts[name] += 1
            return check_one(*args)

        monkeypatch.setattr(access, name, counted)
    assert registered(server) == 10
    await check(server)
    assert counts == {"authenticate_again": 1, "authorize": 3}
    for client in clients:
        await client.close()


# The registry on a server.

HEADS = {
    "watch": (f"{WATCH}&watch=true", "1.1", ()),
    "watch with bookmarks": (f"{WATCH}&watch=true&allowWatchBookmarks=true", "1.1", ()),
    "old watch": ("/api/v1/watch/namespaces/default/configmaps", "1.1", ()),
    "HTTP/1.0": (f"{WATCH}&watch=true", "1.0", ()),
    "expired version": (f"{WATCH}&watch=true&resourceVersion=1", "1.1", ()),
    "short": (f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1", "1.1", ()),
    "websocket": (f"{WATCH}&watch=true", "1.1", ASKED),
    "bundle": (f"/dashboard/watch?watch={quote(f'{WATCH}&watch=true')}", "1.1", ()),
    "bundle of what is refused": (
        f"/dashboard/watch?watch={quote('/api/v1/secrets?watch=1')}&watch={quote(WATCH)}%26watch=1",
        "1.1",
        (),
    ),
    "bundle with an upgrade": (
        f"/dashboard/watch?watch={quote(f'{WATCH}&watch=true')}",
        "1.1",
        ASKED,
    ),
}
ENDS = ("close", "abort", "abort at once", "half-close", "revoke", "stop")


@pytest.mark.parametrize("end", ENDS)
async def test_the_registry_is_empty_after_every_end(server: RunningServer, end: str) -> None:
    """Whatever kind of long-running request it is, and however it ends, it leaves the registry and
    releases its slot."""
    token = await token_of_bob(server)
    writers = []
    for path, version, lines in HEADS.values():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        first = f"GET {path} HTTP/{version}"
        head = [first, "Host: localhost", f"Authorization: Bearer {token}", *lines]
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        if end == "abort at once":
            writer.transport.abort()
        else:
            async with asyncio.timeout(WAIT_SECONDS):
                assert (await reader.readline()).split(b" ")[1] in (b"200", b"101"), path
        writers.append(writer)
    if end == "revoke":
        await server.client.delete(f"{ACCOUNTS}/bob")
        await check(server)
    elif end == "stop":
        await server.listener.stop(grace_seconds=1)
    elif end == "half-close":
        for writer in writers:
            writer.write_eof()
    for writer in writers if end in ("close", "abort") else ():
        if end == "abort":
            writer.transport.abort()
        else:
            writer.close()
    app = server.assembly.app
    async with asyncio.timeout(WAIT_SECONDS):
        while registered(server) or app.in_flight.streams.taken:  # noqa: ASYNC110 - any end
            await asyncio.sleep(0.01)
    assert app.revocation.requests.senders() == []
    for writer in writers:
        writer.transport.abort()
