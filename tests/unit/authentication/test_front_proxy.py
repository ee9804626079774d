"""Who is believed to say who asks: a proxy with the right certificate, and nobody else."""

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
    """A client certificate that says `front`, whoever has signed it."""
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
    """A certificate of a user who is called like the proxy, of another authority."""
    return signed(tmp_path_factory.mktemp("person"), "people")


def trust_in(files: CertificateFiles, *names: str) -> FrontProxyTrust:
    return FrontProxyTrust(ca_pem=files.ca_file.read_text(), allowed_names=names)


Connect = Callable[[CertificateFiles], Peer]


@pytest.fixture(scope="module")
def connect(server: CertificateFiles, proxy: CertificateFiles, person: CertificateFiles) -> Connect:
    """What a listener that trusts both authorities knows of a client."""
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
    """As a server behind a proxy has it: both kinds of certificates, and tokens."""
    clock = SystemClock()
    return Authentication(
        [
            FrontProxyAuthenticator(trust_in(proxy, *names), clock),
            CertificateAuthenticator(clock, Authorities(person.ca_file.read_bytes())),
            TokenAuthenticator({"good": User("bob")}),
        ]
    )


@pytest.mark.parametrize("names", [("front",), ()], ids=["by name", "any name"])
def test_a_trusted_proxy_is_believed(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles, names: tuple[str, ...]
) -> None:
    """Name, uid, groups and everything else are the user's whom it names."""
    peer = connect(proxy)
    user = chain(proxy, person, *names).authenticate(request(peer, *JANE))
    assert user == User(
        "jane",
        ("developers", "system:masters", "system:authenticated"),
        "4711",
        (("scopes", ("view", "edit")), ("acme.com/team", ("blue",))),
    )
    assert user.is_master


def test_headers_of_all_others_are_nothing(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """A user's certificate with the proxy's name, a token, or nobody: the headers are not read."""
    authentication = chain(proxy, person, "front")
    by_certificate = authentication.authenticate(request(connect(person), *JANE))
    assert (by_certificate.name, by_certificate.groups) == ("front", ("system:authenticated",))
    token = ("authorization", "Bearer good")
    by_token = authentication.authenticate(request(Peer(2), token, *JANE))
    assert by_token == User("bob", ("system:authenticated",))
    nobody = authentication.authenticate(request(Peer(3), *JANE))
    assert nobody.name == "system:anonymous"


def test_a_proxy_is_no_user(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """Its certificate without the headers, or with a name that is not allowed, is refused; with a
    token besides, the token counts."""
    peer = connect(proxy)
    for names, lines in ((("front",), ()), (("another",), JANE)):
        authentication = chain(proxy, person, *names)
        with pytest.raises(StatusError) as refused:
            authentication.authenticate(request(peer, *lines))
        assert refused.value.code == 401
        token = ("authorization", "Bearer good")
        assert authentication.authenticate(request(peer, token, *lines)).name == "bob"


def test_a_proxy_is_believed_only_while_its_certificate_is_good(
    connect: Connect, proxy: CertificateFiles
) -> None:
    """A connection outlives a certificate; what is said on it afterwards does not count."""
    clock = SimulatedClock(datetime.now(UTC))
    authenticator = FrontProxyAuthenticator(trust_in(proxy), clock)
    asked = request(connect(proxy), *JANE)
    assert authenticator.authenticate(asked) is not None
    later = SimulatedClock(datetime.now(UTC) + timedelta(days=2))
    assert FrontProxyAuthenticator(trust_in(proxy), later).authenticate(asked) is None


def test_trust_can_come_change_and_go(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles
) -> None:
    """From one request to the next those are believed who are trusted then."""
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


def test_what_a_cluster_publishes_is_read(proxy: CertificateFiles) -> None:
    """The ConfigMap says who is trusted, or nothing, or what cannot be understood."""
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
    """What a proxy says beyond ASCII arrives as it was meant, in names, groups and extras."""
    told = User("jörg", ("Büro", "営業"), "ü-1", (("scopes", ("größe",)),))
    lines = [(name.lower(), value) for name, value in user_lines(told)]
    found = chain(proxy, person).authenticate(request(connect(proxy), *lines))
    assert found == replace(told, groups=(*told.groups, "system:authenticated"))


@pytest.mark.parametrize("header", ["x-remote-user", "x-remote-group", "x-remote-extra-scopes"])
def test_other_bytes_are_nobodys_name(
    connect: Connect, proxy: CertificateFiles, person: CertificateFiles, header: str
) -> None:
    """Bytes that are no UTF-8 are a 401, never a name that was guessed."""
    lines = (("x-remote-user", "jane"),) if header != "x-remote-user" else ()
    with pytest.raises(StatusError) as refused:
        chain(proxy, person).authenticate(request(connect(proxy), *lines, (header, "j\xf6rg")))
    assert refused.value.code == 401
