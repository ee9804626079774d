"""A WebSocket client that exposes every frame, for tests of the server's WebSockets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.conformance.api.servers import TOKEN

WAIT_SECONDS = 10.0
ORIGIN = "Origin: https://pages.example"
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
VERSION = "Sec-WebSocket-Version: 13"
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
ASKED = (*UPGRADE, VERSION, KEY, ORIGIN)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def client_frame(opcode: int, payload: bytes = b"") -> bytes:
    """A complete masked frame with less than 126 bytes."""
    mask = b"\x0a\x0b\x0c\x0d"
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + masked


@dataclass(slots=True)
class Socket:
    """A connection that is a WebSocket, or requests to be one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    async def ask(
        cls,
        port: int,
        target: str,
        *lines: str,
        token: str | None = TOKEN,
        early: bytes = b"",
        version: str = "1.1",
    ) -> Socket:
        """Sends a request with these headers, and reads the head of the response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        made = cls(reader, writer)
        head = [f"GET {target} HTTP/{version}", "Host: localhost", *lines]
        if token is not None:
            head.append(f"Authorization: Bearer {token}")
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode() + early)
        async with asyncio.timeout(WAIT_SECONDS):
            raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = raw.split("\r\n")[:-2]
        made.status = int(first.split(" ")[1])
        made.headers = {name.lower(): value for name, value in (x.split(": ", 1) for x in rest)}
        if length := int(made.headers.get("content-length", "0")):
            made.body = await reader.readexactly(length)
        return made

    async def frame(self) -> tuple[int, bytes] | None:
        """Returns the next frame; None at the end."""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                first, length = await self.reader.readexactly(2)
                assert first & 0xF0 == 0x80, "a server sends whole messages"
                assert length < 0x80, "a server sends no masks"
                if length >= 126:
                    raw = await self.reader.readexactly(2 if length == 126 else 8)
                    length = int.from_bytes(raw, "big")
                return first & 0x0F, await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return None

    async def event(self) -> dict[str, Any]:
        """Returns the next event of a text stream."""
        found = await self.frame()
        assert found is not None
        opcode, payload = found
        assert opcode == TEXT
        assert payload.endswith(b"}\n")
        event: dict[str, Any] = orjson.loads(payload)
        return event

    async def closed(self) -> int:
        """Returns the code of the next close frame, and checks that nothing follows it."""
        found = await self.frame()
        assert found is not None
        opcode, payload = found
        assert opcode == CLOSE, (opcode, payload[:200])
        return int.from_bytes(payload, "big")

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def leave(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()
