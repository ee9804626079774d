"""The shared port: listening sockets of several processes, so that clients need one port.

The kernel distributes connections over the sockets of a port (SO_REUSEPORT), and each connection
waits in the queue of one of them. Closing a listening socket resets the connections in its queue.
So a parent process creates one socket per server and never closes them, and each server gets all of
them. It accepts on its own socket as connections arrive, and polls those of the other servers, so
that a connection in the queue of a server that is stopping, starting or hung is served by another.

A server without such a parent has one socket. When it leaves, it accepts all queued connections and
closes at once; a connection that arrives between the two is reset.

Not here: the protocol on a connection, and when to open and leave.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from restow.aio import Runtime, TasksClosed, TasksFull, Timer
from restow.httpserver.byte_budgets import Share
from restow.httpserver.connection_writer import ConnectionWriter
from restow.httpserver.listener_state import ListenerState
from restow.httpserver.tls_connection import TlsConnection

BACKLOG: Final = 4_096
NEIGHBOUR_SECONDS: Final = 0.05
"""How often the queues of the other servers are polled."""
ACCEPTED_AT_ONCE_MAX: Final = 64
"""Connections accepted per poll of another server's queue, and per step when leaving."""
ACCEPTING: Final = ""
"""The key of accepts in the work budget, where others are addresses."""
PAUSE_SECONDS: Final = 0.1
"""Pause when the process has no more file descriptors."""

logger = logging.getLogger(__name__)


async def open_sockets(bind: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """Non-blocking listening sockets of a server's own port, one for each address of a name; port 0
    selects a free one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        bind or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, _kind, protocol, _name, address in dict.fromkeys(found):
            try:
                listening = socket.socket(family, socket.SOCK_STREAM, protocol)
            except OSError:
                if len(found) == 1:
                    raise
                continue  # the address family is not supported on this machine
            opened.append(listening)
            host, _, *rest = address
            try:
                port = _listen(listening, (host, port, *rest), reuse_port=reuse_port)
            except OSError as error:
                why = f"cannot listen on {host} port {port}: {error.strerror}"
                raise OSError(error.errno, why) from error
    except BaseException:
        for listening in opened:
            listening.close()
        raise
    if not opened:
        raise OSError(errno.EAFNOSUPPORT, f"cannot listen on {bind} port {port}: no such addresses")
    return opened


def open_front_sockets(bind: str, port: int, *, count: int) -> list[socket.socket]:
    """Non-blocking listening sockets that share a port; port 0 selects a free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            listening = socket.socket(family, socket.SOCK_STREAM)
            opened.append(listening)
            port = _listen(listening, (bind, port), reuse_port=True)
    except BaseException:
        for listening in opened:
            listening.close()
        raise
    return opened


def _listen(listening: socket.socket, address: tuple[Any, ...], *, reuse_port: bool) -> int:
    """Listen without blocking; return the port."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if listening.family is socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.bind(address)
    listening.setblocking(False)
    listening.listen(BACKLOG)
    port: int = listening.getsockname()[1]
    return port


class SharedPort:
    """Accepts on shared sockets. The first is this server's own."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        shared: ListenerState,
        make: Callable[[], ConnectionWriter],
        tls: ssl.SSLContext | None,
        runtime: Runtime,
        is_shared: bool,
    ) -> None:
        self._own, *self._neighbours = sockets
        self._shared = shared
        self._make = make
        self._tls = tls
        self._clock = runtime.clock
        self._is_shared = is_shared
        # Failures are logged: they affect one connection. The number of tasks is only a backstop.
        limits = shared.limits
        self._tasks = runtime.tasks(
            "handshakes",
            tasks_max=limits.connections_max + limits.handshakes_max,
            on_failure=lambda _: None,
        )
        self._timers: dict[str, Timer] = {}
        self._is_open = False
        self._is_queued = False

    @property
    def handshakes_open(self) -> int:
        """Accepted connections whose handshake has not ended."""
        return len(self._tasks)

    def open(self) -> None:
        """Start to accept."""
        self._is_open = True
        for listening in (self._own, *self._neighbours):
            listening.setblocking(False)
        asyncio.get_running_loop().add_reader(self._own.fileno(), self._on_readable)
        if self._neighbours:
            self._poll_neighbours()

    def leave(self) -> None:
        """Stop accepting. Queued connections are served by other servers, or here if there are
        none."""
        if not self._is_open:
            return
        self._is_open = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        asyncio.get_running_loop().remove_reader(self._own.fileno())
        if not self._is_shared:
            with suppress(OSError):
                while self._accept(self._own) == ACCEPTED_AT_ONCE_MAX:
                    pass
        for listening in (self._own, *self._neighbours):
            listening.close()

    async def close(self) -> None:
        """Leave, and abort all unfinished handshakes."""
        self.leave()
        await self._tasks.close()

    def _on_readable(self) -> None:
        # The loop calls this in each iteration until the connection is accepted.
        if not self._is_queued:
            work = self._shared.work.unauthenticated
            self._is_queued = not work.take(self._accept_some, key=ACCEPTING, is_new=True)

    def _accept_some(self) -> None:
        self._is_queued = False
        if not self._is_open:
            return
        try:
            self._accept(self._own, self._shared.limits.accepted_at_once_max)
        except OSError as error:
            # Out of file descriptors or memory. Meanwhile connections wait in the queue.
            logger.warning("cannot accept connections, retrying: %s", error)
            asyncio.get_running_loop().remove_reader(self._own.fileno())
            self._timers["resume"] = self._clock.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._is_open:
            asyncio.get_running_loop().add_reader(self._own.fileno(), self._on_readable)

    def _poll_neighbours(self) -> None:
        for listening in self._neighbours:
            try:
                self._accept(listening)
            except OSError as error:
                logger.warning("cannot accept queued connections of another server: %s", error)
        self._timers["poll"] = self._clock.call_later(NEIGHBOUR_SECONDS, self._poll_neighbours)

    def _accept(self, listening: socket.socket, at_once_max: int = ACCEPTED_AT_ONCE_MAX) -> int:
        """Accept queued connections, up to a limit; return how many."""
        for number in range(at_once_max):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError):
                return number
            except OSError as error:
                # The client has disconnected; any other error is a local one.
                if error.errno not in (errno.ECONNABORTED, errno.EPROTO):
                    raise
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._tasks.spawn("handshake", self._connect(accepted, str(name[0])))
            except (TasksFull, TasksClosed):
                accepted.close()
        return at_once_max

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        """Attach a connection to the event loop, and limit the time of its TLS handshake, if
        any."""
        connect, shared = asyncio.get_running_loop().connect_accepted_socket, self._shared
        try:
            if self._tls is None:
                await connect(self._make, accepted)
                return
            secured = TlsConnection(
                self._tls,
                self._make,
                work=shared.work,
                share=Share(shared.budgets.unauthenticated, address),
                dropped_bytes_max=shared.limits.linger_bytes_max,
            )
            await connect(lambda: secured, accepted)
        except OSError as error:
            logger.debug("a connection ended before its first request: %s", error)
            accepted.close()
            return
        end = secured.abort_handshake
        shared.handshakes.add(address, end)
        try:
            async with self._clock.timeout(shared.limits.handshake_seconds):
                await secured.handshake_over
        except TimeoutError:
            shared.counters.handshakes_timed_out += 1
            end()
        except asyncio.CancelledError:
            end()
            raise
        finally:
            shared.handshakes.remove(address, end)
