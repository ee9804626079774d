"""Connects a client's connection to a backend's after a protocol upgrade.

Only a 101 that names the requested protocol opens a tunnel. Before that the client's connection is
HTTP, and every byte that it sends belongs to a new request (CVE-2018-1002105).

Each direction applies backpressure. When one end closes, its pending data is delivered, and then
both are closed.

Not here: the client's end (`restow.httpserver`), and permitted upgrades (`forwarded_headers`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from restow.aggregator.exchanges import BackendRequest, Exchange
from restow.aggregator.forwarded_headers import answer_lines, names_token
from restow.aio import Clock, Tasks
from restow.httpserver import Tunnel, TunnelEnd, header_block

READ_BYTES: Final = 64 * 1024
UNSENT_BYTES_MAX: Final = 256 * 1024
"""Bytes that a backend may leave unread before the client is paused."""
STALL_SECONDS_MAX: Final = 60.0
"""Time after which the tunnel is closed if the backend reads nothing."""
FLUSH_SECONDS_MAX: Final = 5.0


def has_agreed(exchange: Exchange, question: BackendRequest) -> bool:
    """Whether a backend has switched to exactly the requested protocol."""
    headers = exchange.head.headers
    if names_token(headers.get("sec-websocket-protocol", "")):
        return False  # the backend did not get the token
    protocol = headers.get("upgrade", "")
    return exchange.head.status == 101 and protocol.lower() == question.upgrade.lower()


def open_tunnel(exchange: Exchange, *, name: str, tasks: Tasks, clock: Clock) -> Tunnel:
    """Return the 101 for the client. Raises ValueError for headers that cannot be sent."""
    headers = answer_lines(101, exchange.lines)
    headers += header_block([("Upgrade", exchange.head.headers["upgrade"])])
    joint = _Joint(exchange, clock)

    def start(end: TunnelEnd) -> None:
        joint.join(end)
        try:
            tasks.spawn(f"tunnel of {name}", joint.run())
        except Exception:
            exchange.end()
            raise

    return Tunnel(start, headers, on_dropped=exchange.end, on_revoked=joint.close)


class _Joint:
    """Copies data between two connections."""

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self._exchange = exchange
        self._reader = exchange.connection.reader
        self._writer = exchange.connection.writer
        self._clock = clock
        self._end: TunnelEnd | None = None
        self._over = asyncio.Event()
        self._unsent = asyncio.Event()
        self._room = asyncio.Event()

    def join(self, end: TunnelEnd) -> None:
        self._end = end
        end.on_data = self._take
        end.on_writable = self._room.set
        end.on_close = self._over.set

    def close(self, _status_json: bytes) -> None:
        """Close both ends. The protocol is unknown, so the client gets no Status."""
        self._over.set()

    async def run(self) -> None:
        """Run until one end is closed."""
        end = self._end
        assert end is not None
        try:
            async with asyncio.TaskGroup() as group:
                ways = [
                    group.create_task(self._to_client(end), name="tunnel to the client"),
                    group.create_task(self._to_backend(end), name="tunnel to the backend"),
                ]
                await self._over.wait()
                for way in ways:
                    way.cancel()
            await self._flush()
        finally:
            end.close()
            self._exchange.end()

    def _take(self, data: bytes) -> None:
        """Forward bytes of the client."""
        if self._over.is_set():
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX and self._end:
            self._end.pause()
            self._unsent.set()

    async def _to_client(self, end: TunnelEnd) -> None:
        with suppress(OSError, EOFError):
            while data := await self._reader.read(READ_BYTES):
                end.write(data)
                while not end.writable and not end.closed:
                    self._room.clear()
                    await self._room.wait()
        self._over.set()

    async def _to_backend(self, end: TunnelEnd) -> None:
        """Resume the client whenever the backend has read the data sent so far."""
        with suppress(OSError, TimeoutError):
            while True:
                await self._unsent.wait()
                async with self._clock.timeout(STALL_SECONDS_MAX):
                    await self._writer.drain()
                self._unsent.clear()
                end.resume()
        self._over.set()

    async def _flush(self) -> None:
        """Send the last bytes of the client to the backend."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with self._clock.timeout(FLUSH_SECONDS_MAX):
                await self._writer.wait_closed()
