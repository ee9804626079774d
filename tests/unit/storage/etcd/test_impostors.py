"""Servers that are not the configured etcd get nothing: no request, no password, no plain text."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from restow.aio import Runtime
from restow.storage.errors import StorageError
from restow.storage.etcd import open_etcd, parse_address
from tests.support.certificates import CertificateFiles, make_certificate, sign_certificate

PREFACE = b"PRI * HTTP/2.0"


@asynccontextmanager
async def listening(received: list[bytes], context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """A server that keeps the first bytes of each connection, after its handshake."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                with accepted, suppress(OSError):
                    accepted.settimeout(5)
                    if context is None:
                        received.append(accepted.recv(100))
                        continue
                    with context.wrap_socket(accepted, server_side=True) as secured:
                        if data := secured.recv(100):
                            received.append(data)

    serving = asyncio.create_task(asyncio.to_thread(serve))
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        await serving
        listener.close()


def context_of(files: CertificateFiles, *, protocol: str = "h2") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert_file, files.key_file)
    context.set_alpn_protocols([protocol])
    return context


async def attempt(address: str) -> None:
    with pytest.raises(StorageError):
        await open_etcd(parse_address(address), Runtime.system())


@pytest.mark.parametrize("kind", ["right", "name", "expired", "authority"])
async def test_the_certificate_of_the_server(tmp_path: Path, kind: str) -> None:
    """Only a server with a valid certificate of the authority for the configured name gets a
    request."""
    authority = make_certificate(tmp_path / "ca", name="ca")
    match kind:
        case "right":
            files = authority
        case "name":
            files = sign_certificate(
                authority, tmp_path / "s", name="s", host_names=["other.example.org"]
            )
        case "expired":
            files = sign_certificate(authority, tmp_path / "s", name="s", end=-timedelta(hours=1))
        case _:
            files = make_certificate(tmp_path / "s", name="s")
    received: list[bytes] = []
    async with listening(received, context_of(files)) as port:
        ca = authority.ca_file
        await attempt(f"etcds://localhost:{port}?ca={ca}")
    if kind == "right":
        assert received
        assert all(each.startswith(PREFACE) for each in received)
    else:
        assert received == []


@pytest.mark.parametrize("scheme", ["etcd", "etcds"])
async def test_no_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """The store is never reached through a proxy that the environment names, which would see every
    key and value of an `etcd://` address."""
    received: list[bytes] = []
    async with listening(received, None) as port:
        for name in ("grpc_proxy", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        for name in ("no_grpc_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        await attempt(f"{scheme}://127.0.0.1:1")
    assert received == []
