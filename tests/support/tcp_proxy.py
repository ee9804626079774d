"""A TCP proxy that drops or delays data on request: for tests of broken connections.

It only handles bytes, and no protocol.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from restow.aio import Runtime, TaskFailure

_READ_BYTES: Final = 65_536


class TcpProxy:
    """Listens on a loopback port and forwards to another port."""

    def __init__(self, target_port: int, runtime: Runtime) -> None:
        self._target_port = target_port
        self._clock = runtime.clock
        self._tasks = runtime.tasks("tcp-proxy", on_failure=_ignore)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.drops_requests = False
        """Whether bytes towards the target are dropped."""
        self.holds_requests = False
        """Whether bytes towards the target wait for `release`, even if their sender disconnects."""
        self.drops_replies = False
        """Whether bytes from the target are dropped."""
        self.refuses = False
        """Whether new connections are closed at once."""
        self.delay_seconds = 0.0
        """Delay of bytes, in each direction."""
        self.delayed = 0
        """Number of delayed transfers."""
        self.dropped_bytes = 0
        self.held: list[tuple[asyncio.StreamWriter, bytes]] = []

    @property
    def address(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.held.clear()
        self.cut()
        await self._tasks.close()

    def cut(self) -> None:
        """Reset all connections, on both sides; held bytes are still delivered."""
        for writer in self._writers - {sink for sink, _ in self.held}:
            writer.transport.abort()

    def heal(self) -> None:
        """Stop dropping, delaying and holding."""
        self.drops_requests = self.drops_replies = self.holds_requests = self.refuses = False
        self.delay_seconds = 0.0

    async def release(self) -> None:
        """Deliver the held bytes after all."""
        held, self.held = self.held, []
        for sink, data in held:
            sink.write(data)
            await sink.drain()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.spawn("connection", self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self._writers.add(writer)
        to_target: asyncio.StreamWriter | None = None
        try:
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(to_target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, to_target, is_request=True))
                group.create_task(self._copy(from_target, writer, is_request=False))
        except* OSError:
            pass  # one side closed the connection: close the other
        finally:
            for end in (writer, to_target):
                if end is not None and all(end is not sink for sink, _ in self.held):
                    self._writers.discard(end)
                    end.transport.abort()

    async def _copy(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        while data := await source.read(_READ_BYTES):
            if self.drops_requests if is_request else self.drops_replies:
                self.dropped_bytes += len(data)
                continue
            if is_request and self.holds_requests:
                self.held.append((sink, data))
                continue
            if self.delay_seconds:
                self.delayed += 1
                await self._clock.sleep(self.delay_seconds)
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError("end of stream")


def _ignore(failure: TaskFailure) -> None:
    """Broken connections are the purpose of this proxy."""
