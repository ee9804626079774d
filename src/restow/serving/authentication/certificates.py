"""Client certificates: the common name is the user, the organizations are the groups."""

from __future__ import annotations

from restow.machinery import status
from restow.runtime import Clock
from restow.serving.context import User
from restow.serving.listener.request import Request


class CertificateAuthenticator:
    """Trusts the certificates that the TLS layer has verified."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def authenticate(self, request: Request) -> User | None:
        certificate = request.peer.certificate
        if certificate is None:
            return None
        if not certificate.common_name:
            raise status.unauthorized()
        if self._clock.wall().timestamp() > certificate.not_after_epoch_seconds:
            raise status.unauthorized()  # it was valid when the connection was made
        return User(certificate.common_name, certificate.organizations)
