"""Authenticating front proxies are trusted by their client certificate only."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from restow.aggregator.forwarded_headers import user_lines
from restow.aio import SimulatedClock, SystemClock
from restow.apimachinery.status_error import StatusError
from restow.apiserver import certificates
from restow.authentication import (
    Authentication,
    Authorities,
    CertificateAuthenticator,
    FrontProxyAuthenticator,
    FrontProxyTrust,
    TokenAuthenticator,
    read_trust,
)
from restow.httpserver import TlsFiles, TlsMaterial
from restow.httpserver.request import Headers, HttpRequest, Peer, PeerCertificate
from restow.request.context import User
from tests.support.certificates import CertificateFiles, make_certificate

JANE = (
    ("x-remote-user", "jane"),
    ("x-remote-uid", "4711"),
    ("x-remote-group", "developers"),
    ("x-remote-group", "system:masters"),
    ("x-remote-extra-scopes", "view"),
    ("x-remote-extra-scopes", "edit"),
    ("x-remote-extra-acme.com%2fteam", "blue"),
)


def signed(directory: Path, authority: str) -> CertificateFiles:
    """Return a client certificate with the common name `front`, signed by the given CA."""
    now = datetime.now(UTC)
    ca_key, key = (
        certificates.load_key(directory / "key", certificates.make_key()) for _ in range(2)
    )
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ca = certificates.make_authority(authority, ca_key, now=now, days=2, serial=1)
    issuer = certificates.CertificateIssuer(ca_key, ca, now=now)
    client = issuer.sign_client("front", key, group="", days=1, serial=2)
    files = CertificateFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    files.ca_file.write_bytes(certificates.to_pem(ca))
    files.cert_file.write_bytes(certificates.to_pem(client))
    files.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return make_certificate(tmp_path_factory.mktemp("server"), name="server")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return signed(tmp_path_factory.mktemp("proxy"), "proxies")


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """A user's certificate with the common name of the proxy, from another CA."""
    return signed(tmp_path_factory.mktemp("person"), "people")


def trust_in(files: CertificateFiles, *names: str) -> FrontProxyTrust:
    return FrontProxyTrust(ca_pem=files.ca_file.read_text(), allowed_names=names)


Connect = Callable[[CertificateFiles], Peer]


@pytest.fixture(scope="module")
def connect(server: CertificateFiles, proxy: CertificateFiles, person: CertificateFiles) -> Connect:
    """Return a request as a listener that trusts both CAs receives it."""
    return lambda client: after_handshake(client, server, (proxy, person))


