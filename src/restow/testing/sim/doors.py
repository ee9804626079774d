"""The ways of clients into servers: requests and answers cross the network, in both directions.

A client calls the handler of its transport in its own process; the request is carried out in the
process of the server; the answer comes back as a message. So either may stand still or die while
the other waits, as with sockets. What would be a broken connection is an OSError here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from restow.client import Answer
from restow.serving.listener import (
    Deferred,
    Headers,
    Peer,
    PullStream,
    PushStream,
    Request,
    Response,
    Shielded,
    StreamWriter,
)
from restow.testing.sim.loop import Process
from restow.testing.sim.network import Link


class Listening(Protocol):
    """A server as the network sees it."""

    process: Process

    @property
    def is_open(self) -> bool:
        """Whether it takes connections."""

    def answer(self, request: Request) -> Any:
        """Called in its own process; an answer, or a promise of one."""

    @property
    def exchanges(self) -> dict[Exchange, None]:
        """What breaks when it dies."""


class Exchange:
    """One request under way, or one stream."""

    def __init__(self) -> None:
        self.on_reset: Callable[[], None] = lambda: None

    def reset(self) -> None:
        self.on_reset()


class Door:
    """The way of one client; which server answers is drawn for each connection."""

    def __init__(self, link: Link, find: Callable[[], Listening | None], token: str) -> None:
        self._link = link
        self._find = find
        self._token = token
        self._peer = Peer(1)
        self._exchanges: dict[Exchange, None] = {}

    def reset(self) -> None:
        """The client has died, or its connections are cut."""
        for each in list(self._exchanges):
            each.reset()

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        link, server = self._link, self._find()
        await asyncio.sleep(link.seconds())
        if link.is_cut or link.is_hit("error", link.chances.error):
            raise ConnectionResetError("cut off")
        if server is None or server.process.is_dead or not server.is_open:
            raise ConnectionRefusedError("nobody listens")
        path, _, query = target.partition("?")
        lines = [*headers.items(), ("authorization", f"Bearer {self._token}")]
        asked = partial(Request, method, path, query, Headers(lines), body, self._peer)
        answer: asyncio.Future[Answer] = link.loop.create_future()
        exchange = Exchange()
        exchange.on_reset = partial(_fail, answer)
        server.exchanges[exchange] = self._exchanges[exchange] = None
        server.process.start(self._carry_out(server, asked, answer, exchange), f"{method} {path}")
        try:
            return await answer
        finally:
            self._exchanges.pop(exchange, None)

    async def _carry_out(
        self,
        server: Listening,
        asked: Callable[[float], Request],
        answer: asyncio.Future[Answer],
        exchange: Exchange,
    ) -> None:
        """In the process of the server."""
        link = self._link
        found = await kept(server.answer(asked(link.loop.time())))
        server.exchanges.pop(exchange, None)
        if link.is_cut or link.is_hit("reply_lost", link.chances.reply_lost):
            link.later(link.seconds(), _fail, answer)
            return
        if isinstance(found, PushStream):
            stream = _Stream(found, server, link, self._exchanges)
            body: bytes | AsyncIterator[bytes] = stream.pieces()
            server.exchanges[stream.exchange] = self._exchanges[stream.exchange] = None
        elif isinstance(found, PullStream):
            body = b"".join(found.pieces)
        else:
            body = found.body if isinstance(found.body, bytes) else b"".join(found.body)
        link.later(link.seconds(), _tell, answer, Answer(found.status, body, _read(found.headers)))


class _Stream:
    """A pushed stream: written in the server's process, read in the client's."""

    def __init__(
        self,
        stream: PushStream,
        server: Listening,
        link: Link,
        exchanges: dict[Exchange, None],
    ) -> None:
        self._stream = stream
        self._server = server
        self._link = link
        self._ends = exchanges
        self._pieces: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._arrives_at = 0.0
        self._is_over = False
        self.exchange = Exchange()
        self.exchange.on_reset = self.stream_abort
        self._writer = StreamWriter(self, self._push, chunked=False)

    def _push(self, piece: bytes) -> None:
        self._send(piece)

    def _send(self, piece: bytes | OSError | None) -> None:
        """In order, each piece in its time."""
        link = self._link
        now = link.loop.time()
        self._arrives_at = max(self._arrives_at, now + link.seconds())
        link.later(self._arrives_at - now, self._pieces.put_nowait, piece)

    async def pieces(self) -> AsyncIterator[bytes]:
        """In the client's process. The server begins when somebody reads."""
        self._server.process.call(self._stream.start, self._writer)
        try:
            while True:
                piece = await self._pieces.get()
                if isinstance(piece, OSError):
                    raise piece
                if piece is None:
                    return
                while self._link.is_stalled:
                    self._link.hits["stalled"] += 1
                    await asyncio.sleep(0.2)
                yield piece
        finally:
            self._forget()
            self._server.process.call(self._close)

    def _close(self) -> None:
        if not self._writer.closed:
            self._writer.closed = True
            if self._writer.on_close is not None:
                self._writer.on_close()

    def _forget(self) -> None:
        self._ends.pop(self.exchange, None)
        self._server.exchanges.pop(self.exchange, None)

    def stream_overfull(self) -> bool:
        return False

    def stream_done(self) -> None:
        self._forget()
        self._send(None)

    def stream_abort(self) -> None:
        self._forget()
        self._send(ConnectionResetError("the connection was reset"))


async def kept(promise: Any) -> Response | PushStream | PullStream:
    """The answer of a promise."""
    while not isinstance(promise, Response | PushStream | PullStream):
        if isinstance(promise, Deferred):
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            promise.then(partial(_tell, future))
            promise = await future
        else:
            promise = await (promise.awaitable if isinstance(promise, Shielded) else promise)
    return promise


def _tell(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(ConnectionResetError("the connection was reset"))


def _read(block: bytes) -> dict[str, str]:
    lines = block.decode("latin-1").split("\r\n")
    return {name: value for name, _, value in (each.partition(": ") for each in lines) if name}
