"""Client certificates: the common name is the user, the organizations are the groups."""

from __future__ import annotations

from restow.machinery import status
from restow.runtime import Clock
from restow.serving.authentication.authorities import Authorities
from restow.serving.context import User
from restow.serving.listener.request import Request


class CertificateAuthenticator:
    """Trusts the certificates that the TLS layer has verified."""

    def __init__(self, clock: Clock, authorities: Authorities | None = None) -> None:
        """`authorities`: those of users, where the TLS layer trusts others too. Without them all
        that it has verified is a user's."""
        self._clock = clock
        self._authorities = authorities

    def authenticate(self, request: Request) -> User | None:
        certificate = request.peer.certificate
        if certificate is None:
            return None
        now = self._clock.wall()
        if self._authorities is not None and not self._authorities.have_signed(
            certificate.der, now
        ):
            # No user's. Whoever shows a token besides may still be one.
            if request.headers.get("authorization") is not None:
                return None
            raise status.unauthorized()
        if not certificate.common_name:
            raise status.unauthorized()
        if now.timestamp() > certificate.not_after_epoch_seconds:
            raise status.unauthorized()  # it was valid when the connection was made
        return User(certificate.common_name, certificate.organizations)
