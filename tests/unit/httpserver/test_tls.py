"""TLS: versions, protocols, client certificates, and certificate reload."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from restow.aio import Runtime
from restow.apimachinery.certificates import whole_chain
from restow.apiserver.pki import ensure_pki
from restow.httpserver import PullStream, TlsError, TlsFiles, TlsMaterial, TlsPolicy
from tests.support.certificates import CertificateFiles, make_certificate
from tests.unit.httpserver.conftest import (
    WAIT_SECONDS,
    Client,
    Harness,
    client_context,
    request_bytes,
    short,
    until,
)


def material(files: CertificateFiles, *cas: Path) -> TlsMaterial:
    return TlsMaterial(
        TlsFiles(cert_file=files.cert_file, key_file=files.key_file, client_ca_files=cas)
    )


async def test_requests_over_tls(harness: Harness, certificates: CertificateFiles) -> None:
    """TLS 1.3 and HTTP/1.1 are selected though h2 is offered; large bodies pass both ways."""
    await harness.start(tls=material(certificates))
    harness.app.paths["/list"] = lambda _: PullStream(200, iter([b"x" * 100_000] * 50))
    client = await harness.connect(context=client_context(certificates.ca_file))
    tls = client.writer.get_extra_info("ssl_object")
    assert (tls.version(), tls.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
    client.send(request_bytes("POST", "/", body=b"x" * 2_000_000))
    assert len((await client.answer()).body) == 2_000_002
    client.get("/list")
    assert len((await client.answer()).body) == 5_000_000
    client.get("/last", "Connection: close")
    assert (await client.answer()).body == b"/last|"
    assert await client.rest() == b""
    assert harness.app.seen[0].peer.certificate is None


async def test_a_client_certificate_is_shown(harness: Harness, tmp_path: Path) -> None:
    """With one, the application gets user and groups; without one, requests are accepted too."""
    pki = ensure_pki(tmp_path / "pki", Runtime.system())
    await harness.start(tls=TlsMaterial(pki.tls_files()))
    context = ssl.create_default_context(cafile=pki.ca_file)
    plain = await harness.connect(context=context)
    plain.get()
    assert (await plain.answer()).status == 200
    assert harness.app.seen[0].peer.certificate is None
    context.load_cert_chain(pki.directory / "admin.crt", pki.directory / "admin.key")
    client = await harness.connect(context=context)
    for _ in range(2):
        client.get()
        assert (await client.answer()).status == 200
    first, second = (request.peer.certificate for request in harness.app.seen[1:])
    assert first is second
    assert first is not None
    assert (first.common_name, first.organizations) == ("restow-admin", ("system:masters",))
    assert first.not_before_epoch_seconds < first.not_after_epoch_seconds
    assert ssl.DER_cert_to_PEM_cert(first.der).encode().strip() == pki.admin_cert_pem.strip()


async def ask_over(harness: Harness, context: ssl.SSLContext) -> None:
    client = await harness.connect(context=context)
    client.get()
    await client.answer()


async def test_certificates_of_other_authorities_are_rejected(
    harness: Harness, certificates: CertificateFiles, tmp_path: Path
) -> None:
    """A certificate of another authority, or a server certificate, is rejected."""
    pki = ensure_pki(tmp_path / "pki", Runtime.system())
    await harness.start(tls=TlsMaterial(pki.tls_files()))
    serving = CertificateFiles(pki.ca_file, pki.serving_cert_file, pki.serving_key_file)
    for files in (certificates, serving):
        context = client_context(pki.ca_file, files=files)
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask_over(harness, context)
    assert harness.app.seen == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_old_versions_are_refused(harness: Harness, certificates: CertificateFiles) -> None:
    """TLS 1.2 is supported, 1.1 is not, and a connection without TLS gets no response."""
    listener = await harness.start(tls=material(certificates))
    context = client_context(certificates.ca_file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = await harness.connect(context=context)
    client.get()
    assert (await client.answer()).status == 200
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await harness.connect(context=context)
    plain = await Client.connect(listener.port)
    plain.get()
    assert b"HTTP" not in await plain.rest()
    await plain.close()
    assert len(harness.app.seen) == 1


async def test_suites_of_the_newest_version_alone(
    harness: Harness, certificates: CertificateFiles
) -> None:
    """If only suites of TLS 1.3 are configured, TLS 1.2 with its default suites is disabled."""
    files = TlsFiles(cert_file=certificates.cert_file, key_file=certificates.key_file)
    policy = TlsPolicy(cipher_suites=("TLS_AES_256_GCM_SHA384",))
    await harness.start(tls=TlsMaterial(files, policy))
    context = client_context(certificates.ca_file)
    client = await harness.connect(context=context)
    client.get()
    assert (await client.answer()).status == 200
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await harness.connect(context=context)


def ask_again(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None, *, named: bool, piece: int
) -> tuple[ssl.SSLSession | None, bool, bytes]:
    """Send one request with a session of an earlier connection: the new session, whether the old
    one was resumed, and the response. The ClientHello is sent in pieces of this size."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    name = "localhost" if named else None
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name, session=session)
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def until_done(step: Callable[[], bytes | int | None]) -> bytes:
            while True:
                try:
                    done = step()
                except ssl.SSLWantReadError:
                    data = outgoing.read()
                    for first in range(0, len(data), piece):
                        raw.sendall(data[first : first + piece])
                    incoming.write(raw.recv(1 << 16))
                else:
                    return done if isinstance(done, bytes) else b""

        until_done(tls.do_handshake)
        tls.write(request_bytes("GET", "/", "Connection: close"))
        answer = until_done(lambda: tls.read(1 << 16))
        until_done(lambda: tls.read(1 << 16))  # its close_notify: it has kept the session
        return tls.session, bool(tls.session_reused), answer


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("named", "piece"), [(True, 1 << 16), (False, 1 << 16), (True, 1)], ids=["name", "no", "bytes"]
)
async def test_sessions_are_not_resumed(
    harness: Harness,
    certificates: CertificateFiles,
    version: ssl.TLSVersion,
    named: bool,
    piece: int,
) -> None:
    """A client that offers its last session gets a full handshake, which verifies its certificate,
    and is served all the same."""
    listener = await harness.start(tls=material(certificates, certificates.ca_file))
    context = client_context(certificates.ca_file, files=certificates)
    context.maximum_version = version
    context.check_hostname = named
    session = None
    for _ in range(4):
        session, is_resumed, answer = await asyncio.to_thread(
            ask_again, listener.port, context, session, named=named, piece=piece
        )
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert not is_resumed
    shown = [request.peer.certificate for request in harness.app.seen]
    assert [each.common_name if each else "" for each in shown] == ["localhost"] * 4


