"""Clients with valid keys that send records which no TLS library sends, over real sockets.

The fuzz target `TLS` draws such clients; these are the floods by name.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from restow.httpserver import TlsMaterial
from restow.httpserver.tls_connection import EMPTY_RECORDS_MAX
from tests.support.certificates import CertificateFiles
from tests.support.tls_records import (
    ALERT,
    CLIENT_HELLO,
    HANDSHAKE,
    Sealer,
    keep_secrets,
    sealer_of,
)
from tests.unit.httpserver.conftest import Client, Harness, client_context, request_bytes, until

FLOOD = 2_000
GET = request_bytes("GET", "/")
TLS_12, TLS_13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

Flood = Callable[[Sealer], Iterator[bytes]]


def renegotiations(sealer: Sealer) -> Iterator[bytes]:
    return (sealer.seal(CLIENT_HELLO, HANDSHAKE) for _ in range(FLOOD))


def packed_renegotiations(sealer: Sealer) -> Iterator[bytes]:
    """4,000 messages in each record."""
    return (sealer.seal(b"\x01\x00\x00\x00" * 4_000, HANDSHAKE) for _ in range(FLOOD // 20))


def key_updates(sealer: Sealer) -> Iterator[bytes]:
    return (sealer.update_key(is_requested=number % 2 == 0) for number in range(FLOOD))


def empty_records(sealer: Sealer) -> Iterator[bytes]:
    return (sealer.seal(b"") for _ in range(FLOOD))


def padded_records(sealer: Sealer) -> Iterator[bytes]:
    return (sealer.seal(b"", padding=10_000) for _ in range(FLOOD // 20))


def warnings(sealer: Sealer) -> Iterator[bytes]:
    """Alerts that do not end a connection by themselves."""
    return (sealer.seal(b"\x01\x5a", ALERT) for _ in range(FLOOD))


async def greet(client: Client, context: ssl.SSLContext, key_log: Path) -> Sealer:
    """Do a handshake through memory."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    first_bytes = b""
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            client.send(outgoing.read())
            data = await client.reader.read(1 << 16)
            first_bytes = first_bytes or data
            incoming.write(data)
        else:
            client.send(outgoing.read())
            return sealer_of(key_log, tls, first_bytes)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("version", "flood"),
    [
        (TLS_12, renegotiations),
        (TLS_12, packed_renegotiations),
        (TLS_12, empty_records),
        (TLS_12, warnings),
        (TLS_13, key_updates),
        (TLS_13, empty_records),
        (TLS_13, padded_records),
        (TLS_13, warnings),
        (TLS_13, renegotiations),
    ],
)
async def test_floods_without_data(
    harness: Harness,
    certificates: CertificateFiles,
    tls: TlsMaterial,
    tmp_path: Path,
    *,
    version: ssl.TLSVersion,
    flood: Flood,
    is_known: bool,
) -> None:
    """A flood of records without data ends its connection after few of them, whether its client is
    authenticated or not; the request before it was answered, and others are served."""
    await harness.start(tls=tls)
    context = client_context(certificates.ca_file)
    keep_secrets(context, tmp_path / "keys", version=version)
    client = await harness.connect()
    sealer = await greet(client, context, tmp_path / "keys")
    client.send(sealer.seal(GET))
    await until(lambda: len(harness.app.seen) == 1)
    if is_known:
        harness.connection.peer.admit("alice", is_privileged=False)
    secured = harness.connection._transport
    decrypt, calls = secured._decrypt, []  # type: ignore[attr-defined]

    def counted(nbytes: int) -> bytes:
        calls.append(nbytes)
        return decrypt(nbytes)  # type: ignore[no-any-return]

    secured._decrypt = counted  # type: ignore[attr-defined]
    client.send(b"".join(flood(sealer)))
    counters = harness.listeners[-1].counters
    await until(lambda: counters.connections_open == 0)
    # OpenSSL would answer each message of a renegotiation; a record of 4,000 took 8 ms and made
    # 124 KB of alerts. A long record can arrive in two parts, each of which is given to OpenSSL.
    is_renegotiation = version is TLS_12 and flood in (renegotiations, packed_renegotiations)
    assert len(calls) <= (0 if is_renegotiation else 2 * (EMPTY_RECORDS_MAX + 1))
    other = await harness.connect(context=client_context(certificates.ca_file))
    other.get("/other")
    assert (await other.answer()).status == 200
