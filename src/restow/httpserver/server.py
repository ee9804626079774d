"""The listener: accepts connections, enforces their deadlines, and stops gracefully.

It serves one application, a function from a request to a response. The application, and the times
of start and stop, are decided elsewhere.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from email.utils import format_datetime
from typing import Final

from restow.aio import Runtime, Timer
from restow.httpserver.connection import ServerConnection
from restow.httpserver.limits import Limits
from restow.httpserver.listener_state import Counters, ListenerState, PendingTasks
from restow.httpserver.reader import RequestLineCache
from restow.httpserver.response import (
    App,
    ErrorBody,
    Gate,
    GivenUp,
    Quick,
    Refused,
    plain_error_body,
)
from restow.httpserver.shared_port import SharedPort, open_sockets
from restow.httpserver.tls import TlsMaterial

# The maximum delay of deadlines, and of the Date header.
DEADLINE_CHECK_SECONDS_MAX: Final = 1.0
DEADLINE_CHECK_SECONDS_MIN: Final = 0.01
STOP_POLL_SECONDS: Final = 0.01
GRACE_SECONDS_DEFAULT: Final = 30.0
# Between leaving the front port and closing idle connections. A client that sends requests at least
# this often gets `Connection: close`, and never finds its connection closed.
RETIRE_SECONDS: Final = 1.0
# To flush when everything is finished.
FLUSH_SECONDS: Final = 2.0
# TCP keepalive: after 30 idle seconds, four probes, one each 15 seconds.
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)

logger = logging.getLogger(__name__)


class Listener:
    """A running HTTP server. Created by `start`."""

    def __init__(self, shared: ListenerState, *, tls: TlsMaterial | None) -> None:
        self._shared = shared
        self._tls = tls
        self._ports: list[SharedPort] = []
        self._front: SharedPort | None = None
        self._timer: Timer | None = None
        self._deadline_check_seconds = min(
            DEADLINE_CHECK_SECONDS_MAX,
            max(DEADLINE_CHECK_SECONDS_MIN, shared.limits.shortest_seconds / 4),
        )
        self.port = 0

    @classmethod
    async def start(
        cls,
        app: App,
        *,
        bind: str,
        port: int,
        runtime: Runtime,
        tls: TlsMaterial | None = None,
        limits: Limits | None = None,
        gate: Gate | None = None,
        given_up: GivenUp | None = None,
        refused: Refused | None = None,
        quick: Quick | None = None,
        error_body: ErrorBody = plain_error_body,
        reuse_port: bool = False,
        counters: Counters | None = None,
    ) -> Listener:
        """Listen and serve. Port 0 selects a free one, which `port` then has."""
        limits = limits or Limits()
        shared = ListenerState(
            app=app,
            gate=gate,
            given_up=given_up,
            refused=refused,
            quick=quick,
            lines=RequestLineCache(None if quick is None else quick.may_answer),
            error_body=error_body,
            limits=limits,
            clock=runtime.clock,
            steps=runtime.steps,
            fatal=runtime.fatal,
            tasks=PendingTasks.of_runtime(runtime, limits),
            counters=Counters() if counters is None else counters,
        )
        listener = cls(shared, tls=tls)
        listener._check_deadlines()
        try:
            await listener._listen(bind, port, runtime, reuse_port=reuse_port)
        except BaseException:
            listener._stop_timer()
            raise
        return listener

    @property
    def counters(self) -> Counters:
        return self._shared.counters

    def reload(self) -> None:
        """Read the certificate files again; TlsError leaves everything unchanged."""
        if self._tls is not None:
            self._tls.reload()

    def open_front(
        self, sockets: Sequence[socket.socket], runtime: Runtime, *, is_shared: bool
    ) -> None:
        """Also accept on listening sockets shared with other processes; the first is its own.

        `is_shared`: other processes continue to accept queued connections when this one has left.
        """
        assert self._front is None, "the front is open already"
        self._front = self._open_port(sockets, runtime, is_shared=is_shared)

    def _open_port(
        self, sockets: Sequence[socket.socket], runtime: Runtime, *, is_shared: bool
    ) -> SharedPort:
        for listening in sockets:
            # Inherited by every connection: detects peers that vanished without closing.
            for level, option, value in KEEP_ALIVE:
                listening.setsockopt(level, option, value)
        port = SharedPort(
            sockets,
            shared=self._shared,
            make=lambda: ServerConnection(self._shared),
            tls=self._tls.context if self._tls else None,
            runtime=runtime,
            is_shared=is_shared,
        )
        port.open()
        return port

    async def retire(self, *, seconds: float = RETIRE_SECONDS) -> None:
        """Leave the front port: each client gets one more response, with `Connection: close`.

        Accepted connections are served for long enough that a busy client has seen that this
        response is the last of its connection. Call `stop` afterwards.
        """
        if self._front is None:
            return
        self._front.leave()
        self._shared.begin_stop()
        self.end_streams()
        await self._shared.clock.sleep(seconds)
        front = self._front
        limit = self._shared.limits.handshake_seconds
        await self._wait_while(lambda: front.handshakes_open > 0, seconds_max=limit)

    async def stop(self, *, grace_seconds: float = GRACE_SECONDS_DEFAULT) -> None:
        """Stop accepting, let requests in progress finish, end streams cleanly, close."""
        shared = self._shared
        shared.begin_stop()
        shared.begin_refusing()
        for port in self._ports:
            await port.close()
        if self._front is not None:
            await self._front.close()
        for connection in list(shared.connections):
            connection.close_if_idle()
        await self._wait_while(self._working, seconds_max=grace_seconds)
        self.end_streams()
        for connection in list(shared.connections):
            connection.close()
        await self._wait_while(lambda: bool(shared.connections), seconds_max=FLUSH_SECONDS)
        for connection in list(shared.connections):
            connection.abort()
        writes = list(shared.suspended_writes)
        shared.suspended_writes.clear()
        for write in writes:
            write.cancel()
        await shared.clock.sleep(0)  # they end in the next iteration of the event loop
        await shared.tasks.close()
        await self._wait_while(lambda: bool(shared.connections), seconds_max=FLUSH_SECONDS)
        self._stop_timer()

    def end_streams(self) -> None:
        """End all pushed streams as if they had timed out, so that clients reconnect."""
        for connection in list(self._shared.connections):
            connection.end_push_stream()

    async def _listen(self, bind: str, port: int, runtime: Runtime, *, reuse_port: bool) -> None:
        for listening in await open_sockets(bind, port, reuse_port=reuse_port):
            self._ports.append(self._open_port([listening], runtime, is_shared=False))
            self.port = self.port or listening.getsockname()[1]
        logger.info("listening on %s port %d", bind, self.port)

    def _working(self) -> bool:
        # Writes outlive their connections, so tasks and writes without one are checked, too.
        if self._shared.tasks.running or self._shared.suspended_writes:
            return True
        return any(connection.busy for connection in self._shared.connections)

    async def _wait_while(self, condition: Callable[[], bool], *, seconds_max: float) -> None:
        clock = self._shared.clock
        end = clock.monotonic() + seconds_max
        while condition() and clock.monotonic() < end:
            await clock.sleep(STOP_POLL_SECONDS)

    def _check_deadlines(self) -> None:
        shared = self._shared
        now = shared.clock.monotonic()
        shared.set_date(format_datetime(shared.clock.wall(), usegmt=True))
        for connection in list(shared.connections):
            try:
                connection.check(now)
            except Exception:  # a failure must not stop the checks of other connections
                logger.exception("the deadlines of a connection could not be checked; aborting it")
                connection.abort()
        self._timer = shared.clock.call_later(self._deadline_check_seconds, self._check_deadlines)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
