"""The audit log of requests that are refused while they are read: one event each, however long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.conformance.api.servers import NS, OTHER_TOKEN, TOKEN
from tests.conformance.api.test_audit import METADATA, Audited, Event, audited

WAIT_SECONDS: Final = 10.0
EVENT_BYTES_MAX: Final = 8 * 1024
DEFAULT: Final = ({"level": "None", "verbs": ["get", "list", "watch"]}, METADATA)
HOST: Final = "Host: localhost"
JANE: Final = f"Authorization: Bearer {OTHER_TOKEN}"


async def ask(server: Audited, data: bytes) -> tuple[int, str]:
    """Send bytes on a connection of their own: the status and the audit ID of the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.running.port)
    writer.write(data)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    finally:
        writer.close()
    mark = head.partition("\r\nAudit-Id: ")[2].partition("\r\n")[0]
    return int(head[9:12]), mark


def request(line: str, *lines: str) -> bytes:
    return "\r\n".join([line, *lines, "", ""]).encode("latin-1")


def only(events: list[Event]) -> Event:
    (event,) = events
    return event


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/../secrets",
        "/api/v1/%2e%2e/secrets",
        "//api/v1/secrets",
        "/api/v1/namespaces/a%2fb/secrets",
        "/api/v1/./secrets",
        "/api/v1/%ff",
    ],
)
async def test_invalid_paths_are_recorded_with_their_sender(tmp_path: Path, path: str) -> None:
    """Whatever the policy says of reads, since no rule can match such a path."""
    async with audited(tmp_path, *DEFAULT) as server:
        code, mark = await ask(server, request(f"GET {path}?token=s3 HTTP/1.1", HOST, JANE))
        event = only(server.events())
    assert code == event["responseStatus"]["code"] == 400
    assert (event["stage"], event["level"]) == ("ResponseComplete", "Metadata")
    assert (event["verb"], event["requestURI"]) == ("get", f"{path}?token=REDACTED")
    assert event["user"]["username"] == "jane"
    assert event["auditID"] == mark != ""
    assert event["sourceIPs"] == ["127.0.0.1"]


async def test_the_sender_of_an_invalid_path_counts(tmp_path: Path) -> None:
    """A connection whose first request has an invalid path is one of its authenticated sender, and
    no longer counts when it has ended."""
    async with audited(tmp_path, *DEFAULT) as server:
        classes = server.running.listener._shared.classes
        reader, writer = await asyncio.open_connection("127.0.0.1", server.running.port)
        writer.write(request("GET /api/v1/./secrets HTTP/1.1", HOST, JANE))
        async with asyncio.timeout(WAIT_SECONDS):
            await reader.readuntil(b"\r\n\r\n")
            assert (classes.by_user, classes.unauthenticated) == ({"jane": 1}, 0)
            writer.close()
            while classes.by_user:  # noqa: ASYNC110 - the end of a connection has no event
                await asyncio.sleep(0.005)
    assert (classes.authenticated, classes.unauthenticated, classes.privileged) == (0, 0, 0)


@pytest.mark.parametrize(
    ("lines", "user"),
    [
        ((), {"username": "system:anonymous", "groups": ["system:unauthenticated"]}),
        (("Authorization: Bearer wrong",), {}),
    ],
)
async def test_the_sender_of_an_invalid_path_may_be_unknown(
    tmp_path: Path, lines: tuple[str, ...], user: dict[str, Any]
) -> None:
    """The response is the same 400, so that it does not tell which tokens are valid."""
    async with audited(tmp_path, *DEFAULT) as server:
        code, _ = await ask(server, request("POST /api//v1 HTTP/1.1", HOST, *lines))
        event = only(server.events())
    assert code == event["responseStatus"]["code"] == 400
    assert event["user"] == user


BAD_HEADS: Final = (
    (400, "get", "/version", request("GET /version HTTP/1.1", HOST, JANE, f"{JANE}x")),
    (400, "get", "/version", request("GET /version HTTP/1.1", HOST, JANE, JANE)),
    (400, "get", "/version", request("GET /version HTTP/1.1", HOST, HOST)),
    (400, "post", f"{NS}/pods", request(f"POST {NS}/pods HTTP/1.1", HOST, "Content-Length: x")),
    (400, "get", "/version", request("GET /version HTTP/1.1", HOST, "a b: c")),
    (405, "trace", "/x", request("TRACE /x HTTP/1.1", HOST)),
    (400, "", "", b"\x16\x03\x01 hello\r\n\r\n"),
    (400, "", "", request("GET /a b HTTP/1.1", HOST)),
    (431, "get", "/long", request("GET /long HTTP/1.1", HOST, "X: " + "y" * 70_000)),
    (414, "get", None, request(f"GET /{'z' * 70_000} HTTP/1.1", HOST)),
)


@pytest.mark.parametrize(("code", "verb", "uri", "data"), BAD_HEADS)
async def test_malformed_requests_are_recorded(
    tmp_path: Path, code: int, verb: str, uri: str | None, data: bytes
) -> None:
    """A head that the HTTP parser refuses gets one event of limited size, with its first line if
    that is valid."""
    async with audited(tmp_path, *DEFAULT) as server:
        answered, mark = await ask(server, data)
        event = only(server.events())
    assert answered == event["responseStatus"]["code"] == code
    assert event["auditID"] == mark != ""
    assert event["user"] == {}
    assert len(orjson.dumps(event)) < EVENT_BYTES_MAX
    if uri is not None:
        assert (event["verb"], event["requestURI"]) == (verb, uri)


async def test_a_second_authorization_header_is_refused(tmp_path: Path) -> None:
    """Two credentials are ambiguous, even if the first one is valid; one is accepted."""
    async with audited(tmp_path, METADATA) as server:
        admin = f"Authorization: Bearer {TOKEN}"
        for lines, code in (((admin,), 200), ((admin, admin), 400), ((admin, JANE), 400)):
            target = f"GET {NS}/configmaps HTTP/1.1"
            assert (await ask(server, request(target, HOST, *lines)))[0] == code


async def test_a_policy_that_records_nothing_records_no_refusal(tmp_path: Path) -> None:
    """With level None for everything the log stays empty."""
    async with audited(tmp_path, {"level": "None"}) as server:
        await ask(server, request("GET /a//b HTTP/1.1", HOST))
        await ask(server, BAD_HEADS[0][3])
        assert server.events() == []


async def test_invalid_paths_without_a_credential_are_throttled(tmp_path: Path) -> None:
    """The connection of an unauthenticated client is slowed down after some of them, as for
    other rejections; so the log does not grow faster than by those."""
    async with audited(tmp_path, *DEFAULT) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.running.port)
        counters = server.running.listener.counters
        async with asyncio.timeout(WAIT_SECONDS):
            while counters.requests_slowed == 0:
                writer.write(request("GET /a//b HTTP/1.1", HOST))
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(size)
        writer.close()
        assert len(server.events()) == counters.requests_total - 1
