"""A watch at the level of bytes: what arrives, and whether the stream ends as HTTP requires."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

from tests.support.server_process import ServerProcess

EVENT_SECONDS_MAX: Final = 20.0
READ_BYTES: Final = 65_536


class RawWatch:
    """One open watch; a thread reads its events."""

    def __init__(
        self,
        server: ServerProcess,
        path: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """By default as the administrator; with `headers`, without a token."""
        self._connection = connection_to(server)
        mark = "&" if "?" in path else "?"
        sent = headers or {"Authorization": f"Bearer {token or server.token}"}
        self._socket = self._connection.sock
        self._connection.request("GET", f"{path}{mark}watch=true", headers=dict(sent))
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self._events: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        # Closing alone would wait for the reader; shutdown ends its read.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._answer.close()
        self._connection.close()

    def event(self) -> tuple[str, dict[str, Any]]:
        """Returns the next event: its type and object."""
        found = self._events.get(timeout=EVENT_SECONDS_MAX)
        assert isinstance(found, dict), f"no event, but the end: {found!r}"
        return found["type"], found["object"]

    def events(self, wanted: int) -> list[tuple[str, str]]:
        """Returns the next events, as types and names."""
        some = [self.event() for _ in range(wanted)]
        return [(kind, obj["metadata"]["name"]) for kind, obj in some]

    def end(self) -> str:
        """Returns how the stream ended, after its end: "cleanly", or the error."""
        while isinstance(found := self._events.get(timeout=EVENT_SECONDS_MAX), dict):
            pass
        return str(found)

    def _read(self) -> None:
        unfinished = b""
        try:
            # Unlike readline, read1 raises if the last chunk is missing.
            while piece := self._answer.read1(READ_BYTES):
                *lines, unfinished = (unfinished + piece).split(b"\n")
                for line in lines:
                    self._events.put(json.loads(line))
            self._events.put("within an event" if unfinished else "cleanly")
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            self._events.put(f"{type(error).__name__}: {error}")


def connection_to(server: ServerProcess) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cadata=server.ca_pem)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=EVENT_SECONDS_MAX, context=context
    )
    connection.connect()
    return connection
