"""Certificates for tests: a certificate authority, and the certificates that it signs.

Valid for a day and for the loopback address only. Not for production use.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CA_KEY_NAME: Final = "ca-key.pem"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of a CA certificate, and of a certificate with its key."""

    ca_file: Path
    cert_file: Path
    key_file: Path


def make_certificate(
    directory: Path, *, name: str, host_names: Sequence[str] = ("localhost",)
) -> CertificateFiles:
    """A new authority, and a certificate signed by it for both client and server use."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name(f"{name} authority")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), end=timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    files = _files_in(directory)
    files.ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    _write_key(directory / CA_KEY_NAME, ca_key)
    return sign_certificate(files, directory, name=name, host_names=host_names)


def sign_certificate(
    authority: CertificateFiles,
    directory: Path,
    *,
    name: str,
    host_names: Sequence[str] = ("localhost",),
    end: timedelta = timedelta(days=1),
) -> CertificateFiles:
    """Another certificate of an authority that was created here; `end` may be in the past."""
    directory.mkdir(parents=True, exist_ok=True)
    ca = x509.load_pem_x509_certificate(authority.ca_file.read_bytes())
    ca_key = serialization.load_pem_private_key(
        authority.ca_file.with_name(CA_KEY_NAME).read_bytes(), password=None
    )
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([*map(x509.DNSName, host_names), loopback])
    certificate = (
        _builder(_name(name), ca.subject, key.public_key(), end=end)
        .add_extension(names, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    files = _files_in(directory)
    if files.ca_file != authority.ca_file:
        files.ca_file.write_bytes(authority.ca_file.read_bytes())
    files.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(files.key_file, key)
    return files


def _files_in(directory: Path) -> CertificateFiles:
    return CertificateFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, end: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + end)
    )
