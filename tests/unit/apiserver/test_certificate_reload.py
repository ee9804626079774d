"""Certificates are renewed and reloaded while a server runs: over real sockets, with a simulated
clock."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from restow.aio import Runtime, SimulatedClock
from restow.apimachinery.cipher_suites import CIPHER_SUITES
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authentication_options import AuthenticationOptions
from restow.apiserver.certificate_reload import CertificateReload, make_material
from restow.apiserver.pki import Pki, PkiError, PkiOptions, ensure_pki
from restow.apiserver.tls_options import NamedCertificate, TlsOptions, parse_named
from restow.httpserver import HttpRequest, HttpResponse, Listener
from restow.request.metrics import Metrics
from tests.support.certificates import CertificateFiles, make_certificate, sign_certificate

DAY_SECONDS = 86_400.0
WAIT_SECONDS = 10.0


def answer(request: HttpRequest) -> HttpResponse:
    certificate = request.peer.certificate
    return HttpResponse(200, (certificate.common_name if certificate else "nobody").encode())


@dataclass(slots=True)
class Served:
    """A listener with its keys, its clock, and its certificate reload."""

    pki: Pki
    clock: SimulatedClock
    renewal: CertificateReload
    port: int

    def context(self, **files: Path) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=files.get("ca", self.pki.ca_file))

    async def connect(
        self, context: ssl.SSLContext | None = None, *, name: str = "localhost"
    ) -> Client:
        async with asyncio.timeout(WAIT_SECONDS):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context or self.context(), server_hostname=name
            )
        return Client(reader, writer)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def certificate(self) -> x509.Certificate:
        """The certificate that the server has presented."""
        shown = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown)

    async def ask(self) -> str:
        """The user that the server authenticates."""
        self._writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(WAIT_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return (await self._reader.readexactly(length)).decode()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            pass


class Starter:
    """Starts listeners, and stops them all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listeners: list[Listener] = []

    async def start(
        self, *, days_ago: float = 0, tls: TlsOptions | None = None, **options: Path
    ) -> Served:
        clock = SimulatedClock(datetime.now(UTC) - timedelta(days=days_ago))
        runtime = replace(Runtime.system(), clock=clock)
        requested = PkiOptions(bind="127.0.0.1", **options)  # type: ignore[arg-type]
        pki = ensure_pki(self._directory / "pki", runtime, requested)
        material = make_material(pki.tls_files(), tls or TlsOptions())
        listener = await Listener.start(
            answer, bind="127.0.0.1", port=0, runtime=Runtime.system(), tls=material
        )
        self._listeners.append(listener)
        renewal = CertificateReload(pki, requested, runtime, material=material)
        return Served(pki, clock, renewal, listener.port)

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.stop(grace_seconds=0.1)


@pytest.fixture
async def starter(tmp_path: Path) -> AsyncIterator[Starter]:
    made = Starter(tmp_path)
    yield made
    await made.stop()


async def test_own_certificates_are_renewed_while_it_runs(starter: Starter) -> None:
    """A month before expiry all are issued again; open connections stay open."""
    served = await starter.start(days_ago=340)
    told: list[Pki] = []
    served.renewal.changed.subscribe(told.append)
    before = await served.connect()
    assert await before.ask() == "nobody"
    await served.clock.advance(330 * DAY_SECONDS)
    await served.renewal.check_once()
    assert told == []  # a month and five days left
    await served.clock.advance(10 * DAY_SECONDS)
    await served.renewal.check_once()
    [renewed] = told
    assert renewed.admin_cert_pem != served.pki.admin_cert_pem
    assert renewed.fingerprint == served.pki.fingerprint
    after = await served.connect()
    assert after.certificate != before.certificate
    left = after.certificate.not_valid_after_utc - datetime.now(UTC)
    assert left > timedelta(days=360)
    assert await before.ask() == await after.ask() == "nobody"
    proxy = x509.load_pem_x509_certificate(renewed.front_proxy_cert_file.read_bytes())
    assert proxy.not_valid_after_utc > datetime.now(UTC) + timedelta(days=360)
    await served.renewal.check_once()
    assert len(told) == 1
    for client in (before, after):
        await client.close()


