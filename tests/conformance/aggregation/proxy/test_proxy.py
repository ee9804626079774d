"""Requests for an aggregated API reach its backend, and its responses return unchanged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest

from restow.aggregator.pools import BackendLimits
from restow.aggregator.proxy import ProxyLimits
from restow.aggregator.services import ServiceEndpoint
from restow.endpoints.barrier import WriteBarrier
from restow.registry.resource import Resource
from tests.conformance.aggregation.proxy.conftest import StartRig
from tests.conformance.aggregation.proxy.proxies import FLUNDERS, RawClient, Rig, echoed, wait_until
from tests.conformance.api.servers import OTHER_TOKEN, TOKEN
from tests.support.aggregated_backend import JSON, AggregatedBackend, Asked, BackendConnection
from tests.support.api_client import ApiClient

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_a_request_arrives_as_it_was_sent(rig: Rig) -> None:
    """Method, path, query and body are unchanged, and the server presents its own certificate."""
    target = f"{FLUNDERS}/a%20b?pretty=1&x=%2F&fieldManager=me"
    reply = await rig.server.client.request("PUT", target, b'{"a": 1}')
    assert reply.status == 200
    shown = echoed(reply.body)
    assert (shown["method"], shown["target"], shown["body"]) == ("PUT", target, '{"a": 1}')
    assert shown["user"] == "front-proxy-client"


async def test_an_ambiguous_query_is_encoded_again(rig: Rig) -> None:
    """A `;` or an invalid escape arrives as this server understood it for authorization."""
    reply = await rig.server.client.get(f"{FLUNDERS}?watch=1;limit=2&a=%zz")
    assert echoed(reply.body)["target"] == f"{FLUNDERS}?watch=1%3Blimit%3D2&a=%25zz"


async def test_only_authorized_requests_reach_the_backend(rig: Rig) -> None:
    """Requests are authenticated and authorized here: the backend gets no rejected ones."""
    for token, code in ((OTHER_TOKEN, 403), ("wrong", 401), (None, 403)):
        client = ApiClient(rig.server.port, token=token)
        assert (await client.get(FLUNDERS)).status == code
        await client.close()
    assert rig.backend.asked == []


async def test_other_groups_are_served_here(rig: Rig) -> None:
    """A request for another group or version is not forwarded."""
    assert (await rig.server.client.get("/api/v1/namespaces")).status == 200
    assert (await rig.server.client.get(FLUNDERS.replace("v1", "v2"))).status == 404
    assert rig.backend.asked == []


class Pending:
    """A server that has not registered yet. Implements the barrier's `Registration`."""

    completed = False

    def pending(self, _resource: Resource) -> str:
        return "not yet"


async def test_the_barrier_lets_aggregated_apis_pass(rig: Rig) -> None:
    """While this server is not registered, and rejects writes of its own, writes of an aggregated
    API are forwarded: the aggregated server decides about them."""
    rig.server.assembly.app._barrier = WriteBarrier(Pending())
    own = b'{"metadata": {"name": "a"}}'
    assert (await rig.server.client.request("POST", "/api/v1/namespaces", own)).status == 503
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        reply = await rig.server.client.request(method, f"{FLUNDERS}/a", b"{}")
        assert (reply.status, echoed(reply.body)["method"]) == (200, method)


