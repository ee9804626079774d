"""Header lines that the application sets for any response to a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from restow.httpserver import (
    HttpRequest,
    HttpResponse,
    PullStream,
    PushStream,
    StreamWriter,
    Tunnel,
    TunnelEnd,
)
from tests.unit.httpserver.conftest import Harness, promised, request_bytes


def _fail(_request: HttpRequest) -> Any:
    raise RuntimeError("no")


def _overdue(request: HttpRequest) -> Any:
    request.answer_by_seconds = request.received_seconds
    return promised()


def _push(_request: HttpRequest) -> Any:
    def start(writer: StreamWriter) -> None:
        writer.write(b"x")
        writer.close()

    return PushStream(200, start)


def _tunnel(_request: HttpRequest) -> Any:
    def start(end: TunnelEnd) -> None:
        end.close()

    return Tunnel(start, b"Upgrade: websocket\r\n")


async def _later() -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(200)


ACTS: list[tuple[Callable[[HttpRequest], Any], int]] = [
    (lambda _: HttpResponse(200), 200),
    (lambda _: HttpResponse(204), 204),
    (lambda _: HttpResponse(200, close=True), 200),
    (lambda _: _later(), 200),
    (lambda _: PullStream(200, iter([b"x"]), length=1), 200),
    (_push, 200),
    (_tunnel, 101),
    (_fail, 500),
    (_overdue, 504),
]


@pytest.mark.parametrize(("act", "status"), ACTS)
async def test_all_answers_have_them(
    harness: Harness, act: Callable[[HttpRequest], Any], status: int
) -> None:
    """Responses, streams, tunnels, and the listener's own errors contain the lines, once."""

    def marked(request: HttpRequest) -> Any:
        request.answer_lines = b"X-Mark: 1\r\n"
        return act(request)

    harness.app.paths["/a"] = marked
    await harness.start()
    client = await harness.connect()
    client.send(request_bytes("GET", "/a"))
    answer = await client.answer(head_only=True)
    assert (answer.status, answer.headers["x-mark"]) == (status, "1")