async def test_the_authority_is_renewed_while_it_runs(starter: Starter) -> None:
    """With the same key: clients that trust the old or the new CA can connect."""
    served = await starter.start(days_ago=3_640)
    old_ca = served.pki.directory / "old-ca.crt"
    shutil.copy(served.pki.ca_file, old_ca)
    await served.clock.advance(3_640 * DAY_SECONDS)
    await served.renewal.check_once()
    assert served.renewal.pki.serving_ca_pem != old_ca.read_bytes()
    assert served.renewal.pki.client_ca_pem != served.pki.client_ca_pem
    assert served.renewal.pki.front_proxy_ca_pem != served.pki.front_proxy_ca_pem
    for ca in (old_ca, served.pki.ca_file):
        context = served.context(ca=ca)
        context.load_cert_chain(served.pki.directory / "admin.crt", _key(served, "admin"))
        client = await served.connect(context)
        assert await client.ask() == "restow-admin"
        await client.close()


async def ask_once(served: Served, context: ssl.SSLContext) -> str:
    """On a connection of its own."""
    client = await served.connect(context)
    try:
        return await client.ask()
    finally:
        await client.close()


def _key(served: Served, name: str) -> Path:
    return served.pki.directory / f"{name}.key"


async def test_a_peer_that_renews_is_followed(starter: Starter) -> None:
    """While another process holds the lock nothing blocks; its result is used afterwards."""
    served = await starter.start(days_ago=340)
    await served.clock.advance(340 * DAY_SECONDS)
    lock = os.open(served.pki.directory / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    await served.renewal.check_once()
    assert served.renewal.pki == served.pki
    os.close(lock)
    peer = ensure_pki(served.pki.directory, Runtime.system())
    await served.renewal.check_once()
    assert served.renewal.pki == peer
    client = await served.connect()
    shown = peer.serving_cert_file.read_bytes()
    assert client.certificate == x509.load_pem_x509_certificate(shown)
    await client.close()


async def test_a_given_pair_is_read_again(
    starter: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By content; half of a new pair is rejected and logged once; then the whole pair is loaded."""
    old = make_certificate(tmp_path / "old", name="old")
    new = make_certificate(tmp_path / "new", name="new")
    used = tmp_path / "used"
    shutil.copytree(tmp_path / "old", used)
    cert, key = used / "cert.pem", used / "key.pem"
    served = await starter.start(tls_cert_file=cert, tls_private_key_file=key)
    metrics = Metrics()
    served.renewal.publish(metrics)
    cert.touch()
    await served.renewal.check_once()
    assert served.renewal.outcomes.success == 0

    shutil.copy(new.cert_file, cert)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            await served.renewal.check_once()
    [said] = [record.getMessage() for record in caplog.records]
    assert str(cert) in said
    assert "the previous content stays in use" in said
    client = await served.connect(served.context(ca=old.ca_file))
    assert await client.ask() == "nobody"
    await client.close()
    assert served.renewal.pki.serving_ca_pem == old.cert_file.read_bytes()

    shutil.copy(new.key_file, key)
    await served.renewal.check_once()
    client = await served.connect(served.context(ca=new.ca_file))
    assert await client.ask() == "nobody"
    await client.close()
    assert served.renewal.pki.serving_ca_pem == new.cert_file.read_bytes()
    text = metrics.document().decode()
    [line] = [
        each
        for each in text.splitlines()
        if each.startswith("restow_serving_certificate_expiration_seconds ")
    ]
    assert 0 < float(line.split()[1]) <= DAY_SECONDS
    assert 'restow_certificate_reloads_total{outcome="success"} 1.0' in text
    assert 'restow_certificate_reloads_total{outcome="failure"} 1.0' in text


async def test_a_given_authority_of_clients_is_read_again(starter: Starter, tmp_path: Path) -> None:
    """Clients of the new CA are accepted after the next check, those of the old one no longer."""
    first = make_certificate(tmp_path / "first", name="first")
    second = make_certificate(tmp_path / "second", name="second")
    ca = tmp_path / "clients.pem"
    shutil.copy(first.ca_file, ca)
    served = await starter.start(client_ca_file=ca)

    async def ask_as(files: CertificateFiles) -> str:
        context = served.context()
        context.load_cert_chain(files.cert_file, files.key_file)
        return await ask_once(served, context)

    refused = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)
    assert await ask_as(first) == "first"
    with pytest.raises(refused):
        await ask_as(second)
    expired = sign_certificate(first, tmp_path / "ex", name="late", end=-timedelta(minutes=1))
    with pytest.raises(refused):
        await ask_as(expired)
    ca.write_text("half a certif")
    await served.renewal.check_once()
    assert await ask_as(first) == "first"
    shutil.copy(second.ca_file, ca)
    await served.renewal.check_once()
    assert await ask_as(second) == "second"
    with pytest.raises(refused):
        await ask_as(first)
    assert second.ca_file.read_bytes() in served.renewal.pki.client_ca_pem


async def test_a_client_ca_bundle_may_begin_with_an_expired_certificate(
    starter: Starter, tmp_path: Path
) -> None:
    """The CA behind it is used after the next check: only serving certificates are compared by
    their expiry."""
    first = make_certificate(tmp_path / "first", name="first")
    second = make_certificate(tmp_path / "second", name="second")
    expired = sign_certificate(first, tmp_path / "ex", name="late", end=-timedelta(minutes=1))
    ca = tmp_path / "clients.pem"
    shutil.copy(first.ca_file, ca)
    served = await starter.start(client_ca_file=ca)
    ca.write_bytes(expired.cert_file.read_bytes() + second.ca_file.read_bytes())
    await served.renewal.check_once()
    context = served.context()
    context.load_cert_chain(second.cert_file, second.key_file)
    assert await ask_once(served, context) == "second"


async def test_files_that_a_start_rejects_are_not_loaded(
    starter: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new pair whose key others can read is rejected, both certificate and key; a client CA
    that is revoked at the same time is removed all the same."""
    old = make_certificate(tmp_path / "old", name="old")
    new = make_certificate(tmp_path / "new", name="new")
    clients = make_certificate(tmp_path / "clients", name="clients")
    used = tmp_path / "used"
    shutil.copytree(tmp_path / "old", used)
    ca = tmp_path / "ca.pem"
    shutil.copy(clients.ca_file, ca)
    served = await starter.start(
        tls_cert_file=used / "cert.pem", tls_private_key_file=used / "key.pem", client_ca_file=ca
    )
    told: list[Pki] = []
    served.renewal.changed.subscribe(told.append)

    async def ask_as_client() -> str:
        context = served.context(ca=old.ca_file)
        context.load_cert_chain(clients.cert_file, clients.key_file)
        return await ask_once(served, context)

    assert await ask_as_client() == "clients"
    shutil.copy(new.cert_file, used / "cert.pem")
    shutil.copy(new.key_file, used / "key.pem")
    (used / "key.pem").chmod(0o644)
    shutil.copy(old.ca_file, ca)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            await served.renewal.check_once()
    [said] = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert "lets other users read it" in said
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask_as_client()
    assert await ask_once(served, served.context(ca=old.ca_file)) == "nobody"
    assert [pki.client_ca_pem for pki in told] == [
        served.pki.ca_pem + old.ca_file.read_bytes(),
    ]
    assert told[0].serving_ca_pem == old.cert_file.read_bytes()
    assert not [each for each in caplog.messages if each.startswith("renewed the certificates")]

    (used / "key.pem").chmod(0o600)
    await served.renewal.check_once()
    assert await ask_once(served, served.context(ca=new.ca_file)) == "nobody"
    assert served.renewal.outcomes.last_error == {}


async def test_an_expired_pair_does_not_replace_a_good_one(
    starter: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the old one stays, unless that has expired as well."""
    old = make_certificate(tmp_path / "old", name="old")
    late = sign_certificate(old, tmp_path / "late", name="late", end=-timedelta(minutes=1))
    used = tmp_path / "used"
    shutil.copytree(tmp_path / "old", used)
    served = await starter.start(
        tls_cert_file=used / "cert.pem", tls_private_key_file=used / "key.pem"
    )
    shutil.copy(late.cert_file, used / "cert.pem")
    shutil.copy(late.key_file, used / "key.pem")
    for _ in range(2):
        await served.renewal.check_once()
    [said] = caplog.messages
    assert "cert.pem expired on" in said
    assert "the certificate in use is still valid" in said
    assert await ask_once(served, served.context(ca=old.ca_file)) == "nobody"
    caplog.clear()
    await served.clock.advance(30 * DAY_SECONDS)
    await served.renewal.check_once()
    assert served.renewal.pki.serving_ca_pem == late.cert_file.read_bytes()
    assert [each for each in caplog.messages if "as did the certificate in use" in each]


async def test_a_pipe_does_not_block(
    starter: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that was replaced by a pipe is named without blocking; other files are checked."""
    old = make_certificate(tmp_path / "old", name="old")
    ca = tmp_path / "ca.pem"
    tokens = tmp_path / "tokens"
    shutil.copy(old.ca_file, ca)
    tokens.write_text("1")
    served = await starter.start(client_ca_file=ca)
    taken: list[str] = []
    served.renewal.follow(tokens, take=lambda: taken.append(tokens.read_text()))
    for path in (ca, served.pki.serving_cert_file):
        path.unlink()
        os.mkfifo(path, 0o600)
    tokens.write_text("2")
    async with asyncio.timeout(WAIT_SECONDS):
        await served.renewal.check_once()
    assert taken == ["2"]
    for path in (ca, served.pki.serving_cert_file):
        assert [
            each for each in caplog.messages if f"{path}" in each and "not a regular file" in each
        ]
    assert await ask_once(served, served.context()) == "nobody"


async def test_other_files_can_be_followed(starter: Starter, tmp_path: Path) -> None:
    """The callback of a followed file is called after each change, until it succeeds."""
    served = await starter.start()
    file, taken = tmp_path / "file", list[str]()
    file.write_text("1")

    def take() -> None:
        if not file.exists():
            raise FileNotFoundError(f"{file} is gone")
        taken.append(file.read_text())

    served.renewal.follow(file, take=take)
    await served.renewal.check_once()
    file.write_text("2")
    await served.renewal.check_once()
    file.unlink()
    await served.renewal.check_once()
    file.write_text("2")
    await served.renewal.check_once()
    file.write_text("3")
    await served.renewal.check_once()
    assert taken == ["2", "3"]


async def test_a_followed_file_that_others_may_write(
    starter: Starter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry of another user is not accepted: the old tokens stay, and the log says why, once,
    even if the file is unchanged."""
    served = await starter.start()
    file = tmp_path / "tokens"
    file.touch(mode=0o600)
    file.write_text("a,ann,1\n")
    authenticators = await Authenticators.load(
        AuthenticationOptions(), Runtime.system(), tokens={}, token_auth_file=file
    )
    authenticators.follow(served.renewal)
    chain = authenticators.chain()
    file.chmod(0o666)
    for line in ("", "evil,mallory,9,system:masters\n"):
        with file.open("a") as opened:
            opened.write(line)
        await served.renewal.check_once()
        assert chain.user_of("evil") is None
        assert chain.user_of("a") is not None
        assert "mode 666" in served.renewal.outcomes.last_error[str(file)]
    [said] = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert f"chmod 600 {file}" in said
    file.write_text("a,ann,1\n")
    file.chmod(0o600)
    await served.renewal.check_once()
    assert served.renewal.outcomes.last_error == {}
    await authenticators.close()


async def test_keys_of_another_cluster_are_not_taken(starter: Starter, tmp_path: Path) -> None:
    """Keys of another cluster were copied over them: the running server keeps its keys, and logs
    it."""
    served = await starter.start()
    other = ensure_pki(tmp_path / "other", Runtime.system())
    for file in other.directory.iterdir():
        shutil.copy(file, served.pki.directory / file.name)
    await served.renewal.check_once()
    assert served.renewal.pki == served.pki
    [said] = [v for k, v in served.renewal.outcomes.last_error.items() if "keys" in k]
    assert "contains the keys of another cluster" in said


async def test_a_client_certificate_can_be_required(starter: Starter) -> None:
    """Without a certificate the connection is refused; with one it is accepted."""
    served = await starter.start(tls=TlsOptions(client_auth="required"))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask_once(served, served.context())
    context = served.context()
    context.load_cert_chain(served.pki.directory / "admin.crt", _key(served, "admin"))
    client = await served.connect(context)
    assert await client.ask() == "restow-admin"
    await client.close()


async def test_version_and_suites_can_be_chosen(starter: Starter) -> None:
    """Minimum version TLS 1.3 refuses 1.2; a selected suite of 1.2 is the only one."""
    served = await starter.start(tls=TlsOptions(min_version="VersionTLS13"))
    context = served.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await served.connect(context)
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    chosen = await starter.start(tls=TlsOptions(cipher_suites=(suite,)))
    client = await chosen.connect(context)
    found = client._writer.get_extra_info("cipher")[0]
    assert found == CIPHER_SUITES[suite]
    await client.close()
    with pytest.raises(ValueError, match="--tls-cipher-suites: 'RC4' is not one of"):
        TlsOptions(cipher_suites=("RC4",))


async def test_names_that_clients_ask_for(starter: Starter, tmp_path: Path) -> None:
    """Each name gets its certificate, a wildcard matches one label, other names get the default."""
    files = make_certificate(tmp_path / "a", name="a", host_names=("a.example", "*.b.example"))
    given = NamedCertificate(cert_file=files.cert_file, key_file=files.key_file)
    served = await starter.start(tls=TlsOptions(named=(given,)))
    context = served.context(ca=files.ca_file)
    for name in ("a.example", "x.b.example"):
        client = await served.connect(context, name=name)
        assert await client.ask() == "nobody"
        await client.close()
    for name in ("localhost", "127.0.0.1"):
        client = await served.connect(name=name)
        assert await client.ask() == "nobody"
        await client.close()


def test_how_names_are_written() -> None:
    """A pair alone, a pair with names, and invalid values."""
    assert parse_named("c,k") == NamedCertificate(cert_file=Path("c"), key_file=Path("k"))
    assert parse_named("c,k:*.A.example,b").names == ("*.a.example", "b")
    for text in ("c", "c,k,x", ",k", "", "c,:n"):
        with pytest.raises(ValueError, match="is not CERT,KEY"):
            parse_named(text)


def test_a_given_key_must_be_secret(tmp_path: Path) -> None:
    """A key that others can read is rejected, whichever flag names it."""
    files = make_certificate(tmp_path / "a", name="a")
    files.key_file.chmod(0o644)
    requested = PkiOptions(tls_cert_file=files.cert_file, tls_private_key_file=files.key_file)
    with pytest.raises(PkiError, match=r"chmod 600 .*key\.pem"):
        ensure_pki(tmp_path / "pki", Runtime.system(), requested)


async def test_old_versions_are_refused_on_the_wire(starter: Starter) -> None:
    """A TLS 1.0 or 1.1 ClientHello is answered with an alert only."""
    served = await starter.start()
    for minor in (1, 2):
        hello = _old_hello(minor)
        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_SECONDS) as peer:
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, hello)
            async with asyncio.timeout(WAIT_SECONDS):
                said = await loop.sock_recv(peer, 100)
                rest = await loop.sock_recv(peer, 100) if said else b""
        assert said[:1] in (b"\x15", b"")  # an alert
        assert rest == b""


def _old_hello(minor: int) -> bytes:
    """The ClientHello of an old client."""
    version = bytes([3, minor])
    suites = bytes.fromhex("c009c00ac013c014002f0035")
    body = version + bytes(32) + b"\0" + len(suites).to_bytes(2) + suites + b"\1\0"
    handshake = b"\1" + len(body).to_bytes(3) + body
    return b"\x16" + version + len(handshake).to_bytes(2) + handshake