async def test_answers_come_back_as_they_are(rig: Rig) -> None:
    """Status, headers and compressed bodies are unchanged; hop-by-hop headers are dropped."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        headers = [
            ("Content-Encoding", "gzip"),
            ("X-Own", "1"),
            ("X-Own", "2"),
            ("Connection", "X-Hop"),
            ("X-Hop", "no"),
            ("Keep-Alive", "timeout=5"),
            ("Set-Cookie", "a=b"),
            ("Access-Control-Allow-Origin", "*"),
            ("Date", "never"),
        ]
        await line.answer(b"\x1f\x8bno gzip", status="418 Odd", headers=headers)

    rig.backend.script = script
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.body) == (418, b"\x1f\x8bno gzip")
    assert reply.headers["x-own"] == ["1", "2"]
    assert reply.header("content-encoding") == "gzip"
    gone = {"x-hop", "keep-alive", "set-cookie", "access-control-allow-origin", "connection"}
    assert not gone & set(reply.headers)
    assert len(reply.headers["date"]) == 1
    assert reply.header("date") != "never"


async def test_head_and_answers_without_body(rig: Rig) -> None:
    """A HEAD returns the length of a GET; 204 and 304 have no body."""

    async def script(asked: Asked, line: BackendConnection) -> None:
        if asked.method == "HEAD":
            await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n")
        else:
            await line.write(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")

    rig.backend.script = script
    reply = await rig.server.client.request("HEAD", FLUNDERS)
    assert (reply.status, reply.header("content-length")) == (200, "77")
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.header("etag"), reply.body) == (304, "x", b"")


async def test_connections_are_used_again(rig: Rig) -> None:
    """Many requests use one connection, and a closed one is replaced transparently."""
    for _ in range(5):
        assert (await rig.server.client.get(FLUNDERS)).status == 200
    assert rig.backend.connections == 1
    await rig.backend.stop()
    await rig.backend.listen()
    assert (await rig.server.client.get(FLUNDERS)).status == 200
    assert rig.backend.connections == 2


async def test_a_watch_arrives_before_it_ends(rig: Rig, client: RawClient) -> None:
    """Each piece of a stream is forwarded at once, without waiting for the next."""
    steps: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(CHUNKED)
        while True:
            piece = await steps.get()
            await line.chunk(piece)
            if not piece:
                return

    rig.backend.script = script
    client.ask(f"{FLUNDERS}?watch=true")
    code, headers = await client.head()
    assert (code, headers["transfer-encoding"]) == (200, "chunked")
    for piece in (b'{"n": 1}\n', b'{"n": 2}\n'):
        await steps.put(piece)
        assert await client.chunk() == piece
    await steps.put(b"")
    assert await client.chunk() == b""
    client.ask("/version")
    assert (await client.answer())[0] == 200


async def test_a_long_answer_is_not_kept(rig: Rig, client: RawClient) -> None:
    """A backend is read no faster than the client reads: it cannot send everything at once."""
    sent = 0
    piece = b"x" * 65_536
    count = 400

    async def script(_asked: Asked, line: BackendConnection) -> None:
        nonlocal sent
        await line.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (count * len(piece)))
        for _ in range(count):
            await line.write(piece)
            sent += 1

    rig.backend.script = script
    client.ask(FLUNDERS)
    assert (await client.head())[0] == 200
    first = await client.chunk()
    await wait_until(lambda: sent > 0)
    before = -1
    while before != sent:  # until the backend is blocked
        before = sent
        await asyncio.sleep(0.05)
    assert sent < count
    got = len(first)
    while chunk := await client.chunk():
        got += len(chunk)
    assert (sent, got) == (count, count * len(piece))


async def test_a_client_that_leaves_ends_the_request(rig: Rig) -> None:
    """Whether the response has begun or not, the backend's connection is closed with the
    client's."""
    for is_begun in (False, True):
        rig.backend.reset()

        async def script(_asked: Asked, line: BackendConnection, begin: bool = is_begun) -> None:
            if begin:
                await line.write(CHUNKED)
            await line.closed()

        rig.backend.script = script
        client = await RawClient.connect(rig.server.port)
        client.ask(f"{FLUNDERS}?watch=true")
        await wait_until(lambda: len(rig.backend.asked) == 1)
        if is_begun:
            await client.head()
        await client.close()
        await wait_until(lambda: rig.backend.connections_open == 0)
    await wait_until(lambda: rig.proxy.streams_open == 0)


async def test_a_hanging_backend_delays_no_others(start_rig: StartRig) -> None:
    """Local requests are answered while a backend hangs, which gets only its share of slots."""
    rig = await start_rig(backend_limits=BackendLimits(requests_max=3))
    let_go = asyncio.Event()

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await let_go.wait()
        await line.answer(b"{}", headers=[JSON])

    rig.backend.script = script
    hanging = [await RawClient.connect(rig.server.port) for _ in range(3)]
    for client in hanging:
        client.ask(FLUNDERS)
    await wait_until(lambda: len(rig.backend.asked) == 3)
    for _ in range(5):
        assert (await rig.server.client.get("/api/v1/namespaces")).status == 200
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.reason, reply.header("retry-after")) == (
        429,
        "TooManyRequests",
        "1",
    )
    let_go.set()
    for client in hanging:
        assert (await client.answer())[0] == 200
        await client.close()


async def test_a_dead_backend_is_a_503(rig: Rig) -> None:
    """No listener, no endpoints, and an API known to be unavailable all give a 503."""
    rig.directory.why_not = "FailedDiscoveryCheck"
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.reason, reply.message) == (
        503,
        "ServiceUnavailable",
        "service unavailable",
    )
    rig.directory.why_not = None
    await rig.backend.stop()
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.reason) == (503, "ServiceUnavailable")
    assert reply.message == "error trying to reach service: connection refused"
    rig.services.found = []
    assert (await rig.server.client.get(FLUNDERS)).status == 503


