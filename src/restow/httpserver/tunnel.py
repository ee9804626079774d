"""Tunnels: a connection that has ceased to be HTTP, because whoever was asked has agreed (101).

From then on bytes go to and fro as they are. The listener keeps the client's end, and the one who
made the tunnel joins it to something else. When either end is over, both are: TLS, as it is spoken
here, cannot close one direction alone.

Not here: who may have a tunnel, and where it leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

SWITCHING: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"


class TunnelChannel(Protocol):
    """The connection, as a tunnel sees it."""

    def stream_overfull(self) -> bool: ...

    def tunnel_pause(self) -> None: ...

    def tunnel_resume(self) -> None: ...

    def tunnel_done(self) -> None: ...

    def stream_abort(self) -> None: ...


class TunnelEnd:
    """The client's end of a tunnel.

    `on_data` gets what the client sends. `writable` is False while the client is behind: then stop,
    and go on when `on_writable` is called. `on_close` is called once if the end comes from this
    side: the client left, or the server stops. `on_end` is called once, whoever ends it.
    `on_leave` is called when the server is about to stop: who knows how to say so ends it now.
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
        """Whether more is unsent than any client may leave unsent. If so, the end has begun."""
        return self.closed or self._channel.stream_overfull()

    def pause(self) -> None:
        """Take nothing from the client for now."""
        if not self.closed:
            self._channel.tunnel_pause()

    def resume(self) -> None:
        if not self.closed:
            self._channel.tunnel_resume()

    def close(self) -> None:
        """Close when all that was written has gone out."""
        if not self.closed:
            self._over()
            self._channel.tunnel_done()

    def abort(self) -> None:
        if not self.closed:
            self._over()
            self._channel.stream_abort()

    def cut(self) -> None:
        """The end comes from the client's side: tell the maker of the tunnel."""
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
    """An answer: the request was for another protocol, and is granted.

    `headers` is a finished block that names the protocol. `start` is called with the client's end
    when the answer is out, `on_dropped` instead of it if it never goes out.
    """

    __slots__ = ("headers", "on_dropped", "start")

    def __init__(
        self,
        start: Callable[[TunnelEnd], None],
        headers: bytes,
        *,
        on_dropped: Callable[[], None] | None = None,
    ) -> None:
        self.start = start
        self.headers = headers
        self.on_dropped = on_dropped

    def close(self) -> None:
        """Tell its maker that nobody takes it."""
        dropped, self.on_dropped = self.on_dropped, None
        if dropped is not None:
            dropped()
