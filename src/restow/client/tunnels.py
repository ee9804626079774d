"""Connections to a server: direct, or through an HTTP or SOCKS5 proxy.

An HTTP proxy opens a tunnel by CONNECT, for plain http servers too; over https, TLS to the server
runs inside TLS to the proxy. SOCKS5 is by python-socks. The proxy resolves the server's name.

Not here: which proxy is used (`proxies`), and the reuse of connections (`connections`).
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass
from typing import Final

from restow.client.errors import ProtocolBroken, ProxyFailed
from restow.client.http1 import STREAM_BYTES_MAX, encode_connect, read_tunnel_status
from restow.client.proxies import ProxyAddress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# The caller has the deadline; python-socks needs one of its own.
_SOCKS_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and the TLS of its connection."""

    host: str
    port: int
    context: ssl.SSLContext | None
    """None: plain http."""
    server_name: str | None
    """The name in its certificate; None for plain http."""


async def open_streams(
    target: Target, proxy: ProxyAddress | None, proxy_context: ssl.SSLContext | None
) -> Streams:
    """Connect to the server. Raises OSError, SSLError or ValueError, and ProxyFailed if the proxy
    is the cause. `proxy_context` is for TLS to a proxy of the scheme https."""
    if proxy is None:
        return await asyncio.open_connection(
            target.host,
            target.port,
            ssl=target.context,
            server_hostname=target.server_name,
            limit=STREAM_BYTES_MAX,
        )
    if proxy.scheme in {"socks5", "socks5h"}:
        return await _over_socks(target, proxy)
    return await _over_http(target, proxy, proxy_context)


async def _over_socks(target: Target, proxy: ProxyAddress) -> Streams:
    # Not at the top: the import takes tens of milliseconds, and few clusters need it.
    from python_socks import ProxyError, ProxyType  # noqa: PLC0415
    from python_socks.async_.asyncio import Proxy  # noqa: PLC0415

    socks = Proxy(
        ProxyType.SOCKS5,
        proxy.host,
        proxy.port,
        username=proxy.username or None,
        password=proxy.password or None,
        rdns=True,
    )
    try:
        found = await socks.connect(target.host, target.port, timeout=_SOCKS_SECONDS_MAX)
    except (ProxyError, OSError, ValueError) as error:
        raise _failed(proxy, error) from error
    try:
        return await asyncio.open_connection(
            sock=found,
            ssl=target.context,
            server_hostname=target.server_name,
            limit=STREAM_BYTES_MAX,
        )
    except BaseException:
        found.close()
        raise


async def _over_http(
    target: Target, proxy: ProxyAddress, proxy_context: ssl.SSLContext | None
) -> Streams:
    loop = asyncio.get_running_loop()
    reader, protocol = _reading(loop)
    try:
        transport, _ = await loop.create_connection(
            lambda: protocol,
            proxy.host,
            proxy.port,
            ssl=proxy_context if proxy.scheme == "https" else None,
        )
    except (OSError, ValueError) as error:
        raise _failed(proxy, error) from error
    try:
        await _connect(reader, transport, target, proxy)
        if target.context is not None:
            transport, reader, protocol = await _start_tls(transport, target)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
    except BaseException:
        transport.abort()
        raise


async def _connect(
    reader: asyncio.StreamReader,
    transport: asyncio.Transport,
    target: Target,
    proxy: ProxyAddress,
) -> None:
    host = f"[{target.host}]" if ":" in target.host else target.host
    headers = []
    if proxy.username or proxy.password:
        pair = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        headers.append(("Proxy-Authorization", f"Basic {pair}"))
    try:
        transport.write(encode_connect(f"{host}:{target.port}", headers))
        status = await read_tunnel_status(reader)
    except (OSError, EOFError, ProtocolBroken) as error:
        raise _failed(proxy, error) from error
    if status == 407:
        raise ProxyFailed(
            f"the proxy {proxy} requires a user name and password (407)",
            f"Put them into {proxy.source}, as {proxy.scheme}://USER:PASSWORD@HOST:PORT",
        )
    if not 200 <= status < 300:
        raise ProxyFailed(
            f"the proxy {proxy} answered {status} to CONNECT {host}:{target.port}",
            f"Check {proxy.source}, and whether the proxy allows this address",
        )
    if reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001
        raise ProxyFailed(
            f"the proxy {proxy} sent data before the server did", f"Check {proxy.source}"
        )


async def _start_tls(
    transport: asyncio.Transport, target: Target
) -> tuple[asyncio.Transport, asyncio.StreamReader, asyncio.StreamReaderProtocol]:
    """TLS to the server inside the tunnel, with a new reader: that of the tunnel ends here."""
    assert target.context is not None
    loop = asyncio.get_running_loop()
    inner, protocol = _reading(loop)
    upgraded = await loop.start_tls(
        transport, protocol, target.context, server_hostname=target.server_name
    )
    if upgraded is None:
        raise ConnectionResetError("closed during the TLS handshake")
    protocol.connection_made(upgraded)
    return upgraded, inner, protocol


def _reading(
    loop: asyncio.AbstractEventLoop,
) -> tuple[asyncio.StreamReader, asyncio.StreamReaderProtocol]:
    # Without a StreamWriter, which would close the tunnel when it is garbage-collected.
    reader = asyncio.StreamReader(limit=STREAM_BYTES_MAX, loop=loop)
    return reader, asyncio.StreamReaderProtocol(reader, loop=loop)


def _failed(proxy: ProxyAddress, error: BaseException) -> ProxyFailed:
    why = getattr(error, "strerror", None) or getattr(error, "verify_message", None) or str(error)
    if isinstance(error, EOFError):
        why = "it closed the connection"
    return ProxyFailed(
        f"no connection through the proxy {proxy}: {why}", f"Check {proxy.source}, and the proxy"
    )