async def test_another_server_is_tried(rig: Rig) -> None:
    """A server that refuses the connection is skipped, since nothing was sent to it."""
    good = rig.services.found[0]
    listening = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    dead = ServiceEndpoint("127.0.0.1", listening.sockets[0].getsockname()[1])
    listening.close()
    await listening.wait_closed()
    rig.services.found = [dead, good]
    for _ in range(8):
        assert (await rig.server.client.post(FLUNDERS, {})).status == 200


async def test_another_server_answers_for_one_that_has_died(rig: Rig) -> None:
    """A read at a server that crashes meanwhile is repeated at another one."""
    good, dying = rig.services.found[0], AggregatedBackend(rig.backend.files, None)

    async def die(_asked: Asked, line: BackendConnection) -> None:
        assert dying._server is not None
        dying._server.close()
        line.abort()

    for _ in range(8):  # the server is selected at random
        await dying.listen()
        rig.services.found = [ServiceEndpoint("127.0.0.1", dying.port)]
        assert (await rig.server.client.get(FLUNDERS)).status == 200
        dying.script = die
        rig.services.found.append(good)
        assert (await rig.server.client.get(FLUNDERS)).status == 200
        await dying.stop()
        dying.reset()


async def test_a_timeout_is_a_503(start_rig: StartRig) -> None:
    """A request to an unresponsive backend times out, and its connection is closed."""
    rig = await start_rig(limits=ProxyLimits(head_seconds_max=0.05))

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.closed()

    rig.backend.script = script
    reply = await rig.server.client.get(FLUNDERS)
    assert (reply.status, reply.message) == (
        503,
        "error trying to reach service: the request timed out",
    )
    await wait_until(lambda: rig.backend.connections_open == 0)


async def test_the_clients_own_deadline_counts(rig: Rig) -> None:
    """A timeout requested by the client gives a 504, as for all requests."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.closed()

    rig.backend.script = script
    assert (await rig.server.client.get(f"{FLUNDERS}?timeout=50ms")).status == 504
    await wait_until(lambda: rig.backend.connections_open == 0)


async def test_broken_answers_are_a_503(rig: Rig) -> None:
    """Invalid or ambiguous HTTP is not forwarded."""
    broken = (
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: yes\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: a\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 700 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12",
        b"",
    )
    for answer in broken:

        async def script(_asked: Asked, line: BackendConnection, answer: bytes = answer) -> None:
            await line.write(answer)
            line.writer.close()

        rig.backend.script = script
        reply = await rig.server.client.post(FLUNDERS, {})
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable"), answer[:64]


async def test_an_answer_cut_off_is_cut_off(rig: Rig, client: RawClient) -> None:
    """A truncated body never looks complete to the client."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(CHUNKED)
        await line.chunk(b"some")
        line.abort()

    rig.backend.script = script
    client.ask(FLUNDERS)
    assert (await client.head())[0] == 200
    assert not (await client.rest()).endswith(b"0\r\n\r\n")


async def test_a_stop_waits_for_answers_and_ends_watches(rig: Rig) -> None:
    """A server that stops completes a long response, and ends a watch as at its timeout."""
    more = asyncio.Event()

    async def script(asked: Asked, line: BackendConnection) -> None:
        await line.write(CHUNKED)
        await line.chunk(b"first")
        if "watch" in asked.target:
            await line.closed()
        else:
            await more.wait()
            await line.chunk(b"last")
            await line.chunk(b"")

    rig.backend.script = script
    watching, listing = [await RawClient.connect(rig.server.port) for _ in range(2)]
    watching.ask(f"{FLUNDERS}?watch=1")
    listing.ask(FLUNDERS)
    for each in (watching, listing):
        await each.head()
        assert await each.chunk() == b"first"
    stopping = asyncio.ensure_future(rig.server.listener.stop(grace_seconds=10))
    more.set()
    assert (await listing.chunk(), await listing.chunk()) == (b"last", b"")
    assert await watching.chunk() == b""
    await stopping
    for each in (watching, listing):
        await each.close()


async def test_a_changed_api_gets_other_connections(rig: Rig) -> None:
    """When the Service or the APIService changes, old connections accept no more requests."""
    assert (await rig.server.client.get(FLUNDERS)).status == 200
    rig.services.found = [ServiceEndpoint("localhost", rig.backend.port)]
    assert (await rig.server.client.get(FLUNDERS)).status == 200
    await wait_until(lambda: rig.backend.connections_open == 1)
    rig.directory.api = None
    rig.directory.changed.emit()
    await wait_until(lambda: rig.backend.connections_open == 0)
    assert (await rig.server.client.get(FLUNDERS)).status == 404


