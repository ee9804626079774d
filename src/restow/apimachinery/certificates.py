"""X.509 certificates: reading and comparing them. Pure: no files, no clock.

Not here: making certificates (`restow.apiserver.certificates`), and certificate signing requests
(`signing_requests`).
"""

from __future__ import annotations

from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

Certificate: TypeAlias = x509.Certificate


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
