"""X.509 certificates: parsing and comparing them. Pure: no files, no clock.

Not here: creating certificates (`restow.apiserver.certificates`), and certificate signing requests
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
    """Parse all certificates in PEM, at least one. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem)


def read_der(der: bytes) -> Certificate:
    """Parse one certificate in DER. Raises ValueError."""
    return x509.load_der_x509_certificate(der)


def to_pem(certificate: Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def names_of(certificate: Certificate) -> list[str]:
    """Return the DNS names and IP addresses of a certificate; empty if none can be parsed."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return []
    found = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return [*found, *(str(each) for each in addresses)]


def has_signed(authority: Certificate, certificate: Certificate) -> bool:
    """Report whether `authority` is a CA certificate that has signed `certificate`."""
    try:
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
        if not constraints.value.ca:
            return False
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - many possible failures, one result
        return False
    return True


def is_for_clients(certificate: Certificate) -> bool:
    """Report whether a certificate allows client authentication; False if it cannot be parsed."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return True
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return False
    return not _CLIENT_USES.isdisjoint(uses.value)


def is_key_of(key_pem: bytes, certificate: Certificate) -> bool:
    """Report whether a PEM private key belongs to a certificate.

    Raises ValueError if there is no private key, or if it is encrypted.
    """
    try:
        key = load_pem_private_key(key_pem, password=None)
    except TypeError as error:  # it is encrypted
        raise ValueError(str(error)) from error
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def whole_chain(pem: bytes, authorities: Iterable[bytes]) -> bytes:
    """Append the intermediate and root certificates from the client CAs to a single certificate.

    OpenSSL would send the same chain, but it would build and verify it in every handshake, which is
    a third of the cost of a handshake.
    """
    try:
        last, *others = read_pem(pem)
        known = {each for text in authorities for each in read_pem(text)}
        found = [pem]
        while not others and last.issuer != last.subject and len(found) <= CHAIN_LENGTH_MAX:
            issuers = [each for each in known if _has_issued(each, last)]
            if len(issuers) > 1:
                return pem  # the choice depends on the time, so it is left to OpenSSL
            if not issuers:
                break
            (last,) = issuers
            found.append(to_pem(last))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return pem  # loading the certificate reports the error
    return b"\n".join(found)


def _has_issued(authority: Certificate, certificate: Certificate) -> bool:
    if authority.subject != certificate.issuer:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
