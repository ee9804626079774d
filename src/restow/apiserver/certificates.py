"""Creates, compares and parses certificates and keys as values, without files or locks.

pki.py decides what they are used for, where they are stored and when they are renewed.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of other machines may be slow.
BACKDATED: Final = timedelta(hours=1)
RSA_BITS_MIN: Final = 2_048

_DNS_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")

OwnKey: TypeAlias = ec.EllipticCurvePrivateKey
AnyKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class PkiError(Exception):
    """Keys that cannot be used. The message contains the remedy."""


class CertificateIssuer:
    """A CA that signs certificates: its key, its certificate, and the time of signing."""

    def __init__(self, key: OwnKey, certificate: x509.Certificate, *, now: datetime) -> None:
        self.key = key
        self.certificate = certificate
        self._now = now

    def sign_server(
        self,
        name: str,
        key: OwnKey,
        *,
        names: list[str],
        days: int,
        serial: int,
        is_client: bool = False,
    ) -> x509.Certificate:
        """Issue a server certificate for some names and addresses, which may also be used as a
        client certificate between such servers."""
        alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if is_client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        builder = self._builder([(NameOID.COMMON_NAME, name)], key, days=days, serial=serial)
        return (
            builder.add_extension(alternatives, critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def sign_client(
        self, user: str, key: OwnKey, *, group: str, days: int, serial: int
    ) -> x509.Certificate:
        """Issue a client certificate for a user, with at most one group."""
        subject = [(NameOID.ORGANIZATION_NAME, group)] if group else []
        subject.append((NameOID.COMMON_NAME, user))
        return (
            self._builder(subject, key, days=days, serial=serial)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def has_signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except Exception:  # noqa: BLE001  (many kinds of errors, one meaning)
            return False
        return True

    def _builder(
        self,
        subject: list[tuple[x509.ObjectIdentifier, str]],
        key: OwnKey,
        *,
        days: int,
        serial: int,
    ) -> x509.CertificateBuilder:
        # No certificate outlives its CA.
        end = min(self._now + timedelta(days=days), self.certificate.not_valid_after_utc)
        return (
            _builder(subject, key, signer=self.key, now=self._now, end=end, serial=serial)
            .issuer_name(self.certificate.subject)
            .add_extension(_usage(signs_certificates=False), critical=True)
        )


def make_authority(
    name: str, key: OwnKey, *, now: datetime, days: int, serial: int
) -> x509.Certificate:
    """Create a self-signed CA certificate."""
    subject = [(NameOID.COMMON_NAME, name)]
    end = now + timedelta(days=days)
    return (
        _builder(subject, key, signer=key, now=now, end=end, serial=serial)
        .issuer_name(_name(subject))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def make_key() -> bytes:
    """Generate a private key, in PEM form."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def fingerprint(ca_key: OwnKey, account_key: AnyKey, continue_key: bytes) -> str:
    """A hash that is equal for equal keys and reveals nothing about them."""
    whole = hashlib.sha256(b"restow cluster keys 1")
    for part in (_public_der(ca_key), _public_der(account_key), b"continue" + continue_key):
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()


def belongs(certificate: x509.Certificate, key: OwnKey) -> bool:
    """Whether a certificate contains the public key of a private key."""
    return _public_der(certificate) == _public_der(key)


def is_host_name(text: str) -> bool:
    return _DNS_NAME.fullmatch(text) is not None


def canonical_name(name: str) -> str:
    """One spelling for each host name or address. Raises PkiError for anything else."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if not is_host_name(name):
            raise PkiError(f"{name!r} is neither a host name nor an IP address") from None
        return name.lower()


def names_of(certificate: x509.Certificate) -> list[str]:
    """The host names and addresses in a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    addresses = [str(value) for value in found.value.get_values_for_type(x509.IPAddress)]
    return [*found.value.get_values_for_type(x509.DNSName), *addresses]


def to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def load_certificate(path: Path, pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise PkiError(f"{path} contains no certificate in PEM form") from None


def time_problem(certificate: x509.Certificate, now: datetime) -> str | None:
    """The reason why a certificate is not valid at a time, or None."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        return f"expired on {end:%Y-%m-%d %H:%M} UTC"
    return f"is not valid before {begin:%Y-%m-%d %H:%M} UTC" if now < begin else None


def load_key(path: Path, pem: bytes) -> AnyKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise PkiError(f"{path} contains an encrypted key: use one without a password") from None
    except ValueError:
        raise PkiError(f"{path} contains no private key in PEM form") from None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= RSA_BITS_MIN:
        return key
    raise PkiError(f"{path} contains a key that is neither elliptic-curve nor RSA of 2048 bits")


def _builder(
    subject: list[tuple[x509.ObjectIdentifier, str]],
    key: OwnKey,
    *,
    signer: OwnKey,
    now: datetime,
    end: datetime,
    serial: int,
) -> x509.CertificateBuilder:
    signer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(own_id, critical=False)
        .add_extension(signer_id, critical=False)
    )


def _name(attributes: list[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes])


def _public_der(holder: x509.Certificate | AnyKey) -> bytes:
    return holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
