"""A real listener on a loopback port, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from restow.aio import Runtime
from restow.httpserver import (
    Answer,
    App,
    HttpRequest,
    HttpResponse,
    Limits,
    Listener,
    TlsFiles,
    TlsMaterial,
)
from restow.httpserver.connection import ServerConnection
from tests.support.certificates import CertificateFiles, make_certificate

WAIT_SECONDS = 10.0
# Short enough for tests, long enough for a busy machine.
LIMITS = Limits(linger_seconds=0.5)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that servers run on."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass(slots=True)
class Answered:
    """A response as the client got it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, *, context: ssl.SSLContext | None = None) -> Client:
        name = "localhost" if context else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name, limit=1 << 20
        )
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def get(self, path: str = "/", *lines: str) -> None:
        self.send(request_bytes("GET", path, *lines))

    async def answer(self, *, head_only: bool = False) -> Answered:
        """The next response with its body, by length or by chunks."""
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")[:-2]
            pairs = (line.split(": ", 1) for line in lines)
            headers = {name.lower(): value for name, value in pairs}
            body = b"" if head_only else await self._body(headers)
        return Answered(int(first.split(" ")[1]), headers, body)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return b""
        parts = []
        while chunk := await self.chunk():
            parts.append(chunk)
        return b"".join(parts)

    async def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its end."""
        async with asyncio.timeout(WAIT_SECONDS):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self) -> bytes:
        """All bytes until the server closes."""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass


def request_bytes(method: str, path: str, *lines: str, body: bytes = b"") -> bytes:
    all_lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *lines]
    if body:
        all_lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(all_lines).encode("latin-1") + b"\r\n\r\n" + body


def promised(on_cancelled: Callable[[], object] = lambda: None) -> asyncio.Future[Answer]:
    """A response that the test may set later; `on_cancelled` is called if it is cancelled."""
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    answer.add_done_callback(lambda done: on_cancelled() if done.cancelled() else None)
    return answer


def shielded(request: HttpRequest, work: Awaitable[Answer]) -> Awaitable[Answer]:
    """Work that continues when its client has disconnected."""
    request.is_shielded = True
    return work


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, with a timeout."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110  (the condition has no event)
            await asyncio.sleep(0.005)


class Recorder:
    """An application that records its requests and echoes them, or runs a handler of the test."""

    def __init__(self) -> None:
        self.seen: list[HttpRequest] = []
        self.paths: dict[str, Callable[[HttpRequest], Any]] = {}

    def __call__(self, request: HttpRequest) -> Any:
        self.seen.append(request)
        act = self.paths.get(request.path)
        if act is not None:
            return act(request)
        return HttpResponse(200, request.path.encode() + b"|" + request.body)

    def lines(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.seen]


class Harness:
    """Starts listeners and clients, and closes them all."""

    def __init__(self) -> None:
        self.app = Recorder()
        self.listeners: list[Listener] = []
        self.clients: list[Client] = []

    async def start(
        self,
        *,
        app: App | None = None,
        tls: TlsMaterial | None = None,
        limits: Limits = LIMITS,
        **options: Any,
    ) -> Listener:
        listener = await Listener.start(
            app or self.app,
            bind="127.0.0.1",
            port=0,
            runtime=Runtime.system(),
            tls=tls,
            limits=limits,
            **options,
        )
        self.listeners.append(listener)
        return listener

    async def connect(self, *, context: ssl.SSLContext | None = None) -> Client:
        client = await Client.connect(self.listeners[-1].port, context=context)
        self.clients.append(client)
        return client

    @property
    def connection(self) -> ServerConnection:
        """The only connection of the last listener."""
        (found,) = self.listeners[-1]._shared.connections
        assert isinstance(found, ServerConnection)
        return found

    async def ask(self, data: bytes) -> tuple[Answered, bytes]:
        """Send bytes on a new connection: the first response, and all bytes after it."""
        client = await self.connect()
        client.send(data)
        first = await client.answer()
        return first, await client.rest()


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    made = Harness()
    yield made
    for client in made.clients:
        await client.close()
    for listener in made.listeners:
        await listener.stop(grace_seconds=0.2)
        assert listener.counters.connections_open == 0
        assert listener.counters.handshakes_open == 0
        assert listener.counters.answers_pending == 0
        assert listener.counters.streams_open == 0
        assert listener._shared.budgets.bytes_held == 0
        classes = listener._shared.classes
        assert (classes.unauthenticated, classes.authenticated, classes.privileged) == (0, 0, 0)
        assert classes.by_user == {}
        assert listener._shared.addresses == {}
        assert listener._shared.tasks.running == 0


def short(**limits: Any) -> Limits:
    """The default limits with some changed."""
    return replace(LIMITS, **limits)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("certificates"), name="localhost")


@pytest.fixture
def tls(certificates: CertificateFiles) -> TlsMaterial:
    return TlsMaterial(TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file))


def client_context(ca_file: Path, *, files: CertificateFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if files is not None:
        context.load_cert_chain(files.cert_file, files.key_file)
    return context
