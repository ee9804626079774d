"""Calls a server's chain without sockets, and returns the responses that a client gets.

For all code that calls the chain of a server in the same process: simulated worlds, whose messages
take time, and tests, whose messages do not. Not here: faults on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from restow.client import InProcessResponse
from restow.httpserver import (
    AppResult,
    Headers,
    HttpRequest,
    HttpResponse,
    Peer,
    PullStream,
    PushStream,
    StreamWriter,
)

Answered = HttpResponse | PushStream | PullStream


def request_of(
    method: str, target: str, headers: Mapping[str, str], body: bytes, *, token: str, peer: Peer
) -> Callable[[float], HttpRequest]:
    """A request of a client, except for its time of arrival."""
    path, _, query = target.partition("?")
    lines = [*headers.items(), ("authorization", f"Bearer {token}")]
    return partial(HttpRequest, method, path, query, Headers(lines), body, peer)


async def answer_of(result: AppResult) -> Answered:
    """The response to a request, when it is complete."""
    answer = await result if isinstance(result, Awaitable) else result
    assert isinstance(answer, HttpResponse | PushStream | PullStream)
    return answer


def as_answer(found: Answered, streamed: Callable[[PushStream], PushedStream]) -> InProcessResponse:
    """The response for a client; a pushed stream is read through `streamed`."""
    if isinstance(found, PushStream):
        body: bytes | AsyncIterator[bytes] = streamed(found).pieces()
    elif isinstance(found, PullStream):
        body = b"".join(found.pieces)
    else:
        body = found.body if isinstance(found.body, bytes) else b"".join(found.body)
    return InProcessResponse(found.status, body, _fields(found.headers))


class PushedStream:
    """A pushed stream for its reader. Pieces arrive at once, unless `send` delays them."""

    def __init__(self, stream: PushStream) -> None:
        self._stream = stream
        self._arrived: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._writer = StreamWriter(self, self._push, chunked=False)

    def _push(self, piece: bytes) -> None:
        self.send(piece)

    def send(self, piece: bytes | OSError | None) -> None:
        """Deliver a piece, an error that breaks the stream, or its end."""
        self._arrived.put_nowait(piece)

    def begin(self) -> None:
        """The reader is ready: the server may write."""
        self._stream.start(self._writer)

    def end(self) -> None:
        """The reader has closed the stream."""
        if not self._writer.closed:
            self._writer.closed = True
            if self._writer.on_close is not None:
                self._writer.on_close()

    async def before_piece(self) -> None:
        """Wait before the reader gets an available piece."""

    async def pieces(self) -> AsyncIterator[bytes]:
        self.begin()
        try:
            while True:
                piece = await self._arrived.get()
                if isinstance(piece, OSError):
                    raise piece
                if piece is None:
                    return
                await self.before_piece()
                yield piece
        finally:
            self.end()

    # Methods that the server's writer calls on a connection.

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None:
        self.send(None)

    def stream_abort(self) -> None:
        self.send(ConnectionResetError("the connection was reset"))


def set_result(answer: asyncio.Future[Any], found: Any) -> None:
    """Set the result, unless the caller has been cancelled."""
    if not answer.done():
        answer.set_result(found)


def set_failure(answer: asyncio.Future[Any], error: Exception) -> None:
    """Set an exception, unless the caller has been cancelled."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # mark as retrieved: the caller may not exist any more


def _fields(block: bytes) -> dict[str, str]:
    lines = block.decode("latin-1").split("\r\n")
    return {name: value for name, _, value in (each.partition(": ") for each in lines) if name}
