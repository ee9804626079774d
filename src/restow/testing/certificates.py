"""Certificates for tests: an authority of its own, and what it signs.

Valid for a day and for the loopback address only. Not for production use.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where an authority's certificate, and a certificate with its key, are kept."""

    ca_file: Path
    cert_file: Path
    key_file: Path


def make_certificate(
    directory: Path, *, name: str, host_names: Sequence[str] = ("localhost",)
) -> CertificateFiles:
    """A new authority, and a certificate signed by it that serves both ends of a connection."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _name(f"{name} authority")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    addresses = x509.SubjectAlternativeName(
        [
            *map(x509.DNSName, host_names),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
    )
    certificate = (
        _builder(_name(name), ca_name, key.public_key())
        .add_extension(addresses, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    files = CertificateFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    files.ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251  (other programs compare it with the real time)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
