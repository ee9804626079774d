"""Connections of clients to servers: requests and responses cross the simulated network.

A client calls the handler of its transport in its own process; the request is carried out in the
process of the server; the response returns as a message. So either may be paused or killed while
the other waits, as with sockets. A broken connection is an OSError here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from restow.client import InProcessResponse
from restow.httpserver import HttpRequest, Peer, PushStream
from tests.support.in_process import (
    PushedStream,
    answer_of,
    as_answer,
    request_of,
    set_failure,
    set_result,
)
from tests.support.sim.loop import Process
from tests.support.sim.network import Link


class Listening(Protocol):
    """A server as seen by the network."""

    process: Process

    @property
    def is_open(self) -> bool:
        """Whether it accepts connections."""

    def answer(self, request: HttpRequest) -> Any:
        """Called in its own process; a response, or a promise of one."""

    @property
    def has_seen_another_store(self) -> bool:
        """Whether a reply of the store has shown that it was replaced, or went back."""

    @property
    def exchanges(self) -> dict[Exchange, None]:
        """Exchanges that break when it is killed."""


class Exchange:
    """One request in flight, or one stream."""

    def __init__(self) -> None:
        self.on_reset: Callable[[], None] = lambda: None

    def reset(self) -> None:
        self.on_reset()


class Route:
    """The connections of one client; each connection goes to a randomly chosen server."""

    def __init__(self, link: Link, find: Callable[[], Listening | None], token: str) -> None:
        self._link = link
        self._find = find
        self._token = token
        self._peer = Peer(1)
        self._exchanges: dict[Exchange, None] = {}
        self.asked: Listening | None = None
        """The server of the last request."""

    def reset(self) -> None:
        """The client was killed, or its connections are cut."""
        for each in list(self._exchanges):
            each.reset()

    async def handle(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> InProcessResponse:
        link, server = self._link, self._find()
        self.asked = server
        await asyncio.sleep(link.seconds())
        if link.is_cut or link.is_hit("error", link.chances.error):
            raise ConnectionResetError("cut off")
        if server is None or server.process.is_killed or not server.is_open:
            raise ConnectionRefusedError("nobody listens")
        asked = request_of(method, target, headers, body, token=self._token, peer=self._peer)
        name = f"{method} {target.partition('?')[0]}"
        answer: asyncio.Future[InProcessResponse] = link.loop.create_future()
        exchange = Exchange()
        exchange.on_reset = partial(_reset, answer)
        server.exchanges[exchange] = self._exchanges[exchange] = None
        server.process.start(self._carry_out(server, asked, answer, exchange), name)
        try:
            return await answer
        finally:
            self._exchanges.pop(exchange, None)

    async def _carry_out(
        self,
        server: Listening,
        asked: Callable[[float], HttpRequest],
        answer: asyncio.Future[InProcessResponse],
        exchange: Exchange,
    ) -> None:
        """Handle a request. Runs in the process of the server."""
        link = self._link
        found = await answer_of(server.answer(asked(link.loop.time())))
        server.exchanges.pop(exchange, None)
        if link.is_cut or link.is_hit("reply_lost", link.chances.reply_lost):
            link.later(link.seconds(), _reset, answer)
            return
        streamed = partial(_Stream, server=server, link=link, exchanges=self._exchanges)
        link.later(link.seconds(), set_result, answer, as_answer(found, streamed))


class _Stream(PushedStream):
    """A pushed stream: written in the server's process, read in the client's."""

    def __init__(
        self,
        stream: PushStream,
        *,
        server: Listening,
        link: Link,
        exchanges: dict[Exchange, None],
    ) -> None:
        super().__init__(stream)
        self._server = server
        self._link = link
        self._ends = exchanges
        self._arrives_at = 0.0
        self._exchange = Exchange()
        self._exchange.on_reset = self.stream_abort
        server.exchanges[self._exchange] = exchanges[self._exchange] = None

    def send(self, piece: bytes | OSError | None) -> None:
        """Deliver pieces in order, each with its delay."""
        link = self._link
        now = link.loop.time()
        self._arrives_at = max(self._arrives_at, now + link.seconds())
        link.later(self._arrives_at - now, super().send, piece)

    def begin(self) -> None:
        self._server.process.call(super().begin)

    def end(self) -> None:
        self._forget()
        self._server.process.call(super().end)

    async def before_piece(self) -> None:
        while self._link.is_stalled:
            self._link.hits["stalled"] += 1
            await asyncio.sleep(0.2)

    def _forget(self) -> None:
        self._ends.pop(self._exchange, None)
        self._server.exchanges.pop(self._exchange, None)

    def stream_done(self) -> None:
        self._forget()
        super().stream_done()

    def stream_abort(self) -> None:
        self._forget()
        super().stream_abort()


def _reset(answer: asyncio.Future[Any]) -> None:
    set_failure(answer, ConnectionResetError("the connection was reset"))
