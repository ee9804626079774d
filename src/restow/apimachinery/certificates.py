"""X.509 certificates: reading and comparing them. Pure: no files, no clock.

Not here: making certificates (`restow.apiserver.certificates`), and certificate signing requests
(`certificate_signing_requests`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

CHAIN_LENGTH_MAX: Final = 8

Certificate: TypeAlias = x509.Certificate

_CLIENT_USES: Final = frozenset(
    {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
)


def read_pem(pem: bytes) -> list[Certificate]:
    """All certificates of a text, at least one. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem)


def read_der(der: bytes) -> Certificate:
    """One certificate in its binary form. Raises ValueError."""
    return x509.load_der_x509_certificate(der)


def to_pem(certificate: Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def names_of(certificate: Certificate) -> list[str]:
    """The DNS names and addresses that it is for; empty if none can be read."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return []
    found = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return [*found, *(str(each) for each in addresses)]


def has_signed(authority: Certificate, certificate: Certificate) -> bool:
    """Whether it is the certificate of an authority, whose key has signed another one."""
    try:
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
        if not constraints.value.ca:
            return False
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  (many ways to be wrong, one answer)
        return False
    return True


def is_for_clients(certificate: Certificate) -> bool:
    """Whether clients may use it; False if its extensions cannot be read."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return True
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return False
    return not _CLIENT_USES.isdisjoint(uses.value)


def is_key_of(key_pem: bytes, certificate: Certificate) -> bool:
    """Whether a private key in PEM form is the one that a certificate was made for.

    Raises ValueError for what holds no private key, or one that is encrypted.
    """
    try:
        key = load_pem_private_key(key_pem, password=None)
    except TypeError as error:  # it is encrypted
        raise ValueError(str(error)) from error
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def whole_chain(pem: bytes, authorities: Iterable[bytes]) -> bytes:
    """A certificate that comes alone, and behind it those that vouch for it, as far as they are
    among the authorities of clients.

    OpenSSL would send the same. But it would look for them, and check each, with every handshake:
    that is a third of what a handshake costs.
    """
    try:
        last, *others = read_pem(pem)
        known = {each for text in authorities for each in read_pem(text)}
        found = [pem]
        while not others and last.issuer != last.subject and len(found) <= CHAIN_LENGTH_MAX:
            above = [each for each in known if _vouches(each, last)]
            if len(above) > 1:
                return pem  # which one is good depends on the time: OpenSSL looks each time
            if not above:
                break
            (last,) = above
            found.append(to_pem(last))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return pem  # loading it reports what is wrong
    return b"\n".join(found)


def _vouches(authority: Certificate, certificate: Certificate) -> bool:
    if authority.subject != certificate.issuer:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
