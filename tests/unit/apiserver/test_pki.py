"""The keys of a cluster: generated once, shared, renewed, and rejected when they are not safe."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.pki import (
    Pki,
    PkiError,
    PkiOptions,
    ensure_pki,
    refresh_pki,
    write_secret,
)
from restow.httpserver import TlsMaterial

SECRET_FILES = {
    *("ca.key", "serving.key", "admin.key", "service-account.key", "continue.key", "admin.token"),
    *("ca.crt", "serving.crt", "admin.crt"),
    *("front-proxy-ca.key", "front-proxy-ca.crt"),
    *("front-proxy-client.key", "front-proxy-client.crt"),
}


def at(moment: datetime) -> Runtime:
    return replace(Runtime.system(), clock=SimulatedClock(moment))


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(path: Path) -> set[str]:
    extension = certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    dns = extension.value.get_values_for_type(x509.DNSName)
    return {*dns, *(str(ip) for ip in extension.value.get_values_for_type(x509.IPAddress))}


def contents(pki: Pki) -> dict[str, bytes]:
    return {name: (pki.directory / name).read_bytes() for name in sorted(SECRET_FILES)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pki"


def test_generated_certificates_and_secrets(directory: Path) -> None:
    """Certificates have the right names and usages, secrets 256 bits, and files are private."""
    pki = ensure_pki(directory, Runtime.system(), PkiOptions(bind="10.1.2.3", extra_names=("a.b",)))
    assert {path.name for path in directory.iterdir()} == {*SECRET_FILES, ".lock"}
    for path in (directory, *directory.iterdir()):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
    service = {f"kubernetes{rest}" for rest in ("", ".default", ".default.svc")}
    assert names_of(pki.serving_cert_file) >= {
        *service,
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "a.b",
        socket.gethostname().lower(),
    }
    ca, serving = certificate(pki.ca_file), certificate(pki.serving_cert_file)
    admin = x509.load_pem_x509_certificate(pki.admin_cert_pem)
    now = datetime.now(UTC)
    for made, days in ((ca, 3650), (serving, 365), (admin, 365)):
        assert timedelta(days=days - 1) < made.not_valid_after_utc - now <= timedelta(days=days)
        assert made.not_valid_before_utc < now - timedelta(minutes=50)
        made.verify_directly_issued_by(ca)
        key = made.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
    assert [name.value for name in admin.subject] == ["system:masters", "restow-admin"]
    for made, use in (
        (serving, ExtendedKeyUsageOID.SERVER_AUTH),
        (admin, ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        extension = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        assert list(extension.value) == [use]
    assert len(bytes.fromhex(pki.admin_token)) == 32
    assert len(pki.continue_key) == 32
    assert len(pki.fingerprint) == 64
    TlsMaterial(pki.tls_files())


def test_printing_shows_no_secret(directory: Path) -> None:
    """Their representation contains neither token nor keys."""
    pki = ensure_pki(directory, Runtime.system())
    shown = repr(pki)
    for secret in (pki.admin_token, pki.continue_key.hex(), "PRIVATE KEY"):
        assert secret not in shown


def test_the_second_start_changes_nothing(directory: Path) -> None:
    """Existing files are used unchanged."""
    first = ensure_pki(directory, Runtime.system())
    before = contents(first)
    second = ensure_pki(directory, Runtime.system())
    assert contents(second) == before
    assert second == first


def test_starts_at_once_agree(directory: Path) -> None:
    """Several processes and threads that start at once end with the same keys."""
    code = (
        "import sys; from pathlib import Path; from restow.aio import Runtime;"
        "from restow.apiserver.pki import ensure_pki;"
        "pki = ensure_pki(Path(sys.argv[1]), Runtime.system());"
        "print(pki.fingerprint, pki.admin_token)"
    )
    command = [sys.executable, "-c", code, str(directory)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: ensure_pki(directory, Runtime.system()), range(4)))
    lines = {child.communicate(timeout=60)[0].strip() for child in children}
    lines |= {f"{pki.fingerprint} {pki.admin_token}" for pki in made}
    assert len(lines) == 1


def test_certificates_are_renewed_in_time(directory: Path) -> None:
    """Less than 30 days before expiry a start issues new ones, with the same keys."""
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    first = ensure_pki(directory, at(begin))
    before = contents(first)
    assert contents(ensure_pki(directory, at(begin + timedelta(days=330)))) == before
    later = ensure_pki(directory, at(begin + timedelta(days=340)))
    after = contents(later)
    assert {name for name in before if before[name] != after[name]} == {
        "serving.crt",
        "admin.crt",
        "front-proxy-client.crt",
    }
    assert later.fingerprint == first.fingerprint
    much_later = ensure_pki(directory, at(begin + timedelta(days=3640)))
    ca = certificate(much_later.ca_file)
    assert ca.not_valid_after_utc > begin + timedelta(days=7000)
    certificate(much_later.serving_cert_file).verify_directly_issued_by(ca)
    assert much_later.fingerprint == first.fingerprint
    # No certificate outlives its CA, and a wrong clock is corrected later.
    assert certificate(ensure_pki(directory, at(begin)).ca_file).not_valid_before_utc < begin


def test_the_front_proxy_has_an_authority_of_its_own(directory: Path) -> None:
    """Its client certificate is signed by that CA, and authenticates no user at this server."""
    pki = ensure_pki(directory, Runtime.system())
    own, proxy_ca = certificate(pki.ca_file), certificate(pki.front_proxy_ca_file)
    client = certificate(pki.front_proxy_cert_file)
    client.verify_directly_issued_by(proxy_ca)
    with pytest.raises(ValueError, match=r"."):
        client.verify_directly_issued_by(own)
    assert [name.value for name in client.subject] == ["front-proxy-client"]
    assert pki.front_proxy_ca_pem == pki.front_proxy_ca_file.read_bytes()
    assert pki.client_ca_pem == pki.ca_file.read_bytes()
    assert pki.front_proxy_ca_file not in pki.tls_files().client_ca_files
    ssl.create_default_context().load_cert_chain(
        pki.front_proxy_cert_file, pki.front_proxy_key_file
    )


def test_an_own_etcd_has_an_authority_of_its_own(directory: Path) -> None:
    """Generated on request, private, renewed in time with the same keys; certificates of the
    cluster are not valid for etcd, nor the other way round."""
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    first = ensure_pki(directory, at(begin))
    assert not list(directory.glob("etcd-*"))
    assert ensure_pki(directory, at(begin), PkiOptions(with_etcd=True)) == first
    before = {path.name: path.read_bytes() for path in directory.glob("etcd-*")}
    names = ("etcd-ca", "etcd-client", "etcd-member")
    assert before.keys() == {f"{name}{end}" for name in names for end in (".crt", ".key")}
    for name in before:
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    authority, own = certificate(directory / "etcd-ca.crt"), certificate(first.ca_file)
    client, member = (certificate(directory / f"{name}.crt") for name in names[1:])
    for each in (client, member):
        each.verify_directly_issued_by(authority)
        with pytest.raises(ValueError, match=r"."):
            each.verify_directly_issued_by(own)
    usages = member.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usages) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert names_of(directory / "etcd-member.crt") == {"localhost", "127.0.0.1", "::1"}
    later = at(begin + timedelta(days=340))
    refresh_pki(first, later, PkiOptions(with_etcd=True))
    changed = {name for name in before if (directory / name).read_bytes() != before[name]}
    assert changed == {"etcd-client.crt", "etcd-member.crt"}


def test_a_directory_of_before_gets_the_front_proxy(directory: Path) -> None:
    """Missing keys are generated at the next start, and the fingerprint does not change."""
    first = ensure_pki(directory, Runtime.system())
    for path in directory.glob("front-proxy-*"):
        path.unlink()
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    again = ensure_pki(directory, Runtime.system())
    assert again.fingerprint == first.fingerprint
    assert {name: (directory / name).read_bytes() for name in kept} == kept
    certificate(again.front_proxy_cert_file).verify_directly_issued_by(
        certificate(again.front_proxy_ca_file)
    )


def test_new_names_are_added_to_the_old(directory: Path) -> None:
    """Servers that share the directory keep each other's addresses."""
    ensure_pki(directory, Runtime.system(), PkiOptions(bind="10.0.0.1"))
    ensure_pki(directory, Runtime.system(), PkiOptions(bind="fd00:0::2"))
    third = ensure_pki(directory, Runtime.system(), PkiOptions(bind="0.0.0.0"))
    before = contents(third)
    assert names_of(third.serving_cert_file) >= {"10.0.0.1", "fd00::2"}
    assert "0.0.0.0" not in names_of(third.serving_cert_file)
    again = ensure_pki(directory, Runtime.system(), PkiOptions(bind="10.0.0.1"))
    assert contents(again) == before


