"""Client certificates over real TLS: valid ones, refused ones, and those of a proxy."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from restow.aio import Runtime
from restow.apiserver.assembly import Assembly
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authentication_options import AuthenticationOptions, RequestHeaderOptions
from restow.apiserver.build import assemble
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Foundation
from restow.httpserver import Listener, TlsFiles, TlsMaterial
from restow.request.context import User
from restow.request.responses import error_body
from restow.storage.drivers import open_storage
from tests.conformance.api.servers import BUILTIN, SECRETS, TOKEN
from tests.support.api_client import ApiClient
from tests.support.certificates import CertificateFiles, make_certificate

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class CertificateAuthority:
    """Signs client certificates of all kinds."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._count = 0
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self.pem)

    def client(
        self,
        name: str,
        *groups: str,
        use: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
        ends: timedelta = timedelta(days=1),
    ) -> Path:
        """Writes a file with a certificate and its key."""
        self._count += 1
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        if name:
            parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(parts))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(100 + self._count)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + ends)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._directory / f"{self.file.stem}-{self._count}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        return path


@dataclass(slots=True)
class CertificateServer:
    """A server that trusts user certificates and proxy certificates, each from its own CA."""

    assembly: Assembly
    listener: Listener
    authenticators: Authenticators
    server: CertificateFiles
    people: CertificateAuthority
    proxies: CertificateAuthority
    others: CertificateAuthority

    def client(self, certificate: Path | None = None, *, token: str | None = None) -> ApiClient:
        context = ssl.create_default_context(cafile=self.server.ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return ApiClient(self.listener.port, token=token, tls=context)

    async def who(
        self, certificate: Path, *, token: str | None = None, **headers: str
    ) -> tuple[int, str, list[str]]:
        """Returns the status of a SelfSubjectReview and the username in it."""
        client = self.client(certificate, token=token)
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await client.request("POST", REVIEWS, {}, headers=lines)
        await client.close()
        if reply.status != 201:
            return reply.status, "", []
        info = reply.json["status"]["userInfo"]
        return reply.status, info["username"], info["groups"]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[CertificateServer]:
    runtime = Runtime.system()
    server = make_certificate(tmp_path / "server", name="server")
    people, proxies, others = (
        CertificateAuthority(tmp_path, name) for name in ("people", "proxies", "others")
    )
    authenticators = await Authenticators.load(
        AuthenticationOptions(
            request_header=RequestHeaderOptions(
                client_ca_file=proxies.file, allowed_names=("front",)
            )
        ),
        runtime,
        tokens={TOKEN: User("admin", ("system:masters",))},
        client_ca_pem=people.pem,
    )
    storage = await open_storage("memory:", runtime)
    assembly = await assemble(
        Foundation(storage=storage, catalog=BUILTIN, runtime=runtime),
        AccessOptions(secrets=SECRETS, authenticators=authenticators),
        EndpointOptions(address="127.0.0.1:6443"),
    )
    files = TlsFiles(
        cert_file=server.cert_file,
        key_file=server.key_file,
        client_ca_files=(people.file, *authenticators.client_ca_files),
    )
    listener = await Listener.start(
        assembly.app,
        bind="127.0.0.1",
        port=0,
        runtime=runtime,
        tls=TlsMaterial(files),
        gate=assembly.app.gate,
        quick=assembly.app.quick,
        error_body=error_body,
    )
    yield CertificateServer(assembly, listener, authenticators, server, people, proxies, others)
    await listener.stop(grace_seconds=1)
    await assembly.close()
    await authenticators.close()
    await storage.close()


async def test_a_certificate_names_its_user(server: CertificateServer) -> None:
    """The common name is the user, the organizations are the groups; they take precedence over a
    token."""
    jane = server.people.client("jane", "devs", "ops")
    wanted = (201, "jane", ["devs", "ops", "system:authenticated"])
    assert await server.who(jane) == wanted
    assert await server.who(jane, token=TOKEN) == wanted
    assert await server.who(jane, X_Remote_User="admin") == wanted


async def test_an_invalid_certificate_fails_the_handshake(server: CertificateServer) -> None:
    """A certificate that is expired, of another CA or not for client authentication fails the
    handshake; no request is read."""
    for case, certificate in {
        "expired": server.people.client("jane", ends=timedelta(seconds=-60)),
        "another authority": server.others.client("jane", "system:masters"),
        "for servers": server.people.client("jane", use=ExtendedKeyUsageOID.SERVER_AUTH),
    }.items():
        client = server.client(certificate, token=TOKEN)
        with pytest.raises((ssl.SSLError, OSError, EOFError)):
            await client.get("/version")
        await client.close()
        assert server.listener.counters.requests_total == 0, case


async def test_a_certificate_without_a_common_name_is_ignored(server: CertificateServer) -> None:
    """The request is anonymous, or authenticated by its token if it has one."""
    empty = server.people.client("", "system:masters")
    client = server.client(empty)
    assert (await client.get("/version")).status == 200
    refused = await client.get("/api/v1/namespaces")
    assert refused.status == 403
    assert 'User "system:anonymous"' in refused.message
    await client.close()
    assert (await server.who(empty, token=TOKEN))[1] == "admin"


async def test_a_front_proxy_is_trusted_by_its_certificate(server: CertificateServer) -> None:
    """Its headers count only with its certificate and an allowed name; without headers it is
    anonymous."""
    front, other = server.proxies.client("front"), server.proxies.client("other", "system:masters")
    status, name, groups = await server.who(front, X_Remote_User="ann", X_Remote_Group="devs")
    assert (status, name, groups) == (201, "ann", ["devs", "system:authenticated"])
    assert (await server.who(front))[0] == 401
    assert (await server.who(other, X_Remote_User="ann"))[0] == 401
    assert (await server.who(other))[0] == 401
    assert (await server.who(server.people.client("front"), X_Remote_User="ann"))[1] == "front"
    assert (await server.who(other, token=TOKEN, X_Remote_User="ann"))[1] == "admin"


async def test_removing_a_client_ca_affects_open_connections(server: CertificateServer) -> None:
    """The next request on a connection made before gets 401."""
    client = server.client(server.people.client("jane"))
    assert (await client.request("POST", REVIEWS, {})).status == 201
    server.authenticators.take_clients(server.others.pem)
    # Send different headers: the result for the same ones is cached briefly.
    reply = await client.request("POST", REVIEWS, {}, headers={"X-Other": "line"})
    assert reply.status == 401
    await client.close()


async def test_removing_a_client_ca_ends_watches(server: CertificateServer) -> None:
    """A watch that was started with a certificate of the removed CA gets a 401 and ends, whether a
    user or a front proxy has the certificate."""
    admin = server.people.client("root", "system:masters")
    clients = [server.client(admin), server.client(admin)]
    streams = [await each.watch("/api/v1/namespaces?timeoutSeconds=86400") for each in clients]
    await server.assembly.app.revocation.check_all()
    assert all([await each.is_silent() for each in streams])
    server.authenticators.take_clients(server.others.pem)
    await server.assembly.app.revocation.check_all()
    for stream in streams:
        event = await stream.next()
        assert event is not None
        assert (event["type"], event["object"]["code"]) == ("ERROR", 401)
        assert await stream.next() is None
    assert len(server.assembly.app.revocation.requests) == 0
    for client in clients:
        await client.close()


async def test_an_expired_certificate_ends_watches(server: CertificateServer) -> None:
    """A watch ends cleanly when the certificate of its connection expires, whatever duration it
    requested."""
    admin = server.people.client("root", "system:masters", ends=timedelta(seconds=3))
    client = server.client(admin)
    stream = await client.watch("/api/v1/namespaces?timeoutSeconds=86400")
    assert await stream.next() is None
    with suppress(ssl.SSLError, OSError, EOFError):
        # OpenSSL accepts a certificate until the second after its end is over.
        assert (await client.get("/api/v1/namespaces")).status == 401
    await client.close()
