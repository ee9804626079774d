"""The paths of the dashboard on a whole server: files, tickets, sessions, bundled watches."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
import pytest_asyncio

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.used_tickets import KEPT, PREFIX, UsedTickets
from restow.authentication.sessions import COOKIE, TICKET_SECONDS
from restow.dashboard import load_assets
from restow.httpserver import HttpRequest
from restow.registry.errors import DoAgain
from restow.request.context import User
from restow.storage.drivers import open_storage
from restow.storage.interface import Span
from tests.conformance.api import servers
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    OTHER_TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.conformance.api.websockets import ASKED, KEY, ORIGIN, UPGRADE, VERSION
from tests.support.api_client import ApiClient, Reply

SECONDS_MAX = 10.0


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    storage = await open_storage("memory:", Runtime.system())
    made = await start_server(storage)
    reply = await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    assert reply.status == 201
    yield made
    await made.stop()
    await storage.close()


@pytest_asyncio.fixture
async def anyone(server: RunningServer) -> AsyncIterator[ApiClient]:
    """A client without a credential."""
    client = ApiClient(server.port)
    yield client
    await client.close()


async def ticket_of(client: ApiClient) -> str:
    reply = await client.post("/dashboard/tickets", None)
    assert reply.status == 201
    return str(reply.json["ticket"])


async def session_of(client: ApiClient, ticket: str) -> str:
    """The Cookie header of a session that a ticket was exchanged for."""
    reply = await client.post("/dashboard/session", {"ticket": ticket})
    assert reply.status == 201, reply.body
    return reply.header("set-cookie").partition(";")[0]


# Files.


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/", "/dashboard/login"])
async def test_the_page_needs_no_credential(anyone: ApiClient, path: str) -> None:
    """The page needs no credential, cannot be framed, and loads only from its own server."""
    reply = await anyone.get(path)
    assert reply.status == 200
    assert reply.header("content-type") == "text/html; charset=utf-8"
    assert reply.body == load_assets()["index.html"].body
    policy = reply.header("content-security-policy")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.header("x-content-type-options") == "nosniff"
    assert reply.header("referrer-policy") == "no-referrer"


async def test_files_have_their_types_and_are_not_sent_twice(anyone: ApiClient) -> None:
    """Each file has its media type and ETag; a request with that ETag gets a 304 without a body."""
    for path, asset in load_assets().items():
        reply = await anyone.get(f"/dashboard/static/{path}")
        assert (reply.status, reply.body) == (200, asset.body)
        assert reply.header("content-type") == asset.content_type
        assert reply.header("cache-control") == "no-cache"
        tag = reply.header("etag")
        again = await anyone.get(f"/dashboard/static/{path}", headers={"If-None-Match": tag})
        assert (again.status, again.body) == (304, b"")
        other = await anyone.get(f"/dashboard/static/{path}", headers={"If-None-Match": '"x"'})
        assert other.status == 200


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/dashboard/nothing", 404),
        ("/dashboard/static", 404),
        ("/dashboard/static/", 404),
        ("/dashboard/static/js", 404),
        ("/dashboard/static/../__init__.py", 400),
        ("/dashboard/static/..%2f__init__.py", 400),
        ("/dashboard/static/%2e%2e/assets.py", 400),
        ("/dashboard/static//etc/passwd", 400),
        ("/dashboard/static/js/..%5cmain.js", 404),
        ("/dashboard/static/index.html%00.js", 400),
        ("/dashboardx", 403),
    ],
)
async def test_nothing_else_is_found(anyone: ApiClient, path: str, code: int) -> None:
    """A path with `..` or of an unknown file gets a 404."""
    reply = await anyone.get(path)
    assert reply.status == code
    assert b"import" not in reply.body


async def test_methods_that_a_path_does_not_have_are_refused(server: RunningServer) -> None:
    """A write to the page gets a 405, even from an administrator."""
    for path in ("/dashboard", "/dashboard/watch", "/dashboard/session"):
        assert (await server.client.request("PUT", path)).status == 405
    assert (await server.client.get("/dashboard/tickets")).status == 405


# Tickets and sessions.


async def test_a_ticket_becomes_a_session_once(server: RunningServer, anyone: ApiClient) -> None:
    """A ticket is exchanged once for a cookie with which its user can read."""
    minted = await server.client.post("/dashboard/tickets", None)
    ticket = minted.json["ticket"]
    assert minted.json["url"] == f"https://localhost/dashboard/login#{ticket}"
    assert minted.header("cache-control") == "no-store"
    first = await anyone.post("/dashboard/session", {"ticket": ticket})
    assert (first.status, first.json["user"]) == (201, "admin")
    cookie = {"Cookie": first.header("set-cookie").partition(";")[0]}
    assert (await anyone.get("/api/v1/namespaces", headers=cookie)).status == 200
    who = (await anyone.get("/dashboard/session", headers=cookie)).json
    assert who["user"] == "admin"
    assert who["expires"] == first.json["expires"]
    second = await anyone.post("/dashboard/session", {"ticket": ticket})
    assert second.status == 401
    assert "set-cookie" not in second.headers


async def test_the_user_of_a_ticket_is_shown_before_it_is_used(
    server: RunningServer, anyone: ApiClient
) -> None:
    """A dry run returns the user, sets no cookie, and leaves the ticket valid; an invalid ticket
    gets a 401."""
    ticket = await ticket_of(server.client)
    for _ in range(2):
        shown = await anyone.post("/dashboard/session", {"ticket": ticket, "dryRun": True})
        assert (shown.status, shown.json["user"]) == (200, "admin")
        assert "set-cookie" not in shown.headers
    forged = await anyone.post("/dashboard/session", {"ticket": f"{ticket}x", "dryRun": True})
    assert (forged.status, "user" in forged.json) == (401, False)
    used = await anyone.post("/dashboard/session", {"ticket": ticket})
    assert (used.status, used.json["user"]) == (201, "admin")


async def test_a_session_has_the_permissions_of_the_ticket(
    server: RunningServer, anyone: ApiClient
) -> None:
    """A session has the permissions of the user who requested the ticket."""
    jane = ApiClient(server.port, token=OTHER_TOKEN)
    cookie = {"Cookie": await session_of(anyone, await ticket_of(jane))}
    await jane.close()
    assert (await anyone.get("/dashboard/session", headers=cookie)).json["user"] == "jane"
    assert (await anyone.get("/api/v1/namespaces", headers=cookie)).status == 403


async def test_tickets_need_authentication(server: RunningServer, anyone: ApiClient) -> None:
    """A request without a credential, with a wrong token or with a session gets no ticket."""
    assert (await anyone.post("/dashboard/tickets", None)).status == 403
    wrong = ApiClient(server.port, token="wrong")
    assert (await wrong.post("/dashboard/tickets", None)).status == 401
    await wrong.close()
    cookie = {"Cookie": await session_of(anyone, await ticket_of(server.client))}
    assert (await anyone.request("POST", "/dashboard/tickets", headers=cookie)).status == 403


async def test_service_accounts_get_no_tickets(server: RunningServer) -> None:
    """A service account, also an impersonated one, gets no session: it would outlive its token."""
    name = "system:serviceaccount:default:robot"
    reply = await server.client.request(
        "POST", "/dashboard/tickets", headers={"Impersonate-User": name}
    )
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "a service account cannot open a session" in reply.message


async def test_service_accounts_get_no_tickets_by_impersonation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service account gets no session of a user that it may impersonate."""
    robot = User("system:serviceaccount:default:robot", ("system:masters",))
    secrets = replace(servers.SECRETS, tokens={"robot": robot})
    monkeypatch.setattr(servers, "SECRETS", secrets)
    storage = await open_storage("memory:", Runtime.system())
    server = await start_server(storage)
    client = ApiClient(server.port, token="robot")
    speaking = {"Impersonate-User": "jane"}
    assert (await client.request("GET", "/version", headers=speaking)).status == 200
    reply = await client.request("POST", "/dashboard/tickets", headers=speaking)
    assert (reply.status, reply.reason) == (403, "Forbidden")
    assert "a service account cannot open a session" in reply.message
    await client.close()
    await server.stop()
    await storage.close()


