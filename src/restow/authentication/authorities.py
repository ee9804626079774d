"""Authorities of client certificates: which of them has signed a certificate.

A listener that trusts several sets of authorities says of a certificate only that one of them is
its root. What a certificate may be used for depends on which. Not here: what that is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

KNOWN_MAX: Final = 1_024
"""Certificates whose signer is remembered; each is looked at once per connection's life or so."""

_CLIENT_USES: Final = frozenset(
    {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
)


class Authorities:
    """The authorities in a bundle.

    A certificate counts as theirs if one of them has signed it itself: the certificates between
    are not known here, so those that sign for an authority stand in the bundle beside it.
    """

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError for what holds no certificate."""
        self._certificates = tuple(x509.load_pem_x509_certificates(pem))
        self._signers: dict[bytes, tuple[x509.Certificate, x509.Certificate] | None] = {}

    def have_signed(self, der: bytes, now: datetime) -> bool:
        """Whether a client certificate is theirs, and good at a moment."""
        if der not in self._signers:
            if len(self._signers) >= KNOWN_MAX:
                self._signers.clear()
            self._signers[der] = self._find(der)
        found = self._signers[der]
        return found is not None and all(_is_valid(each, now) for each in found)

    def _find(self, der: bytes) -> tuple[x509.Certificate, x509.Certificate] | None:
        """The certificate with the one that has signed it."""
        try:
            certificate = x509.load_der_x509_certificate(der)
            if not _is_for_clients(certificate):
                return None
        except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
            return None
        signers = [each for each in self._certificates if _has_signed(each, certificate)]
        # An authority that was renewed is there twice; the one that lasts longest counts.
        signer = max(signers, key=lambda each: each.not_valid_after_utc, default=None)
        return None if signer is None else (certificate, signer)


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
        if not constraints.value.ca:
            return False
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001  (many ways to be wrong, one answer)
        return False
    return True


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return True
    return not _CLIENT_USES.isdisjoint(uses.value)


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    moment = now.astimezone(UTC)
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
