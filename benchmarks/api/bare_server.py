"""The baseline: the minimal TLS server on uvloop and httptools.

It parses only the end of each request and returns the same 1.2 KB. A figure of the API server
divided by this server's is comparable across machines.

    python -m benchmarks.api.bare_server --cert-file C --key-file K --port 0
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
from pathlib import Path

import httptools
import uvloop

BODY_BYTES = 1_200
BODY = b"x" * BODY_BYTES
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)


class BareProtocol(asyncio.Protocol):
    """Parses requests as any server must, and answers without interpreting them."""

    __slots__ = ("_headers", "_parser", "_transport", "_url")

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_message_complete(self) -> None:
        assert self._transport is not None
        self._transport.write(ANSWER)


def make_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    return context


async def serve(*, bind: str, port: int, context: ssl.SSLContext | None) -> None:
    """Serve until cancelled; prints one line when ready."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(BareProtocol, bind, port, ssl=context)
    print(f"ready: port {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A minimal TLS server.")
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cert-file", type=Path, help="without it: plain HTTP")
    parser.add_argument("--key-file", type=Path)
    arguments = parser.parse_args()
    context = make_context(arguments.cert_file, arguments.key_file) if arguments.cert_file else None
    uvloop.run(serve(bind=arguments.bind, port=arguments.port, context=context))


if __name__ == "__main__":
    main()
