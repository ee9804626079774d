"""Authorities of client certificates: which of them has signed a certificate.

A listener that trusts several sets of authorities says of a certificate only that one of them is
its root. What a certificate may be used for depends on which. Not here: what that is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from restow.apimachinery.certificates import (
    Certificate,
    has_signed,
    is_for_clients,
    read_der,
    read_pem,
)

KNOWN_MAX: Final = 1_024
"""Certificates whose signer is remembered; each is looked at once per connection's life or so."""


class Authorities:
    """The authorities in a bundle.

    A certificate counts as theirs if one of them has signed it itself: the certificates between
    are not known here, so those that sign for an authority stand in the bundle beside it.
    """

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError for what holds no certificate."""
        self._certificates = tuple(read_pem(pem))
        self._signers: dict[bytes, tuple[Certificate, Certificate] | None] = {}

    def have_signed(self, der: bytes, now: datetime) -> bool:
        """Whether a client certificate is theirs, and good at a moment."""
        if der not in self._signers:
            if len(self._signers) >= KNOWN_MAX:
                self._signers.clear()
            self._signers[der] = self._find(der)
        found = self._signers[der]
        return found is not None and all(_is_valid(each, now) for each in found)

    def _find(self, der: bytes) -> tuple[Certificate, Certificate] | None:
        """The certificate with the one that has signed it."""
        try:
            certificate = read_der(der)
        except ValueError:
            return None
        if not is_for_clients(certificate):
            return None
        signers = [each for each in self._certificates if has_signed(each, certificate)]
        # An authority that was renewed is there twice; the one that lasts longest counts.
        signer = max(signers, key=lambda each: each.not_valid_after_utc, default=None)
        return None if signer is None else (certificate, signer)


def _is_valid(certificate: Certificate, now: datetime) -> bool:
    moment = now.astimezone(UTC)
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
