"""One request to a backend and its response; keeps the connection if the response is complete.

Not here: selecting the backend (`backends`), its connection (`pools`), and the user (`proxy`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from restow.client.connections import ClientConnection
from restow.client.errors import ConnectionFailed, connection_failed
from restow.client.http1 import Head, body_pieces, read_passed_head, read_small


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRequest:
    """A request, ready to be sent."""

    method: str
    data: bytes
    is_stream: bool = False
    """Whether its response may be unlimited: a watch, or a tunnel."""
    upgrade: str = ""
    """The protocol to upgrade to; empty: no upgrade."""

    @property
    def may_repeat(self) -> bool:
        """Whether it is safe to send it twice."""
        return self.method in {"GET", "HEAD", "OPTIONS"} and not self.upgrade


class Exchange:
    """A response whose body is still to be read. Its owner must call `end`."""

    __slots__ = ("_on_end", "connection", "head", "lines", "server")

    def __init__(
        self,
        connection: ClientConnection,
        head: Head,
        lines: list[tuple[str, str]],
        *,
        server: str,
        on_end: Callable[[Exchange, bool], None],
    ) -> None:
        self.connection = connection
        self.head = head
        self.lines = lines
        """The header lines of the response; names are in lower case."""
        self.server = server
        self._on_end: Callable[[Exchange, bool], None] | None = on_end

    async def whole(self) -> bytes:
        """Return the body of a small response, once. Raises ConnectionFailed."""
        try:
            body = await read_small(self.connection.reader, self.head)
        except Exception as error:
            raise self._failed(error) from error
        self.connection.is_at_end = True
        return body

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives, once. Raises ConnectionFailed if it ends prematurely."""
        async with aclosing(body_pieces(self.connection.reader, self.head)) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except Exception as error:
                raise self._failed(error) from error
        self.connection.is_at_end = True

    def end(self) -> None:
        """Finish: the remaining response, if any, is discarded."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self, self.connection.is_at_end and self.head.is_kept)

    def _failed(self, error: Exception) -> ConnectionFailed:
        return connection_failed(error, server=self.server, may_have_happened=True)


async def talk(
    connection: ClientConnection,
    question: BackendRequest,
    *,
    server: str,
    on_end: Callable[[Exchange, bool], None],
) -> Exchange:
    """Send a request and read the response head; the connection is closed if that fails."""
    try:
        # Not drained: a server may respond with an error before it has read the whole body.
        connection.is_at_end = False
        connection.writer.write(question.data)
        head, lines = await read_passed_head(
            connection.reader, method=question.method, is_upgrade=bool(question.upgrade)
        )
    except Exception as error:
        connection.abort()
        raise connection_failed(
            error, server=server, may_have_happened=not question.may_repeat
        ) from error
    except BaseException:
        connection.abort()
        raise
    return Exchange(connection, head, lines, server=server, on_end=on_end)