async def test_metrics_have_no_text_of_the_client(rig: Rig) -> None:
    """Requests are counted by the API's group and version, whatever resource a client names."""
    for name in ("one", "two", "three"):
        await rig.server.client.get(f"{FLUNDERS[:-8]}{name}/x/{name}")
    metrics = (await rig.server.client.get("/metrics")).body.decode()
    lines = [line for line in metrics.splitlines() if 'group="samples.example.com"' in line]
    assert [line.rpartition(" ")[2] for line in lines if "_total{" in line] == ["3.0"]
    assert 'resource=""' in lines[0]


async def test_trust_is_in_the_bundle_and_the_name(rig: Rig) -> None:
    """A backend whose certificate has another CA, or another name, gets no request."""
    good = rig.api
    client_ca = rig.backend.client_ca_file
    assert client_ca is not None
    for other in (
        replace(good, ca_pem=client_ca.read_text()),
        replace(good, service=replace(good.service, namespace="other")),
        replace(good, ca_pem=None),
        replace(good, ca_pem="no certificate"),
    ):
        rig.directory.api = other
        assert (await rig.server.client.get(FLUNDERS)).status == 503
    assert rig.backend.asked == []
    rig.directory.api = replace(good, ca_pem=None, is_unverified=True)
    assert (await rig.server.client.get(FLUNDERS)).status == 200


async def test_the_token_never_leaves(rig: Rig) -> None:
    """The backend gets the user's attributes, but no credential."""
    reply = await rig.server.client.get(FLUNDERS, headers={"Cookie": "session=s"})
    assert TOKEN.encode() not in reply.body
    assert b"session=s" not in reply.body


async def test_a_205_has_no_body(rig: Rig, client: RawClient) -> None:
    """Bytes that a backend sends after such a response are not treated as the next one."""

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.answer(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", status="205 Reset Content"
        )

    rig.backend.script = script
    client.ask(FLUNDERS)
    code, _, body = await client.answer()
    assert (code, body) == (205, b"")
    client.ask("/version")
    code, headers, _ = await client.answer()
    assert (code, headers["content-type"]) == (200, "application/json")
    await wait_until(lambda: rig.backend.connections_open == 0)


BROWSER_LINES: Final = (
    ("Refresh", "0; url=https://evil.example"),
    ("Content-Security-Policy", "script-src 'unsafe-inline'"),
    ("content-security-policy-report-only", "report-uri https://evil.example"),
    ("X-Frame-Options", "ALLOWALL"),
    ("X-Content-Type-Options", "sniff"),
    ("WWW-Authenticate", 'Basic realm="restow"'),
    ("Link", "</dashboard/session>; rel=preload"),
    ("Service-Worker-Allowed", "/"),
    ("Set-Cookie", "__Host-restow=evil; Path=/; Secure"),
    ("Clear-Site-Data", '"cookies"'),
    ("Access-Control-Allow-Origin", "*"),
    ("Cross-Origin-Opener-Policy", "unsafe-none"),
    ("Speculation-Rules", '"/rules"'),
    ("Reporting-Endpoints", 'main="https://evil.example"'),
)
POLICY: Final = "sandbox; default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize("kind", ["whole", "streamed", "error", "not modified", "upgraded"])
async def test_a_browser_isolates_every_response_of_a_backend(
    rig: Rig, client: RawClient, kind: str
) -> None:
    """Every response has a policy that forbids scripts, and no instruction of the backend to a
    browser."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in BROWSER_LINES)
    heads = {
        "whole": "200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n",
        "streamed": "200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n",
        "error": "401 Unauthorized\r\nContent-Length: 6\r\n",
        "not modified": "304 Not Modified\r\n",
        "upgraded": "101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
    }
    bodies = {"whole": "<html>", "streamed": "6\r\n<html>\r\n0\r\n\r\n", "error": "<html>"}

    async def script(_asked: Asked, line: BackendConnection) -> None:
        await line.write(f"HTTP/1.1 {heads[kind]}{lines}\r\n{bodies.get(kind, '')}".encode())

    rig.backend.script = script
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
    client.ask(FLUNDERS, *(upgrade if kind == "upgraded" else ()))
    code, headers = await client.head()
    assert code == int(heads[kind].split(" ", 1)[0])
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    gone = {name.lower() for name, _ in BROWSER_LINES}
    gone -= {"content-security-policy", "x-content-type-options"}
    assert not gone & set(headers)