def test_a_copy_is_the_same_cluster(directory: Path, tmp_path: Path) -> None:
    """The fingerprint is equal for copies of the keys, and differs for other keys."""
    first = ensure_pki(directory, Runtime.system())
    shutil.copytree(directory, tmp_path / "copy")
    assert ensure_pki(tmp_path / "copy", Runtime.system()).fingerprint == first.fingerprint
    assert ensure_pki(tmp_path / "other", Runtime.system()).fingerprint != first.fingerprint
    (tmp_path / "copy" / "continue.key").unlink()
    assert ensure_pki(tmp_path / "copy", Runtime.system()).fingerprint != first.fingerprint


def test_a_store_of_an_earlier_release(directory: Path, tmp_path: Path) -> None:
    """Its fingerprint includes a given signing key, which all copies without generated keys
    share."""
    first = ensure_pki(directory, Runtime.system())
    assert first.fingerprint_before == first.fingerprint
    given = tmp_path / "given.key"
    given.touch(mode=0o600)
    given.write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())))
    given.chmod(0o600)
    options = PkiOptions(service_account_signing_key_file=given)
    marks = []
    for name in ("a", "b"):
        shutil.copytree(directory, tmp_path / name)
        (tmp_path / name / "service-account.key").unlink()
        marks.append(ensure_pki(tmp_path / name, Runtime.system(), options))
    assert marks[0].fingerprint != marks[1].fingerprint
    assert marks[0].fingerprint_before == marks[1].fingerprint_before != first.fingerprint


