"""The control socket: other commands of the same user send requests to the supervisor.

A unix socket in the data directory, for its owner only. It is reached through the directory's file
descriptor, because the path of a socket is limited to about 100 bytes. Not here: the verbs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from restow.aio import Runtime
from restow.localcluster.errors import ClusterError
from restow.localcluster.messages import LINE_BYTES_MAX, VERSION, ControlReply, ControlRequest

SOCKET_NAME: Final = "control.sock"
CALLERS_MAX: Final = 16
PEER_SECONDS: Final = 10.0
"""How long a caller may take to send its request, and to read a reply."""
_CREDENTIALS: Final = struct.Struct("3i")

Handler = Callable[[ControlRequest], AsyncIterator[ControlReply]]


@contextmanager
def socket_address(data_dir: Path) -> Iterator[str]:
    """A short path to the socket, valid inside the block."""
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)


class ControlServer:
    """Answers requests. Started by `start`, in the process that holds the lock of the directory."""

    def __init__(
        self, handle: Handler, runtime: Runtime, data_dir: Path, *, peer_seconds: float
    ) -> None:
        self._handle = handle
        self._data_dir = data_dir
        self._clock = runtime.clock
        self._peer_seconds = peer_seconds
        self._tasks = runtime.tasks("control", tasks_max=CALLERS_MAX)
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(
        cls,
        handle: Handler,
        *,
        runtime: Runtime,
        data_dir: Path,
        peer_seconds: float = PEER_SECONDS,
    ) -> ControlServer:
        control = cls(handle, runtime, data_dir, peer_seconds=peer_seconds)
        (data_dir / SOCKET_NAME).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_address(data_dir) as address:
            listening.bind(address)
        (data_dir / SOCKET_NAME).chmod(0o600)
        control._server = await asyncio.start_unix_server(
            control._serve, sock=listening, limit=LINE_BYTES_MAX
        )
        return control

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.close()
        (self._data_dir / SOCKET_NAME).unlink(missing_ok=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] not in {os.geteuid(), 0}:
            writer.close()
        elif len(self._tasks) >= CALLERS_MAX:
            writer.write(_line(ControlReply(error="too many commands at once: try again")))
            writer.close()
        else:
            self._tasks.spawn("caller", self._converse(reader, writer))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                async with aclosing(self._replies(reader)) as found:
                    async for reply in found:
                        writer.write(_line(reply))
                        async with self._clock.timeout(self._peer_seconds):
                            await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # the caller does not read
        finally:
            writer.close()

    async def _replies(self, reader: asyncio.StreamReader) -> AsyncGenerator[ControlReply, None]:
        try:
            async with self._clock.timeout(self._peer_seconds):
                line = await reader.readline()
        except ValueError:  # the line is too long
            line = b""
        except TimeoutError:
            yield ControlReply(error=f"no request within {self._peer_seconds:g} s")
            return
        async for reply in replies(line, self._handle):
            yield reply


async def replies(line: bytes, handle: Handler) -> AsyncIterator[ControlReply]:
    """The replies to one line; an invalid one gets an error."""
    try:
        request = msgspec.json.decode(line, type=ControlRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield ControlReply(error=f"invalid request: {error}")
        return
    if request.version != VERSION:
        yield ControlReply(
            error="the cluster was started by another version of restow: it uses version"
            f" {VERSION} of the control protocol, the request has version {request.version}"
        )
        return
    try:
        async for answer in handle(request):
            yield answer
    except ClusterError as error:
        yield ControlReply(error=str(error))


def _line(reply: ControlReply) -> bytes:
    return msgspec.json.encode(reply) + b"\n"
