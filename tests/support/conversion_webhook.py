"""A conversion webhook for tests: a real HTTPS server that converts as it is told, or misbehaves.

It counts what it is asked. Not for production use, and no example of a good webhook: it takes any
request for a review, whatever its path.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson

from tests.support.certificates import CertificateFiles, make_certificate

HEAD_BYTES_MAX: Final = 64 * 1024

Object = dict[str, Any]
Convert = Callable[[Object, str], Object]
"""An object in a version."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is no review."""

    body: bytes
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


Behave = Callable[[Object], "Object | Raw | Awaitable[Object | Raw]"]
"""From the whole question to the whole answer."""


@dataclass(slots=True)
class Question:
    """What was asked once."""

    target: str
    names: list[str]
    path: str


@dataclass(slots=True)
class ConversionWebhook:
    """A server on a loopback port."""

    convert: Convert
    files: CertificateFiles
    behave: Behave | None = None
    """Answers instead of converting, while it is set."""
    questions: list[Question] = field(default_factory=list)
    connections: int = 0
    """How many were opened, ever."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _port: int = 0

    @classmethod
    async def start(cls, directory: Path, convert: Convert, *, port: int = 0) -> Self:
        files = make_certificate(directory, name="webhook")
        made = cls(convert, files)
        await made.listen(port)
        return made

    async def listen(self, port: int = 0) -> None:
        """Begin to listen, or once more after `stop`, at the same port."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.files.cert_file, self.files.key_file)
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port or self._port, ssl=context, limit=HEAD_BYTES_MAX
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """End all connections, and take no new one."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        """End all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}/convert"

    @property
    def ca_bundle(self) -> str:
        """As a definition carries it."""
        return base64.b64encode(self.files.ca_file.read_bytes()).decode()

    @property
    def asked(self) -> int:
        """How many objects it was asked for, ever."""
        return sum(len(question.names) for question in self.questions)

    def definition_part(self, **changes: Any) -> Object:
        """`spec.conversion` of a definition that names this webhook."""
        client = {"url": self.url, "caBundle": self.ca_bundle, **changes}
        return {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
        }

    def answer(self, review: Object) -> Object:
        """The right answer to a question."""
        request = review["request"]
        target = request["desiredAPIVersion"]
        return {
            "kind": "ConversionReview",
            "apiVersion": review["apiVersion"],
            "response": {
                "uid": request["uid"],
                "result": {"status": "Success"},
                "convertedObjects": [self.convert(obj, target) for obj in request["objects"]],
            },
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                while True:
                    await self._answer(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        review = orjson.loads(await reader.readexactly(int(lengths[0].split(":")[1])))
        request = review["request"]
        names = [obj["metadata"].get("name", "") for obj in request["objects"]]
        path = lines[0].split(" ")[1]
        self.questions.append(Question(request["desiredAPIVersion"], names, path))
        found = self.answer(review) if self.behave is None else self.behave(review)
        answer = await found if isinstance(found, Awaitable) else found
        raw = answer if isinstance(answer, Raw) else Raw(orjson.dumps(answer))
        extra = "".join(f"{name}: {value}\r\n" for name, value in raw.headers)
        writer.write(
            f"HTTP/1.1 {raw.status}\r\nContent-Length: {len(raw.body)}\r\n{extra}\r\n".encode()
            + raw.body
        )
        await writer.drain()