def key_pem(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_given_files_take_precedence(directory: Path, tmp_path: Path) -> None:
    """A given serving certificate, account key and client CA replace the generated ones."""
    other = ensure_pki(tmp_path / "other", Runtime.system())
    account = tmp_path / "account.pem"
    account.touch(mode=0o600)
    account.write_bytes(key_pem(rsa.generate_private_key(65537, 2048)))
    plain = ensure_pki(directory, Runtime.system())
    options = PkiOptions(
        tls_cert_file=other.serving_cert_file,
        tls_private_key_file=other.serving_key_file,
        client_ca_file=other.ca_file,
        service_account_signing_key_file=account,
    )
    pki = ensure_pki(directory, Runtime.system(), options)
    files = pki.tls_files()
    assert (files.cert_file, files.key_file) == (other.serving_cert_file, other.serving_key_file)
    assert files.client_ca_files == (plain.ca_file, other.ca_file)
    assert pki.serving_ca_pem == other.serving_cert_file.read_bytes()
    assert pki.client_ca_pem == plain.ca_file.read_bytes() + other.ca_file.read_bytes()
    assert pki.service_account_key_pem == account.read_bytes()
    # The signing key may be changed: the cluster stays the same.
    assert pki.fingerprint == plain.fingerprint
    assert contents(pki) == contents(plain)


@pytest.mark.parametrize("mode", [0o755, 0o705, 0o720, 0o777])
def test_open_directories_are_refused(directory: Path, mode: int) -> None:
    """A directory or key that others can read or change is rejected, with a remedy."""
    ensure_pki(directory, Runtime.system())
    directory.chmod(mode)
    with pytest.raises(PkiError, match=f"chmod 700 {directory}"):
        ensure_pki(directory, Runtime.system())
    directory.chmod(0o700)
    (directory / "ca.key").chmod(mode & 0o666)
    with pytest.raises(PkiError, match=r"chmod 600 .*ca\.key"):
        ensure_pki(directory, Runtime.system())


def test_broken_files_are_named(directory: Path) -> None:
    """Each unusable file is named; none is silently replaced."""
    pki = ensure_pki(directory, Runtime.system())
    good = contents(pki)
    for name in good:
        (directory / name).write_bytes(b"nonsense")
        with pytest.raises(PkiError, match=name.replace(".", r"\.")):
            ensure_pki(directory, Runtime.system())
        (directory / name).write_bytes(good[name])
    (directory / "ca.key").write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(PkiError, match="does not belong to"):
        ensure_pki(directory, Runtime.system())
    (directory / "ca.key").unlink()
    with pytest.raises(PkiError, match="is missing"):
        ensure_pki(directory, Runtime.system())


def test_wrong_options_are_refused(directory: Path, tmp_path: Path) -> None:
    """Half a pair, a missing file, a weak or unsupported key, an invalid name."""
    weak = tmp_path / "weak.pem"
    weak.touch(mode=0o600)
    weak.write_bytes(key_pem(rsa.generate_private_key(65537, 1024)))
    strange = tmp_path / "strange.pem"
    strange.touch(mode=0o600)
    strange.write_bytes(key_pem(ed25519.Ed25519PrivateKey.generate()))
    for options, text in (
        (PkiOptions(tls_cert_file=weak), "given together"),
        (PkiOptions(tls_cert_file=weak, tls_private_key_file=weak), "contains no certificate"),
        (PkiOptions(client_ca_file=tmp_path / "none"), "cannot be read"),
        (PkiOptions(service_account_signing_key_file=weak), "neither elliptic-curve nor RSA"),
        (PkiOptions(service_account_signing_key_file=strange), "neither elliptic-curve nor RSA"),
        (PkiOptions(extra_names=("a b",)), "neither a host name nor an IP address"),
        (PkiOptions(extra_names=tuple(f"h{n}" for n in range(101))), "over 100 names"),
    ):
        with pytest.raises(PkiError, match=text):
            ensure_pki(directory, Runtime.system(), options)


def test_a_crash_leaves_nothing_half_made(directory: Path) -> None:
    """An unfinished file does not block later starts, and a symlink in its place is not
    followed."""
    pki = ensure_pki(directory, Runtime.system())
    victim = directory.parent / "victim"
    victim.write_text("untouched")
    (directory / ".serving.crt.unfinished").symlink_to(victim)
    (directory / ".admin.token.unfinished").write_text("half")
    pki.serving_cert_file.unlink()
    (directory / "admin.token").unlink()
    again = ensure_pki(directory, Runtime.system())
    assert victim.read_text() == "untouched"
    assert certificate(again.serving_cert_file).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert not [path for path in directory.iterdir() if path.name.endswith(".unfinished")]


def test_certificates_pass_a_strict_check(directory: Path) -> None:
    """OpenSSL accepts the chain with its strictest rules."""
    pki = ensure_pki(directory, Runtime.system())
    server = TlsMaterial(pki.tls_files()).context
    client = ssl.create_default_context(cafile=pki.ca_file)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_cert_chain(directory / "admin.crt", directory / "admin.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="kubernetes.default.svc"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() == "TLSv1.3"
    assert ends[1].getpeercert(binary_form=True) is not None


def test_addresses_are_addresses() -> None:
    """IP addresses are IP entries, in the canonical form of `ipaddress`."""
    from restow.apiserver.pki import SERVICE_NAMES

    addresses = [name for name in SERVICE_NAMES if ":" in name or name[0].isdigit()]
    assert addresses == [str(ipaddress.ip_address(name)) for name in addresses]
    assert os.path.sep not in "".join(SERVICE_NAMES)


def test_only_files_are_replaced(tmp_path: Path) -> None:
    """A kubeconfig or key does not replace a device, a pipe or a directory."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "/dev/null"):
        path = tmp_path / name
        before = path.stat().st_mode
        with pytest.raises(PkiError, match="not a regular file"):
            write_secret(path, b"secret")
        assert path.stat().st_mode == before
    write_secret(tmp_path / "file", b"old")
    write_secret(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
