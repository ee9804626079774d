"""The fast path: requests whose bytes are all cached, handled before anything is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from restow.aio import InvariantViolation
from restow.httpserver import Headers, HttpRequest, Quick, RequestLine
from restow.httpserver.reader import LINE_BYTES_KEPT_MAX, LINES_KEPT_MAX, RequestLineCache
from tests.unit.httpserver.conftest import Client, Harness, Recorder, request_bytes, until

HEADERS = b"Content-Type: text/plain\r\n"


class Quickly:
    """Records its calls, or declines, or raises."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: BaseException | None = None
        self.declines = False

    def answer_of(
        self, line: RequestLine, headers: Headers, _received: float
    ) -> tuple[bytes, bytes] | None:
        self.asked.append(f"{line.method} {line.path}?{line.query} {headers.get('x-who')}")
        if self.error is not None:
            raise self.error
        return None if self.declines else (b"X-Own: line\r\n", b"quick")


class Knowing(Recorder):
    """An application that authenticates every client."""

    def __call__(self, request: HttpRequest) -> Any:
        request.peer.admit("someone", is_privileged=False)
        return super().__call__(request)


async def start(harness: Harness) -> Quickly:
    quickly = Quickly()
    harness.app = Knowing()
    await harness.start(quick=Quick(quickly.answer_of, HEADERS))
    return quickly


async def ask(client: Client, path: str = "/a?b=c", who: str = "me") -> bytes:
    client.get(path, f"X-Who: {who}")
    answer = await client.answer()
    assert answer.status == 200
    return answer.body


async def test_a_cached_request_takes_the_fast_path(harness: Harness) -> None:
    """The first request takes the normal path; when line and headers are cached, the fast path
    responds alike."""
    quickly = await start(harness)
    client = await harness.connect()
    usual = [await ask(client) for _ in range(2)]
    assert usual == [b"/a|"] * 2
    client.get("/a?b=c", "X-Who: me")
    answer = await client.answer()
    assert answer.body == b"quick"
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["x-own"] == "line"
    assert answer.headers["content-length"] == "5"
    assert "date" in answer.headers
    assert quickly.asked == ["GET /a?b=c me"]
    assert harness.listeners[-1].counters.requests_total == 3
    assert len(harness.app.seen) == 2


async def test_cached_lines_are_shared_by_connections(harness: Harness) -> None:
    """A line cached from one connection is used on another, with the headers of that connection."""
    quickly = await start(harness)
    first, second = await harness.connect(), await harness.connect()
    for _ in range(2):
        await ask(first, who="first")
    await ask(second, "/other", who="second")
    assert await ask(second, who="second") == b"quick"
    assert quickly.asked == ["GET /a?b=c second"]


async def test_unauthenticated_requests_take_the_normal_path(harness: Harness) -> None:
    """Requests of an unauthenticated connection wait for the work budget."""
    quickly = Quickly()
    await harness.start(quick=Quick(quickly.answer_of, HEADERS))
    client = await harness.connect()
    assert [await ask(client) for _ in range(4)] == [b"/a|"] * 4
    assert quickly.asked == []


async def test_other_headers_and_lines_take_the_normal_path(harness: Harness) -> None:
    """A difference of one byte is not a cache hit; a pipelined pair is two requests."""
    quickly = await start(harness)
    client = await harness.connect()
    for _ in range(2):
        await ask(client)
    assert await ask(client, who="you") == b"/a|"
    assert await ask(client, "/a?b=d", who="you") == b"/a|"
    one = request_bytes("GET", "/a?b=c", "X-Who: you")
    client.send(one + one)
    assert [(await client.answer()).body for _ in range(2)] == [b"/a|", b"/a|"]
    client.send(request_bytes("POST", "/a?b=c", "X-Who: you", body=b"body"))
    assert (await client.answer()).body == b"/a|body"
    assert quickly.asked == []


@pytest.mark.parametrize("error", [None, RuntimeError("no")])
async def test_declined_requests_take_the_normal_path(
    harness: Harness, error: Exception | None
) -> None:
    """If the fast path returns None or raises, the client gets the response of the normal path."""
    quickly = await start(harness)
    quickly.declines, quickly.error = True, error
    client = await harness.connect()
    assert [await ask(client) for _ in range(4)] == [b"/a|"] * 4
    assert len(quickly.asked) == 2


async def test_an_invariant_violation_on_the_fast_path_ends_the_process(harness: Harness) -> None:
    """It is reported as on the normal path."""
    quickly = await start(harness)
    ended: list[InvariantViolation] = []
    harness.listeners[-1]._shared.fatal = ended.append
    client = await harness.connect()
    for _ in range(2):
        await ask(client)
    quickly.error = InvariantViolation("broken")
    client.get("/a?b=c", "X-Who: me")
    await until(lambda: bool(ended))


async def test_a_stopping_listener_disables_the_fast_path(harness: Harness) -> None:
    """The last response of a connection has `Connection: close`."""
    quickly = await start(harness)
    client = await harness.connect()
    for _ in range(2):
        await ask(client)
    harness.listeners[-1]._shared.begin_stop()
    client.get("/a?b=c", "X-Who: me")
    answer = await client.answer()
    assert (answer.body, answer.headers["connection"]) == (b"/a|", "close")
    assert quickly.asked == []


def test_the_line_cache_is_bounded() -> None:
    """The cache of lines is bounded, in number and in size of lines."""
    lines = RequestLineCache()
    for number in range(2 * LINES_KEPT_MAX + 1):
        lines.note(b"%d" % number, RequestLine("GET", "/", ""))
        assert len(lines.known) <= LINES_KEPT_MAX
    lines.note(b"x" * (LINE_BYTES_KEPT_MAX + 1), RequestLine("GET", "/", ""))
    assert len(lines.known) == 1
