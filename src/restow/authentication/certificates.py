"""Client certificates: the common name is the user, the organizations are the groups."""

from __future__ import annotations

import hashlib
from typing import Final

from restow.aio import Clock
from restow.apimachinery import status
from restow.authentication.authorities import Authorities
from restow.authentication.credentials import Credential
from restow.authentication.tokens import has_token
from restow.httpserver.request import HttpRequest
from restow.request.context import User

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
KEPT_SECONDS: Final = 1.0
"""How long a connection is trusted after its certificate expires or its CA is removed."""


class CertificateAuthenticator:
    """Authenticates users by client certificates that the TLS layer verified."""

    keeps_seconds: Final = KEPT_SECONDS

    def __init__(self, clock: Clock, authorities: Authorities | None = None) -> None:
        """`authorities`: the CAs of users, where the TLS layer trusts other CAs too, or trusted
        them when the connection was made. If None, every verified certificate is that of a user."""
        self._clock = clock
        self._authorities = authorities

    def take(self, authorities: Authorities) -> None:
        """Replace the CAs of users."""
        self._authorities = authorities

    def authenticate(self, request: HttpRequest) -> User | None:
        certificate = request.peer.certificate
        if certificate is None:
            return None
        now, authorities = self._clock.wall(), self._authorities
        if now.timestamp() > certificate.not_after_epoch_seconds or (
            authorities is not None and not authorities.have_signed(certificate.der, now)
        ):
            # The certificate expired since the connection was made, or is not a user's. A bearer
            # token may still identify the user.
            if has_token(request):
                return None
            raise status.unauthorized()
        if not certificate.common_name:
            return None  # As in kube-apiserver: without a common name the certificate is ignored.
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