def after_handshake(
    client: CertificateFiles, files: CertificateFiles, trusted: Sequence[CertificateFiles]
) -> Peer:
    material = TlsMaterial(
        TlsFiles(
            cert_file=files.cert_file,
            key_file=files.key_file,
            client_ca_files=tuple(each.ca_file for each in trusted),
        )
    )
    context = ssl.create_default_context(cafile=files.ca_file)
    context.load_cert_chain(client.cert_file, client.key_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = material.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = PeerCertificate.of(far)
    assert certificate is not None
    return Peer(1, certificate=certificate)


def request(peer: Peer, *lines: tuple[str, str]) -> HttpRequest:
    return HttpRequest("GET", "/api", "", Headers(lines), b"", peer, 0.0)


def chain(proxy: CertificateFiles, person: CertificateFiles, *names: str) -> Authentication:
    """Return the authenticators of a server behind a proxy: both kinds of certificates, and
    tokens."""
    clock = SystemClock()
    return Authentication(
        [
            FrontProxyAuthenticator(trust_in(proxy, *names), clock),
            CertificateAuthenticator(clock, Authorities(person.ca_file.read_bytes())),
            TokenAuthenticator({"good": User("bob")}),
        ]
    )


@pytest.mark.parametrize("names", [("front",), ()], ids=["by name", "any name"])
def test_a_trusted_proxy_authenticates_users(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles, names: tuple[str, ...]
) -> None:
    """Name, uid, groups and extra are those of the user in the headers."""
    peer = connect(proxy)
    user = chain(proxy, person, *names).authenticate(request(peer, *JANE))
    assert user == User(
        "jane",
        ("developers", "system:masters", "system:authenticated"),
        "4711",
        (("scopes", ("view", "edit")), ("acme.com/team", ("blue",))),
    )
    assert user.is_master


def test_headers_of_other_clients_are_ignored(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """The headers of other clients are ignored: with a user's certificate of the same name, with a
    token, without credentials."""
    authentication = chain(proxy, person, "front")
    by_certificate = authentication.authenticate(request(connect(person), *JANE))
    assert (by_certificate.name, by_certificate.groups) == ("front", ("system:authenticated",))
    token = ("authorization", "Bearer good")
    by_token = authentication.authenticate(request(Peer(2), token, *JANE))
    assert by_token == User("bob", ("system:authenticated",))
    anonymous = authentication.authenticate(request(Peer(3), *JANE))
    assert anonymous.name == "system:anonymous"


def test_a_proxy_is_no_user(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """A proxy without the headers, or with a name that is not allowed, is refused; a token in the
    request counts."""
    peer = connect(proxy)
    for names, lines in ((("front",), ()), (("another",), JANE)):
        authentication = chain(proxy, person, *names)
        with pytest.raises(StatusError) as refused:
            authentication.authenticate(request(peer, *lines))
        assert refused.value.code == 401
        token = ("authorization", "Bearer good")
        assert authentication.authenticate(request(peer, token, *lines)).name == "bob"


def test_an_expired_proxy_certificate_is_rejected(
    connect: Connect, proxy: CertificateFiles
) -> None:
    """Requests on an open connection are refused once the certificate has expired."""
    clock = SimulatedClock(datetime.now(UTC))
    authenticator = FrontProxyAuthenticator(trust_in(proxy), clock)
    asked = request(connect(proxy), *JANE)
    assert authenticator.authenticate(asked) is not None
    later = SimulatedClock(datetime.now(UTC) + timedelta(days=2))
    assert FrontProxyAuthenticator(trust_in(proxy), later).authenticate(asked) is None


def test_trust_can_come_change_and_go(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """Replacing the trust takes effect with the next request."""
    authenticator = FrontProxyAuthenticator(None, SystemClock())
    asked = request(connect(proxy), *JANE)
    assert authenticator.authenticate(asked) is None
    authenticator.take(trust_in(proxy))
    assert authenticator.authenticate(asked) is not None
    authenticator.take(trust_in(person))
    assert authenticator.authenticate(asked) is None
    with pytest.raises(ValueError, match=r"."):
        authenticator.take(FrontProxyTrust(ca_pem="nonsense"))
    assert authenticator.trust == trust_in(person)


def test_the_published_trust_is_read(proxy: CertificateFiles) -> None:
    """The ConfigMap contains the trust, or nothing, or is invalid."""
    data = {
        "requestheader-client-ca-file": proxy.ca_file.read_text(),
        "requestheader-allowed-names": '["front"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    found = read_trust(data)
    assert found is not None
    assert found.allowed_names == ("front",)
    assert found.uid_headers == ()
    assert read_trust({"client-ca-file": "x"}) is None
    for broken in ("{", "{}", "[1]"):
        with pytest.raises(ValueError, match="requestheader-allowed-names"):
            read_trust({**data, "requestheader-allowed-names": broken})
    with pytest.raises(ValueError, match="at least one username header"):
        read_trust({**data, "requestheader-username-headers": "[]"})


def test_names_are_utf_8(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """UTF-8 in names, groups and extra values is decoded."""
    told = User("jörg", ("Büro", "営業"), "ü-1", (("scopes", ("größe",)),))
    lines = [(name.lower(), value) for name, value in user_lines(told)]
    found = chain(proxy, person).authenticate(request(connect(proxy), *lines))
    assert found == replace(told, groups=(*told.groups, "system:authenticated"))


@pytest.mark.parametrize("header", ["x-remote-user", "x-remote-group", "x-remote-extra-scopes"])
def test_invalid_utf_8_is_rejected(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles, header: str
) -> None:
    """Invalid UTF-8 is a 401."""
    lines = (("x-remote-user", "jane"),) if header != "x-remote-user" else ()
    with pytest.raises(StatusError) as refused:
        chain(proxy, person).authenticate(request(connect(proxy), *lines, (header, "j\xf6rg")))
    assert refused.value.code == 401
