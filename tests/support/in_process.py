"""A server's answers without sockets: what its chain promises, as a client of the library has it.

For all that calls the chain of a server in the same process: simulated worlds, whose messages take
their time, and tests, whose do not. Not here: what goes wrong on the way.
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
    """A request as it comes from a client, but for the moment at which it comes."""
    path, _, query = target.partition("?")
    lines = [*headers.items(), ("authorization", f"Bearer {token}")]
    return partial(HttpRequest, method, path, query, Headers(lines), body, peer)


async def answer_of(result: AppResult) -> Answered:
    """The answer to a request, when it is there."""
    answer = await result if isinstance(result, Awaitable) else result
    assert isinstance(answer, HttpResponse | PushStream | PullStream)
    return answer


def as_answer(found: Answered, streamed: Callable[[PushStream], PushedStream]) -> InProcessResponse:
    """What a client gets; a stream that is pushed is read as `streamed` says."""
    if isinstance(found, PushStream):
        body: bytes | AsyncIterator[bytes] = streamed(found).pieces()
    elif isinstance(found, PullStream):
        body = b"".join(found.pieces)
    else:
        body = found.body if isinstance(found.body, bytes) else b"".join(found.body)
    return InProcessResponse(found.status, body, _fields(found.headers))


class PushedStream:
    """A pushed stream as its reader has it. Pieces arrive at once, unless `send` says otherwise."""

    def __init__(self, stream: PushStream) -> None:
        self._stream = stream
        self._arrived: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._writer = StreamWriter(self, self._push, chunked=False)

    def _push(self, piece: bytes) -> None:
        self.send(piece)

    def send(self, piece: bytes | OSError | None) -> None:
        """A piece, an error that breaks the stream, or its end."""
        self._arrived.put_nowait(piece)

    def begin(self) -> None:
        """Somebody reads: the server may write."""
        self._stream.start(self._writer)

    def end(self) -> None:
        """Nobody reads any more."""
        if not self._writer.closed:
            self._writer.closed = True
            if self._writer.on_close is not None:
                self._writer.on_close()

    async def before_piece(self) -> None:
        """Wait before the reader has a piece that is there."""

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

    # What the writer of the server asks of a connection.

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None:
        self.send(None)

    def stream_abort(self) -> None:
        self.send(ConnectionResetError("the connection was reset"))


def tell(answer: asyncio.Future[Any], found: Any) -> None:
    """The result of what somebody may have given up by now."""
    if not answer.done():
        answer.set_result(found)


def fail(answer: asyncio.Future[Any], error: Exception) -> None:
    """The same for a failure."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # whoever asked may be dead, and looks no more


def _fields(block: bytes) -> dict[str, str]:
    lines = block.decode("latin-1").split("\r\n")
    return {name: value for name, _, value in (each.partition(": ") for each in lines) if name}