async def test_a_long_client_hello_is_not_kept(
    harness: Harness, certificates: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit nothing is held for a second handshake: the offer of a session fails, and
    drops the session, so that the client can connect again."""
    monkeypatch.setattr("restow.httpserver.tls_connection.HELLO_BYTES_MAX", 1)
    listener = await harness.start(tls=material(certificates))
    context = client_context(certificates.ca_file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def ask(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        found, _, _ = await asyncio.to_thread(
            ask_again, listener.port, context, session, named=True, piece=1
        )
        return found

    session = await ask(None)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await ask(session)
    await ask(session)
    assert len(harness.app.seen) == 2


CBC: Final = "ECDHE-ECDSA-AES128-SHA256:ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA384"


@pytest.mark.parametrize("suites", [CBC, "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA"])
async def test_only_authenticated_encryption_is_negotiated(
    harness: Harness, certificates: CertificateFiles, suites: str
) -> None:
    """By default TLS 1.2 is refused with CBC and with static RSA, and works with AES-GCM and
    ChaCha20-Poly1305."""
    await harness.start(tls=material(certificates))
    context = client_context(certificates.ca_file)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(suites)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await harness.connect(context=context)
    for good in ("ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"):
        context.set_ciphers(good)
        client = await harness.connect(context=context)
        client.get()
        assert (await client.answer()).status == 200
        assert client.writer.get_extra_info("ssl_object").cipher()[0] == good


@pytest.mark.parametrize("named", [True, False])
async def test_certificates_are_reloaded(harness: Harness, tmp_path: Path, named: bool) -> None:
    """New connections get the new certificate, with and without a server name; old ones
    continue."""
    old = make_certificate(tmp_path / "old", name="old")
    new = make_certificate(tmp_path / "new", name="new")
    used = tmp_path / "used"
    shutil.copytree(tmp_path / "old", used)
    files = CertificateFiles(used / "ca.pem", used / "cert.pem", used / "key.pem")
    listener = await harness.start(tls=material(files, files.ca_file))

    async def connect(trusted: CertificateFiles, shown: CertificateFiles) -> Client:
        context = client_context(trusted.ca_file, files=shown)
        if not named:
            context.check_hostname = False
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=context, server_hostname="localhost" if named else ""
        )
        client = Client(reader, writer)
        harness.clients.append(client)
        client.get()
        assert (await client.answer()).status == 200
        return client

    before = await connect(old, old)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        shutil.copy(tmp_path / "new" / name, used / name)
    listener.reload()
    after = await connect(new, new)
    certificate = harness.app.seen[-1].peer.certificate
    assert certificate is not None
    assert certificate.common_name == "new"
    (used / "key.pem").write_bytes(old.key_file.read_bytes())
    with pytest.raises(TlsError, match="cannot be used"):
        listener.reload()
    await connect(new, new)
    for client in (before, after):
        client.get()
        assert (await client.answer()).status == 200


def test_files_that_cannot_be_used(certificates: CertificateFiles, tmp_path: Path) -> None:
    """The error names a missing or invalid file."""
    for cert, key, cas in (
        (tmp_path / "none.pem", certificates.key_file, ()),
        (certificates.cert_file, certificates.cert_file, ()),
        (certificates.cert_file, certificates.key_file, (tmp_path / "none.pem",)),
    ):
        with pytest.raises(TlsError, match="cannot be used"):
            TlsMaterial(TlsFiles(cert_file=cert, key_file=key, client_ca_files=cas))


async def test_a_handshake_has_a_deadline(harness: Harness, certificates: CertificateFiles) -> None:
    """A client that connects and sends nothing is disconnected at the handshake deadline."""
    listener = await harness.start(tls=material(certificates), limits=short(handshake_seconds=0.2))
    client = await Client.connect(listener.port)
    assert await client.rest() == b""
    await client.close()
    assert listener.counters.connections_total == 0


async def test_refusals_and_the_stop_over_tls(
    harness: Harness, certificates: CertificateFiles
) -> None:
    """An error response reaches its client, and a stop closes idle connections."""
    listener = await harness.start(tls=material(certificates))
    context = client_context(certificates.ca_file)
    bad, idle = await harness.connect(context=context), await harness.connect(context=context)
    bad.send(request_bytes("POST", "/", "Content-Length: 4000000") + b"x" * 4_000_000)
    assert (await bad.answer()).status == 413
    assert await bad.rest() == b""
    idle.get()
    await idle.answer()
    stopping = asyncio.create_task(listener.stop())
    assert await idle.rest() == b""
    await idle.close()
    await stopping
    await until(lambda: listener.counters.connections_open == 0)


def test_the_chain_of_a_certificate_is_completed_once(
    certificates: CertificateFiles, tmp_path: Path
) -> None:
    """The chain of a single certificate is completed with its authority, if that is configured; one
    with a chain, or of another authority, is unchanged."""
    alone, authority = certificates.cert_file.read_bytes(), certificates.ca_file.read_bytes()
    other = make_certificate(tmp_path, name="other")
    subjects = [
        each.subject
        for each in x509.load_pem_x509_certificates(
            whole_chain(alone, [other.ca_file.read_bytes(), authority, authority])
        )
    ]
    assert subjects == [
        each.subject for each in x509.load_pem_x509_certificates(alone + b"\n" + authority)
    ]
    for pem, known in (
        (alone, []),
        (alone, [other.ca_file.read_bytes()]),
        (alone + b"\n" + authority, [authority]),
        (authority, [authority]),
        (b"nonsense", [authority]),
    ):
        assert whole_chain(pem, known) == pem
