"""An admission webhook for tests: a real HTTPS server that answers as it is told, or misbehaves.

It keeps what it is asked. Not for production use, and no example of a good webhook: it takes any
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
from tests.support.conversion_webhook import Raw

HEAD_BYTES_MAX: Final = 64 * 1024

Object = dict[str, Any]
Response = Callable[[Object], "Object | Raw | Awaitable[Object | Raw]"]
"""From the `request` of a review to its `response`, without the uid; or to no review at all."""


def allow(_request: Object) -> Object:
    """Has nothing against anything."""
    return {"allowed": True}


def answer(said: Object | Raw) -> Response:
    """Says the same to everything."""
    return lambda _request: said


def deny(message: str, **result: Any) -> Response:
    """Is against everything."""
    return lambda _request: {"allowed": False, "status": {"message": message, **result}}


def patch(*operations: Object) -> Response:
    """Changes everything, always in the same way."""
    encoded = base64.b64encode(orjson.dumps(list(operations))).decode()
    return lambda _request: {"allowed": True, "patch": encoded, "patchType": "JSONPatch"}


@dataclass(slots=True)
class AdmissionWebhook:
    """A server on a loopback port."""

    files: CertificateFiles
    respond: Response = allow
    requests: list[Object] = field(default_factory=list)
    """What it was asked, ever."""
    paths: list[str] = field(default_factory=list)
    connections: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    @classmethod
    async def start(cls, directory: Path, respond: Response = allow) -> Self:
        names = ("localhost", "hook.default.svc")
        made = cls(make_certificate(directory, name="webhook", host_names=names), respond)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(made.files.cert_file, made.files.key_file)
        made._server = await asyncio.start_server(
            made._serve, "127.0.0.1", 0, ssl=context, limit=HEAD_BYTES_MAX
        )
        made.port = made._server.sockets[0].getsockname()[1]
        return made

    async def stop(self) -> None:
        """End all connections, and take no new one."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()

    def forget(self) -> None:
        """As if nothing had been asked."""
        self.requests.clear()
        self.paths.clear()

    def client_config(self, path: str = "/review") -> Object:
        """How a configuration names it."""
        bundle = base64.b64encode(self.files.ca_file.read_bytes()).decode()
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": bundle}

    def hook(self, name: str = "rules.example.com", **changes: Any) -> Object:
        """One webhook of a configuration: about every write of config maps, if nothing is said."""
        rule = {
            "operations": ["*"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }
        return {
            "name": name,
            "clientConfig": self.client_config(),
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
            **changes,
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
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        review = orjson.loads(await reader.readexactly(int(lengths[0].split(":")[1])))
        request = review["request"]
        self.requests.append(request)
        self.paths.append(lines[0].split(" ")[1])
        found = self.respond(request)
        answer = await found if isinstance(found, Awaitable) else found
        if not isinstance(answer, Raw):
            response = {"uid": request["uid"], **answer}
            head = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"]}
            answer = Raw(orjson.dumps({**head, "response": response}))
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        head_lines = (
            f"HTTP/1.1 {answer.status}\r\nContent-Length: {len(answer.body)}\r\n{extra}\r\n"
        )
        writer.write(head_lines.encode() + answer.body)
        await writer.drain()
