"""The order in which credentials are looked at.

First a proxy that is trusted to say who asks, then the certificate of the connection, then the
bearer token, then nobody. A token that no one knows is a 401 even where anonymous access is
allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from restow.machinery import status
from restow.serving.context import ANONYMOUS, Sender, User
from restow.serving.listener.request import Request
from restow.serving.negotiation import PLAIN_ACCEPTS, PRETTY_AGENTS

AUTHENTICATED = "system:authenticated"
_IMPERSONATION = "impersonate-"


def _is_plain(request: Request) -> bool:
    """Whether answers go out as they are stored: JSON, and not for a person to read."""
    agent = request.headers.get("user-agent") or ""
    return (request.headers.get("accept") or "") in PLAIN_ACCEPTS and not agent.startswith(
        PRETTY_AGENTS
    )


class Authenticator(Protocol):
    """One way to tell who it is."""

    def authenticate(self, request: Request) -> User | None:
        """The user; None when the request carries nothing that this one looks at.

        Raises a 401 for a credential that is wrong.
        """


class Authentication:
    """All ways, in order."""

    def __init__(self, authenticators: Sequence[Authenticator], *, anonymous: bool = True) -> None:
        self._authenticators = tuple(authenticators)
        self._anonymous = anonymous

    def authenticate(self, request: Request) -> User:
        """Who sent a request. Raises 401."""
        # Requests of one connection usually repeat their header lines byte for byte, and then
        # share one Headers object: what was found out about them holds for all.
        known: Sender | None = request.headers.memo
        if known is not None:
            return known.user
        user = self._find(request)
        if request.headers.get("authorization") is not None:
            request.headers.memo = Sender(user, _is_plain(request))
        return user

    def _find(self, request: Request) -> User:
        # To ignore the wish to be someone else would be to do it with more rights than wished.
        if any(name.startswith(_IMPERSONATION) for name, _ in request.headers.items()):
            raise status.forbidden("impersonation is not offered by this server")
        for authenticator in self._authenticators:
            user = authenticator.authenticate(request)
            if user is not None:
                if AUTHENTICATED in user.groups:
                    return user
                return replace(user, groups=(*user.groups, AUTHENTICATED))
        if request.headers.get("authorization") is not None or not self._anonymous:
            raise status.unauthorized()
        return ANONYMOUS
