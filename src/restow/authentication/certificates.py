"""Client certificates: the common name is the user, the organizations are the groups."""

from __future__ import annotations

import hashlib
from typing import Final

from restow.aio import Clock
from restow.apimachinery import status
from restow.authentication.authorities import Authorities
from restow.authentication.credentials import Credential
from restow.authentication.tokens import shows_token
from restow.httpserver.request import HttpRequest
from restow.request.context import User

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
KEPT_SECONDS: Final = 1.0
"""A connection outlives a certificate, and an authority may be taken back; this much at most."""


class CertificateAuthenticator:
    """Trusts the certificates that the TLS layer has verified."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, clock: Clock, authorities: Authorities | None = None) -> None:
        """`authorities`: those of users, where the TLS layer trusts others too, or did when the
        connection was made. Without them all that it has verified is a user's."""
        self._clock = clock
        self._authorities = authorities

    def take(self, authorities: Authorities) -> None:
        """Trust the certificates that these authorities have signed, and no others."""
        self._authorities = authorities

    def authenticate(self, request: HttpRequest) -> User | None:
        certificate = request.peer.certificate
        if certificate is None:
            return None
        now, authorities = self._clock.wall(), self._authorities
        if now.timestamp() > certificate.not_after_epoch_seconds or (
            authorities is not None and not authorities.have_signed(certificate.der, now)
        ):
            # It was good when the connection was made, or is no user's. Whoever shows a token
            # besides may still be one.
            if shows_token(request):
                return None
            raise status.unauthorized()
        if not certificate.common_name:
            return None  # As the reference does: it names nobody, so it is as good as none.
        fingerprint = hashlib.sha256(certificate.der).hexdigest()
        return User(
            certificate.common_name,
            certificate.organizations,
            extra=((CREDENTIAL_ID, (f"X509SHA256={fingerprint}",)),),
        )

    def credential_of(self, request: HttpRequest) -> Credential:
        certificate = request.peer.certificate
        assert certificate is not None
        return Credential(certificate.not_after_epoch_seconds)
