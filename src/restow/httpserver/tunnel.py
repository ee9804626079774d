"""Tunnels: connections that were upgraded from HTTP to another protocol (101 Switching Protocols).

From then on bytes are passed on unchanged in both directions. The listener owns the client's end;
the creator of the tunnel connects it to a backend. When either end closes, both are closed: TLS, as
it is used here, cannot close one direction alone.

Not here: authorization of tunnels, and their backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SWITCHING: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"


class TunnelChannel(Protocol):
    """The interface of a connection that a tunnel uses."""

    def stream_overfull(self) -> bool: ...

    def tunnel_pause(self) -> None: ...

    def tunnel_resume(self) -> None: ...

    def tunnel_done(self) -> None: ...

    def stream_later(self, work: Callable[[], None]) -> None: ...

    def stream_abort(self) -> None: ...


class TunnelEnd:
    """The client's end of a tunnel.

    `on_data` gets what the client sends. `writable` is False while the client is slow: then pause,
    and continue when `on_writable` is called. `on_close` is called once if the tunnel is closed by
    this side: the client disconnected, or the server stops. `on_end` is called once, whichever side
    closes. `on_leave` is called when the server is about to stop: protocols with a close message
    close now.
    """

    __slots__ = (
        *("_channel", "_write", "closed", "on_close", "on_data", "on_end", "on_leave"),
        *("on_writable", "writable"),
    )

    def __init__(self, channel: TunnelChannel, write: Callable[[bytes], object]) -> None:
        self._channel = channel
        self._write = write
        self.closed = False
        self.writable = True
        self.on_data: Callable[[bytes], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_leave: Callable[[], None] | None = None

    def write(self, data: bytes) -> bool:
        """Send some bytes; False asks for a pause (these bytes are sent nevertheless)."""
        if self.closed or (not self.writable and self._channel.stream_overfull()):
            return False
        self._write(data)
        return self.writable

    def is_overfull(self) -> bool:
        """Whether more is unsent than any client may leave unsent. If so, the connection is
        ending."""
        return self.closed or self._channel.stream_overfull()

    def do_later(self, work: Callable[[], None]) -> None:
        """Like that of a stream."""
        if not self.closed:
            self._channel.stream_later(work)

    def pause(self) -> None:
        """Stop reading from the client."""
        if not self.closed:
            self._channel.tunnel_pause()

    def resume(self) -> None:
        if not self.closed:
            self._channel.tunnel_resume()

    def close(self) -> None:
        """Close after written data was flushed."""
        if not self.closed:
            self._over()
            self._channel.tunnel_done()

    def abort(self) -> None:
        if not self.closed:
            self._over()
            self._channel.stream_abort()

    def drop(self) -> None:
        """Abort the connection and notify the creator of the tunnel, when neither side has closed
        it."""
        if not self.closed:
            self.abort()
            if self.on_close is not None:
                self.on_close()

    def cut(self) -> None:
        """Notify the creator of the tunnel that the client's side has closed."""
        if not self.closed:
            self._over()
            if self.on_close is not None:
                self.on_close()

    def _over(self) -> None:
        self.closed = True
        ended, self.on_end = self.on_end, None
        if ended is not None:
            ended()


class Tunnel:
    """A result of the application: it accepts the upgrade to another protocol.

    `headers` is an encoded block that names the protocol. `start` is called with the client's end
    after the response was written; `on_dropped` if it is never written. `on_revoked` closes a
    started tunnel whose user may not have it any more; it is called with the Status that a new
    request would get, as JSON. Without it the connection is aborted.
    """

    __slots__ = ("headers", "on_dropped", "on_revoked", "start")

    def __init__(
        self,
        start: Callable[[TunnelEnd], None],
        headers: bytes,
        *,
        on_dropped: Callable[[], None] | None = None,
        on_revoked: Callable[[bytes], None] | None = None,
    ) -> None:
        self.start = start
        self.headers = headers
        self.on_dropped = on_dropped
        self.on_revoked = on_revoked

    def close(self) -> None:
        """Notify the creator that the tunnel is not used."""
        dropped, self.on_dropped = self.on_dropped, None
        if dropped is not None:
            dropped()
