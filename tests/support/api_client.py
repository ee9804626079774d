"""A minimal HTTP client for tests of the API: no retries, no decoding into types.

One connection per client, kept open between requests. A watch gets a connection of its own. Not
here: anything else that a real client does for its user.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

ANSWER_SECONDS_MAX: Final = 30.0
EVENT_SECONDS_MAX: Final = 10.0
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
YAML: Final = "application/yaml"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as received."""

    status: int
    headers: dict[str, list[str]]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def reason(self) -> str:
        """The reason of a Status; empty for any other body."""
        if not self.body.startswith(b"{"):
            return ""
        return str(self.json.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.json.get("message", ""))

    @property
    def version(self) -> int:
        """The resource version of the object or list."""
        return int(self.json["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """The names of the items of a list."""
        return [item["metadata"]["name"] for item in self.json["items"]]

    @property
    def warnings(self) -> list[str]:
        return self.headers.get("warning", [])

    def header(self, name: str) -> str:
        """The first value of a header; empty if it is missing."""
        return self.headers.get(name, [""])[0]


class ApiClient:
    """Sequential requests to one server."""

    def __init__(
        self, port: int, *, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Without `tls`, over plain HTTP."""
        self._port = port
        self._token = token
        self._tls = tls
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._watches: list[WatchStream] = []

    async def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        content_type: str | None = JSON,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and read the whole response. A body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        head = self._head(
            method, target, data, content_type=content_type, accept=accept, headers=headers
        )
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await self._connection()
            writer.write(head + data)
            reply, keep = await _read_reply(reader, is_head=method == "HEAD")
        if not keep:
            await self._disconnect()
        return reply

    async def get(
        self, target: str, *, accept: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        return await self.request("GET", target, accept=accept, headers=headers)

    async def post(
        self, target: str, body: Any, *, content_type: str | None = JSON, accept: str | None = None
    ) -> Reply:
        return await self.request("POST", target, body, content_type=content_type, accept=accept)

    async def put(
        self, target: str, body: Any, *, content_type: str | None = JSON, accept: str | None = None
    ) -> Reply:
        return await self.request("PUT", target, body, content_type=content_type, accept=accept)

    async def patch(
        self, target: str, body: Any, content_type: str = MERGE_PATCH, *, accept: str | None = None
    ) -> Reply:
        return await self.request("PATCH", target, body, content_type=content_type, accept=accept)

    async def delete(
        self, target: str, body: Any = None, *, content_type: str = JSON, accept: str | None = None
    ) -> Reply:
        return await self.request("DELETE", target, body, content_type=content_type, accept=accept)

    async def watch(self, target: str, *, accept: str | None = None) -> WatchStream:
        """Begin a watch; the stream is closed with the client."""
        separator = "&" if "?" in target else "?"
        stream = await WatchStream.open(
            self._port,
            self._head("GET", f"{target}{separator}watch=true", b"", accept=accept),
            self._tls,
        )
        self._watches.append(stream)
        return stream

    async def close(self) -> None:
        for stream in self._watches:
            await stream.close()
        await self._disconnect()

    def abort(self) -> None:
        """Close the connection at once, with data pending; the next request reconnects."""
        for stream in self._watches:
            stream.abort()
        self._watches.clear()
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    def _head(
        self,
        method: str,
        target: str,
        data: bytes,
        *,
        content_type: str | None = None,
        accept: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        if accept is not None:
            lines.append(f"Accept: {accept}")
        if data:
            lines.append(f"Content-Length: {len(data)}")
            if content_type is not None:
                lines.append(f"Content-Type: {content_type}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None or self._reader.at_eof():
            self._reader, self._writer = await _connect(self._port, self._tls)
        return self._reader, self._writer

    async def _disconnect(self) -> None:
        if self._writer is not None:
            await _close(self._writer)
        self._reader = self._writer = None


class WatchStream:
    """A running watch: its events, one at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        status: int,
        headers: dict[str, list[str]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.status = status
        self.headers = headers
        self._rest = b""

    @classmethod
    async def open(cls, port: int, head: bytes, tls: ssl.SSLContext | None = None) -> WatchStream:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            reader, writer = await _connect(port, tls)
            writer.write(head)
            status, headers = await _read_head(reader)
        return cls(reader, writer, status, headers)

    async def refusal(self) -> Reply:
        """The response, if the watch was refused."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            body = await _read_body(self._reader, self.headers)
        return Reply(self.status, self.headers, body)

    async def next(self, *, seconds: float = EVENT_SECONDS_MAX) -> dict[str, Any] | None:
        """The next event; None at the end of the stream. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while b"\n" not in self._rest:
                chunk = await _read_chunk(self._reader)
                if not chunk:
                    assert not self._rest, "the stream has ended inside an event"
                    return None
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = orjson.loads(line)
        return event

    async def frame(self, *, seconds: float = EVENT_SECONDS_MAX) -> bytes | None:
        """The next event of a watch in protobuf, without its length; None at the end."""
        async with asyncio.timeout(seconds):
            while len(self._rest) < 4 or len(self._rest) < 4 + int.from_bytes(self._rest[:4]):
                chunk = await _read_chunk(self._reader)
                if not chunk:
                    assert not self._rest, "the stream has ended inside an event"
                    return None
                self._rest += chunk
        end = 4 + int.from_bytes(self._rest[:4])
        event, self._rest = self._rest[4:end], self._rest[end:]
        return event

    async def take(self, count: int) -> list[dict[str, Any]]:
        """The next `count` events; fewer only if the stream ends."""
        events: list[dict[str, Any]] = []
        while len(events) < count and (event := await self.next()) is not None:
            events.append(event)
        return events

    async def rest(self) -> list[dict[str, Any]]:
        """All events up to the end of the stream."""
        events: list[dict[str, Any]] = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events

    async def is_silent(self, *, seconds: float = 0.05) -> bool:
        """Whether no event arrives for a while."""
        try:
            return await self.next(seconds=seconds) is None
        except TimeoutError:
            return True

    async def close(self) -> None:
        await _close(self._writer)

    def abort(self) -> None:
        self._writer.transport.abort()


async def _connect(
    port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=_LINE_BYTES_MAX, ssl=tls)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # the peer may have closed it first
        await writer.wait_closed()


async def _read_reply(reader: asyncio.StreamReader, *, is_head: bool) -> tuple[Reply, bool]:
    status, headers = await _read_head(reader)
    body = b"" if is_head or status in (204, 304) else await _read_body(reader, headers)
    keep = headers.get("connection", [""])[0].lower() != "close"
    return Reply(status, headers, body), keep


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, list[str]]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    return int(first.split(" ")[1]), headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, list[str]]) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"][0]))
    if headers.get("transfer-encoding") == ["chunked"]:
        parts = []
        while chunk := await _read_chunk(reader):
            parts.append(chunk)
        return b"".join(parts)
    return await reader.read()


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    try:
        size = int(await reader.readuntil(b"\r\n"), 16)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the stream was cut off") from error
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data
