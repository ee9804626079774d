"""The order in which credentials are looked at.

First a proxy that is trusted to say who asks, then the certificate of the connection, then the
bearer token, then nobody. A token that no one knows is a 401 even where anonymous access is
allowed. What was found out is kept with the header lines for moments; not where somebody wishes to
be another (`impersonation`), for then it is not the sender who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

from restow.apimachinery import status
from restow.authentication.anonymous import EVERYWHERE, AnonymousAccess
from restow.authentication.credentials import (
    WITHOUT_END,
    Credential,
    TellsOfCredentials,
)
from restow.authentication.impersonation import is_requested
from restow.authentication.tokens import shows_token
from restow.httpserver.request import HttpRequest
from restow.request.context import ANONYMOUS, Sender, User
from restow.request.negotiation import PLAIN_ACCEPTS, PRETTY_AGENTS

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
USERS_MAX: Final = 1_024


def _is_plain(request: HttpRequest) -> bool:
    """Whether answers go out as they are stored: JSON, not for a person to read, and with an id
    that is the server's."""
    headers = request.headers
    agent = headers.get("user-agent") or ""
    return (
        (headers.get("accept") or "") in PLAIN_ACCEPTS
        and not agent.startswith(PRETTY_AGENTS)
        and headers.get("audit-id") is None
    )


class Authenticator(Protocol):
    """One way to tell who it is."""

    @property
    def keeps_seconds(self) -> float:
        """How long what it says of a request holds for others of the same connection with the
        same header lines; nothing: it depends on more than these."""

    def authenticate(self, request: HttpRequest) -> User | None:
        """The user; None when the request carries nothing that this one looks at.

        Raises a 401 for a credential that is wrong.
        """


@runtime_checkable
class TokenIdentifier(Protocol):
    """An authenticator that can also say whose a token is that came in another way."""

    def user_of(self, token: str) -> User | None:
        """The user of a token; None when it is not one of those known here. May raise 401, and
        `DoAgain` when somebody must be asked first."""


class Authentication:
    """All ways, in order."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        *,
        anonymous: AnonymousAccess = EVERYWHERE,
    ) -> None:
        self._authenticators = tuple((each, each.keeps_seconds) for each in authenticators)
        self._anonymous = anonymous
        self._users: dict[int, tuple[User, User]] = {}
        """By who was named: that, and as whom it is known. So that it is the same each time."""

    def authenticate(self, request: HttpRequest) -> User:
        """Who sent a request. Raises 401."""
        # Requests of one connection usually repeat their header lines byte for byte, and then
        # share one Headers object: what was found out about them holds for all.
        headers = request.headers
        known: Sender | None = headers.memo
        if known is not None and request.received_seconds <= known.good_until_seconds:
            return known.user
        headers.memo = None
        user, keeps_seconds = self._find(request)
        if keeps_seconds > 0 and not is_requested(headers):
            good_until = request.received_seconds + keeps_seconds
            is_plain = _is_plain(request)
            headers.memo = Sender(user, is_plain=is_plain, good_until_seconds=good_until)
        return user

    def user_of(self, token: str) -> User | None:
        """Whose a token is, as TokenReview asks; None if nobody's. May raise `DoAgain`, and a 503
        when it cannot be known now: that is no word about the token."""
        for authenticator, _ in self._authenticators:
            if not isinstance(authenticator, TokenIdentifier):
                continue
            try:
                user = authenticator.user_of(token)
            except status.Unauthorized:
                return None
            if user is not None:
                return _known(user)
        return None

    def credential_of(self, request: HttpRequest) -> Credential:
        """By what the sender of a request is known, whom it may speak for besides. Raises 401, and
        may raise `DoAgain`."""
        for authenticator, _ in self._authenticators:
            if authenticator.authenticate(request) is not None:
                if isinstance(authenticator, TellsOfCredentials):
                    return authenticator.credential_of(request)
                return WITHOUT_END
        raise status.unauthorized()

    def _find(self, request: HttpRequest) -> tuple[User, float]:
        for authenticator, keeps_seconds in self._authenticators:
            user = authenticator.authenticate(request)
            if user is not None:
                return self._same(user), keeps_seconds
        if shows_token(request) or not self._anonymous.lets_in(request.path):
            raise status.unauthorized()
        return ANONYMOUS, 0.0

    def _same(self, user: User) -> User:
        """The user as it is known. Authenticators that remember users name the same ones again,
        and others remember what they know of it."""
        found = self._users.get(id(user))
        if found is None:
            if len(self._users) >= USERS_MAX:
                self._users.clear()
            # It is kept as well, or another could have its place in memory.
            found = self._users[id(user)] = user, _known(user)
        return found[1]


def _known(user: User) -> User:
    """A user, in the group of all who are one."""
    if user.name == ANONYMOUS.name:
        return user
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
