"""Certificate authorities (CAs) of client certificates: which of them signed a certificate.

A listener that trusts several CA bundles reports only that the chain of a certificate ends in one
of them. The use of a certificate depends on which one.

Not here: the use of a certificate.
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
"""Maximum number of certificates whose signer is cached; each is checked about once per
connection."""


class Authorities:
    """The CAs in a bundle.

    A certificate matches if a CA of the bundle signed it directly. Intermediate certificates are
    not available here, so intermediate CAs must be in the bundle themselves.
    """

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError if the bundle contains no certificate."""
        self._certificates = tuple(read_pem(pem))
        self._signers: dict[bytes, tuple[Certificate, Certificate] | None] = {}

    def have_signed(self, der: bytes, now: datetime) -> bool:
        """Return whether a CA of the bundle signed a client certificate and both are valid at
        `now`."""
        if der not in self._signers:
            if len(self._signers) >= KNOWN_MAX:
                self._signers.clear()
            self._signers[der] = self._find(der)
        found = self._signers[der]
        return found is not None and all(_is_valid(each, now) for each in found)

    def _find(self, der: bytes) -> tuple[Certificate, Certificate] | None:
        """Return the certificate and the CA certificate that signed it."""
        try:
            certificate = read_der(der)
        except ValueError:
            return None
        if not is_for_clients(certificate):
            return None
        signers = [each for each in self._certificates if has_signed(each, certificate)]
        # A renewed CA is in the bundle twice; use the one that expires last.
        signer = max(signers, key=lambda each: each.not_valid_after_utc, default=None)
        return None if signer is None else (certificate, signer)


def _is_valid(certificate: Certificate, now: datetime) -> bool:
    moment = now.astimezone(UTC)
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