async def test_a_session_cannot_write(server: RunningServer, anyone: ApiClient) -> None:
    """A request with only a cookie cannot create, update or delete."""
    cookie = {"Cookie": await session_of(anyone, await ticket_of(server.client))}
    for method, path in (("POST", CONFIG_MAPS), ("DELETE", f"{CONFIG_MAPS}/one")):
        reply = await anyone.request(method, path, config_map("one"), headers=cookie)
        assert reply.status == 403


async def test_a_bad_cookie_is_none(anyone: ApiClient) -> None:
    """With an invalid cookie the page is served, for a new sign-in, but no data."""
    cookie = {"Cookie": f"{COOKIE}=yesterday.and-elsewhere"}
    assert (await anyone.get("/dashboard", headers=cookie)).status == 200
    assert (await anyone.get("/dashboard/session", headers=cookie)).json == {"user": None}
    assert (await anyone.get("/api/v1/namespaces", headers=cookie)).status == 403


async def test_signing_out_deletes_the_cookie(anyone: ApiClient) -> None:
    """Signing out makes the browser delete the cookie."""
    reply = await anyone.request("DELETE", "/dashboard/session")
    assert reply.status == 200
    assert f"{COOKIE}=; " in reply.header("set-cookie")
    assert "Max-Age=0" in reply.header("set-cookie")


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "code"),
    [
        (b" ", "application/json", {}, 400),
        (b"[1]", "application/json", {}, 400),
        (b'{"ticket": 7}', "application/json", {}, 400),
        (b'{"ticket": "\xff"}', "application/json", {}, 400),
        (b'{"ticket": "' + b"x" * 20_000 + b'"}', "application/json", {}, 400),
        (b'{"ticket": "x.y"}', "application/json", {}, 401),
        (b'{"ticket": "x.y"}', "text/plain", {}, 415),
        (b'{"ticket": "x.y"}', "application/json", {"Origin": "https://evil.example"}, 403),
        (b'{"ticket": "x.y"}', "application/json", {"Origin": "null"}, 403),
        (b'{"ticket": "x.y"}', "application/json", {"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_bad_tickets_are_refused(
    anyone: ApiClient, body: bytes, content_type: str, headers: dict[str, str], code: int
) -> None:
    """An invalid ticket or a cross-origin request is rejected and sets no cookie."""
    reply = await anyone.request(
        "POST", "/dashboard/session", body, content_type=content_type, headers=headers
    )
    assert reply.status == code
    assert "set-cookie" not in reply.headers
    assert reply.json["message"]


async def test_a_ticket_used_at_one_server_is_used_at_all() -> None:
    """A ticket is used once for all servers of a store: of two concurrent uses, one succeeds."""
    storage = await open_storage("memory:", Runtime.system())
    clock = SimulatedClock()
    one = UsedTickets(storage, Runtime.simulated("one", clock=clock))
    two = UsedTickets(storage, Runtime.simulated("two", clock=clock))
    ends = clock.wall()
    assert await one.use("a", ends)
    assert not await two.use("a", ends)
    assert sorted(await asyncio.gather(one.use("b", ends), two.use("b", ends))) == [False, True]
    await storage.close()


async def test_used_tickets_are_forgotten_when_they_are_too_old() -> None:
    """Records of expired tickets are deleted from the store."""
    storage = await open_storage("memory:", Runtime.system())
    clock = SimulatedClock()
    used = UsedTickets(storage, Runtime.simulated("old", clock=clock))
    for number in range(5):
        assert await used.use(f"old-{number}", clock.wall())
    await clock.advance(KEPT.total_seconds() + TICKET_SECONDS)
    assert await used.use("new", clock.wall())
    kept = (await storage.range(Span.of_prefix(PREFIX))).items
    assert [item.key for item in kept] == [PREFIX + "new"]
    await storage.close()


# Watches.


class Bundle:
    """The lines of a response of bundled watches."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lines: list[bytes] = []

    async def next(self) -> tuple[int, Any]:
        """The index of a watch, and its next event."""
        async with asyncio.timeout(SECONDS_MAX):
            while not self._lines:
                size = int(await self._reader.readline(), 16)
                if size == 0:
                    raise StopAsyncIteration
                self._lines += (await self._reader.readexactly(size + 2)).strip().split(b"\n")
        number, _, event = self._lines.pop(0).partition(b" ")
        return int(number), orjson.loads(event)

    async def is_over(self) -> bool:
        try:
            await self.next()
        except StopAsyncIteration:
            return True
        return False

    def close(self) -> None:
        self._writer.close()


async def open_bundle(
    server: RunningServer, *targets: str, token: str | None = None, lines: Sequence[str] = ()
) -> Bundle:
    query = urlencode([("watch", target) for target in targets])
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    credential = [f"Authorization: Bearer {token}"] if token else []
    head_lines = [f"GET /dashboard/watch?{query} HTTP/1.1", "Host: x", *credential, *lines]
    writer.write("\r\n".join([*head_lines, "", ""]).encode())
    async with asyncio.timeout(SECONDS_MAX):
        head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    assert b"application/x-ndjson" in head
    return Bundle(reader, writer)


async def test_watches_share_a_response(server: RunningServer) -> None:
    """One response carries the events of two kinds, each with the index of its watch."""
    bundle = await open_bundle(
        server,
        "/api/v1/namespaces?watch=1",
        f"{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true",
        token="masters-token",
    )
    found = [await bundle.next() for _ in range(2)]
    assert {(number, event["type"]) for number, event in found} == {(0, "ADDED"), (1, "BOOKMARK")}
    await server.client.post(CONFIG_MAPS, config_map("one"))
    number, event = await bundle.next()
    assert (number, event["type"]) == (1, "ADDED")
    assert event["object"]["metadata"]["name"] == "one"
    await server.client.post("/api/v1/namespaces", {"metadata": {"name": "two"}})
    number, event = await bundle.next()
    assert (number, event["object"]["metadata"]["name"]) == (0, "two")
    bundle.close()


async def test_a_watch_that_ends_leaves_the_others(server: RunningServer) -> None:
    """One watch is rejected, one times out, the third continues; then the response ends."""
    bundle = await open_bundle(
        server,
        "/api/v1/nothings?watch=1",
        f"{CONFIG_MAPS}?watch=1&timeoutSeconds=1",
        f"{CONFIG_MAPS}?watch=1&timeoutSeconds=2",
        token="masters-token",
    )
    found = [await bundle.next() for _ in range(4)]
    told = [(number, event["type"], event.get("object", {}).get("code")) for number, event in found]
    assert told == [(0, "ERROR", 404), (0, "END", None), (1, "END", None), (2, "END", None)]
    assert await bundle.is_over()
    bundle.close()


async def test_bundled_watches_are_authorized(server: RunningServer) -> None:
    """Without permission each watch of a bundle is rejected like a single one."""
    bundle = await open_bundle(server, f"{CONFIG_MAPS}?watch=1", token=OTHER_TOKEN)
    number, event = await bundle.next()
    assert (number, event["type"], event["object"]["code"]) == (0, "ERROR", 403)
    assert (await bundle.next())[1]["type"] == "END"
    assert await bundle.is_over()
    bundle.close()


async def test_watches_end_with_their_client(server: RunningServer) -> None:
    """When the client disconnects, all its watches end."""
    bundle = await open_bundle(
        server, "/api/v1/namespaces?watch=1", "/api/v1/namespaces?watch=1", token="masters-token"
    )
    await bundle.next()
    assert sum(map(len, server.assembly.server.fan_outs.values())) == 2
    bundle.close()
    async with asyncio.timeout(SECONDS_MAX):
        while any(map(len, server.assembly.server.fan_outs.values())):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def let_jane_watch(server: RunningServer) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]
    group = "rbac.authorization.k8s.io"
    role = {"metadata": {"name": "watcher"}, "rules": rules}
    binding = {
        "metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "watcher"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
    }
    for path, body in (("clusterroles", role), ("clusterrolebindings", binding)):
        assert (await server.client.post(f"/apis/{group}/v1/{path}", body)).status == 201


async def assert_nothing_is_open(server: RunningServer) -> None:
    """No watch slot, stream, tunnel or watcher is left, and the metric agrees."""
    counters, streams = server.listener.counters, server.assembly.app.in_flight.streams

    def left() -> tuple[int, ...]:
        watchers = sum(map(len, server.assembly.server.fan_outs.values()))
        return streams.taken, counters.streams_open, counters.tunnels_open, watchers

    async with asyncio.timeout(SECONDS_MAX):
        while any(left()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    metrics = (await server.client.get("/metrics")).body.decode()
    assert "\napiserver_longrunning_requests 0.0\n" in metrics


@pytest.mark.parametrize(
    "lines",
    [
        ASKED,
        (*UPGRADE, VERSION, KEY),
        ("connection: upgrade, keep-alive", "UPGRADE: websocket", VERSION, KEY, ORIGIN),
        (*ASKED, "Sec-WebSocket-Protocol: base64.binary.k8s.io"),
        ("Connection: Upgrade", "Upgrade: SPDY/3.1"),
        ("Connection: keep-alive",),
        (),
    ],
)
async def test_bundled_watches_do_not_switch_protocols(
    server: RunningServer, lines: Sequence[str]
) -> None:
    """A request to upgrade the connection is for the outer request only: the inner watches are
    streams, and their slots are released when the client leaves."""
    await let_jane_watch(server)
    await server.client.post(CONFIG_MAPS, config_map("one"))
    targets = [f"{CONFIG_MAPS}?watch=1"] * 2
    bundle = await open_bundle(server, *targets, token=OTHER_TOKEN, lines=lines)
    found = [await bundle.next() for _ in targets]
    assert {(number, event["type"]) for number, event in found} == {(0, "ADDED"), (1, "ADDED")}
    assert server.assembly.app.in_flight.streams.taken == 2
    bundle.close()
    await assert_nothing_is_open(server)


async def test_a_bundle_closes_answers_that_it_cannot_use(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inner watch that is answered with a tunnel is an error on its channel, and its slot is
    released."""
    await let_jane_watch(server)
    monkeypatch.setattr("restow.endpoints.bundle._inner_headers", lambda outer: outer)
    target = f"{CONFIG_MAPS}?watch=1"
    bundle = await open_bundle(server, target, token=OTHER_TOKEN, lines=ASKED)
    number, event = await bundle.next()
    assert (number, event["type"], event["object"]["code"]) == (0, "ERROR", 500)
    bundle.close()
    await assert_nothing_is_open(server)


class NotYet(DoAgain):
    """An error after which the request is retried."""


async def test_bundled_watches_that_are_retried(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inner watch that has to wait, as when a service account must be read again, is answered
    and releases its slot."""
    await let_jane_watch(server)
    await server.client.post(CONFIG_MAPS, config_map("one"))
    authentication = server.assembly.app.access._authentication
    authenticate = authentication.authenticate
    attempts = Counter[str]()

    def authenticate_late(request: HttpRequest) -> User:
        attempts[request.path] += 1
        if request.path == CONFIG_MAPS and attempts[request.path] == 1:
            raise NotYet
        return authenticate(request)

    monkeypatch.setattr(authentication, "authenticate", authenticate_late)
    bundle = await open_bundle(server, f"{CONFIG_MAPS}?watch=1", token=OTHER_TOKEN)
    assert (await bundle.next())[1]["type"] == "ADDED"
    bundle.close()
    await assert_nothing_is_open(server)


@pytest.mark.parametrize(
    "targets",
    [
        [],
        ["/api/v1/namespaces?watch=1"] * 11,
        ["/api/v1/namespaces"],
        ["/dashboard/watch?watch=/api/v1/namespaces"],
        ["/healthz?watch=1"],
        ["https://elsewhere/api/v1/pods?watch=1"],
        ["/api/v1/../v1/pods?watch=1"],
    ],
)
async def test_only_watches_are_bundled(server: RunningServer, targets: list[str]) -> None:
    """No watch, too many watches, or a path that is not a watch gets a 400."""
    query = urlencode([("watch", target) for target in targets])
    reply: Reply = await server.client.get(f"/dashboard/watch?{query}")
    assert reply.status == 400
    assert json.loads(reply.body)["message"]
