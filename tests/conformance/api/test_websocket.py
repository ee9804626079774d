"""Watches over WebSockets, as browsers open them: handshake, events, and closing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import pytest_asyncio

from restow.request.limits import InFlightOptions, RequestLimits
from restow.storage.memory import MemoryStorage
from tests.conformance.api.servers import (
    CONFIG_MAPS,
    OTHER_TOKEN,
    TOKEN,
    RunningServer,
    config_map,
    start_server,
)
from tests.conformance.api.websockets import (
    ASKED,
    BINARY,
    CLOSE,
    KEY,
    ORIGIN,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    VERSION,
    Socket,
    client_frame,
)

WATCH = f"{CONFIG_MAPS}?watch=1"
TABLE = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PROTOBUF = "Accept: application/vnd.kubernetes.protobuf;stream=watch"
BEARER = "base64url.bearer.authorization.k8s.io."

Open = Callable[..., Awaitable[Socket]]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    """An in-memory server with a namespace."""
    storage = MemoryStorage()
    limits = RequestLimits(in_flight=InFlightOptions(streams_per_user_max=2))
    made = await start_server(storage, limits=limits)
    await made.client.post("/api/v1/namespaces", {"metadata": {"name": "default"}})
    yield made
    await made.stop()
    await storage.close()


@pytest_asyncio.fixture
async def open_socket(server: RunningServer) -> AsyncIterator[Open]:
    """Opens WebSockets, or attempts to; they are closed with the test."""
    opened: list[Socket] = []

    async def one(target: str = WATCH, *lines: str, **options: str | bytes | None) -> Socket:
        socket = await Socket.ask(server.port, target, *(lines or ASKED), **options)  # type: ignore[arg-type]
        opened.append(socket)
        return socket

    yield one
    for socket in opened:
        await socket.leave()


def protocols(token: str, *others: str) -> str:
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return "Sec-WebSocket-Protocol: " + ", ".join([BEARER + encoded, *others])


async def test_each_event_is_a_frame(server: RunningServer, open_socket: Open) -> None:
    """Existing objects and changes are sent as text, one event per frame; timeoutSeconds ends
    with a normal close."""
    api = server.client
    await api.post(CONFIG_MAPS, config_map("a", {"k": "é" * 100}))
    await api.post(CONFIG_MAPS, config_map("b", {"k": "x" * 70_000}))
    socket = await open_socket(f"{WATCH}&timeoutSeconds=1&allowWatchBookmarks=true")
    assert socket.status == 101
    assert socket.headers["upgrade"] == "websocket"
    assert socket.headers["connection"] == "Upgrade"
    assert socket.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert "sec-websocket-protocol" not in socket.headers
    first, second, mark = [await socket.event() for _ in range(3)]
    assert first["object"]["data"] == {"k": "é" * 100}
    assert (second["type"], second["object"]["metadata"]["name"]) == ("ADDED", "b")
    assert mark["type"] == "BOOKMARK"
    await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"k": "w"}))
    await api.delete(f"{CONFIG_MAPS}/b")
    assert [(await socket.event())["type"] for _ in range(3)] == ["MODIFIED", "DELETED", "BOOKMARK"]
    assert await socket.closed() == 1000
    socket.send(client_frame(CLOSE, b"\x03\xe8"))
    assert await socket.frame() is None


async def test_other_forms(server: RunningServer, open_socket: Open) -> None:
    """Tables and metadata are sent in events as usual; protobuf is sent in binary frames,
    without a length prefix."""
    await server.client.post(CONFIG_MAPS, config_map("a", {"k": "v"}))
    table = await (await open_socket(WATCH, *ASKED, TABLE)).event()
    assert (table["object"]["kind"], table["object"]["rows"][0]["cells"][0]) == ("Table", "a")
    partial = await (await open_socket(WATCH, *ASKED, PARTIAL)).event()
    assert partial["object"]["kind"] == "PartialObjectMetadata"
    message = await (await open_socket(WATCH, *ASKED, PROTOBUF)).frame()
    assert message is not None
    assert message[0] == BINARY
    assert message[1].startswith(b"\x0a\x05ADDED\x12")
    assert b"k8s\x00" in message[1]


@pytest.mark.parametrize(
    ("lines", "status", "said"),
    [
        ((*UPGRADE, VERSION, KEY), 403, "Origin"),
        ((*UPGRADE, VERSION, KEY, "Origin: null"), 403, "Origin"),
        ((*UPGRADE, VERSION, KEY, "Origin: :::"), 403, "Origin"),
        ((*UPGRADE, KEY, ORIGIN), 400, "Version"),
        ((*UPGRADE, KEY, ORIGIN, "Sec-WebSocket-Version: 8"), 400, "Version"),
        ((*UPGRADE, VERSION, ORIGIN), 400, "challenge"),
        ((*ASKED, "Sec-WebSocket-Protocol: one, two"), 400, "at most one WebSocket subprotocol"),
        ((*ASKED, "Sec-WebSocket-Protocol: a/b"), 400, "must be a token"),
    ],
)
async def test_handshakes_that_are_refused(
    open_socket: Open, lines: tuple[str, ...], status: int, said: str
) -> None:
    """An invalid handshake gets a Status with the reason, and the supported version."""
    socket = await open_socket(WATCH, *lines)
    assert socket.status == status
    assert said.encode() in socket.body
    assert (socket.headers.get("sec-websocket-version") == "13") is (said == "Version")


async def test_requests_that_are_no_websocket_handshake(open_socket: Open) -> None:
    """An upgrade of another request than a watch, to another protocol, over HTTP/1.0, or without
    `Connection: upgrade` is an ordinary request."""
    for target in (CONFIG_MAPS, "/healthz", "/api/v1/namespaces/default", f"{WATCH[:-1]}0"):
        assert (await open_socket(target)).status == 200
    h2c = await open_socket(WATCH, "Connection: Upgrade", "Upgrade: h2c", VERSION, KEY, ORIGIN)
    assert (h2c.status, h2c.headers["transfer-encoding"]) == (200, "chunked")
    bare = await open_socket(WATCH, "Upgrade: websocket", VERSION, KEY, ORIGIN)
    assert (bare.status, bare.headers["transfer-encoding"]) == (200, "chunked")
    await h2c.leave()
    await bare.leave()
    old = await open_socket(f"{WATCH}&timeoutSeconds=1", *ASKED, version="1.0")
    assert old.status == 200
    wrong = await open_socket(f"{WATCH}&resourceVersion=x")
    assert (wrong.status, b"BadRequest" in wrong.body) == (400, True)


async def test_a_token_among_the_protocols(open_socket: Open) -> None:
    """A browser sends its token as a subprotocol; the response selects the other one, never the
    token. An invalid token, a missing permission, or no other subprotocol is refused as usual."""
    socket = await open_socket(WATCH, *ASKED, protocols(TOKEN, "watch.example"), token=None)
    assert socket.status == 101
    assert socket.headers["sec-websocket-protocol"] == "watch.example"
    for line, status in (
        (protocols(TOKEN), 401),
        (protocols("no such token", "x"), 401),
        (protocols(OTHER_TOKEN, "x"), 403),
        ("Sec-WebSocket-Protocol: x", 403),
        (protocols(TOKEN, "x", "y"), 400),
    ):
        assert (await open_socket(WATCH, *ASKED, line, token=None)).status == status


async def test_frames_of_a_client(server: RunningServer, open_socket: Open) -> None:
    """A ping gets a pong, also one sent with the handshake; messages are ignored; a close is
    answered with its own code."""
    socket = await open_socket(WATCH, *ASKED, early=client_frame(PING, b"early"))
    assert await socket.frame() == (PONG, b"early")
    socket.send(client_frame(TEXT, b"hello") + client_frame(PING, b"1") + client_frame(PING, b"2"))
    assert await socket.frame() == (PONG, b"2")
    await server.client.post(CONFIG_MAPS, config_map("a"))
    assert (await socket.event())["type"] == "ADDED"
    socket.send(client_frame(CLOSE, b"\x0b\xb9bye"))
    assert await socket.closed() == 3001
    assert await socket.frame() is None


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x81\x00", 1002),
        (b"\x09\x80aaaa", 1002),
        (b"\x89\xfe\x00\x80aaaa", 1002),
        (b"\x81\xff\x00\x00\x00\x01\x00\x00\x00\x00", 1009),
        (client_frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (client_frame(TEXT) * 1_001, 1008),
    ],
)
async def test_clients_that_break_the_rules(
    server: RunningServer, open_socket: Open, sent: bytes, code: int
) -> None:
    """No mask, fragmented or oversized control frames, oversized messages, invalid text, too
    much at once: the close code says which, and the watch ends."""
    socket = await open_socket(WATCH, *ASKED, early=sent)
    assert await socket.closed() == code
    assert await socket.frame() is None
    assert server.assembly.app.in_flight.streams.taken == 0


async def test_it_counts_as_a_watch(server: RunningServer, open_socket: Open) -> None:
    """They share the limit of watches per user; closing or disconnecting frees a slot."""
    await server.client.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "jane"},
            "subjects": [{"kind": "User", "name": "jane"}],
            "roleRef": {"kind": "ClusterRole", "name": "everything"},
        },
    )
    await server.client.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "metadata": {"name": "everything"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        },
    )
    room = server.assembly.app.in_flight.streams
    sockets = [await open_socket(token=OTHER_TOKEN) for _ in range(2)]
    assert [socket.status for socket in sockets] == [101, 101]
    assert (await open_socket(token=OTHER_TOKEN)).status == 429
    sockets[0].send(client_frame(CLOSE))
    await until(lambda: room.taken == 1)
    assert (await open_socket(token=OTHER_TOKEN)).status == 101
    await sockets[1].leave()
    await until(lambda: room.taken == 1)


async def test_a_slow_reader_gets_410(server: RunningServer, open_socket: Open) -> None:
    """Events are not buffered for a slow reader: when the ring has wrapped, the last event is
    410."""
    api = server.client
    await api.get(CONFIG_MAPS)
    cache = server.assembly.caches.ready("/registry/configmaps/")
    assert cache is not None
    cache._changes_max = 8
    made = await api.post(CONFIG_MAPS, config_map("a", {"v": ""}))
    socket = await open_socket(f"{WATCH}&resourceVersion={made.version}")
    socket.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for i in range(40):
        await api.put(f"{CONFIG_MAPS}/a", config_map("a", {"v": f"{i:07}" * 40_000}))
    socket.send(client_frame(PING) * 100)  # no client reads the responses
    socket.writer.transport.resume_reading()  # type: ignore[attr-defined]
    count = 0
    while (event := await socket.event())["type"] == "MODIFIED":
        count += 1
    assert event["object"]["code"] == 410
    assert 0 < count < 40
    assert await socket.closed() == 1000


async def test_a_server_that_stops(server: RunningServer, open_socket: Open) -> None:
    """A stopping server sends a close with its reason, so that pages can reconnect elsewhere."""
    socket = await open_socket()
    stopping = asyncio.ensure_future(server.listener.stop(grace_seconds=0.1))
    assert await socket.closed() == 1001
    assert await socket.frame() is None
    await stopping
    assert server.assembly.app.in_flight.streams.taken == 0


async def test_another_implementation(server: RunningServer) -> None:
    """A third-party client watches, gets pongs, and closes cleanly."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"http://127.0.0.1:{server.port}{WATCH}"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, headers=headers, origin="http://x", compress=15) as socket,
    ):
        await server.client.post(CONFIG_MAPS, config_map("a"))
        assert (await socket.receive_json())["object"]["metadata"]["name"] == "a"
        await socket.ping()
        await server.client.delete(f"{CONFIG_MAPS}/a")
        assert (await socket.receive_json())["type"] == "DELETED"
        await socket.close()
        assert socket.close_code == 1000
    await until(lambda: server.listener.counters.tunnels_open == 0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event)
            await asyncio.sleep(0.005)
