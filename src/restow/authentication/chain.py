"""The chain of authenticators.

The order is: front proxy, client certificate, bearer token, session, anonymous. An unknown token is
a 401 even where anonymous access is allowed. The user is cached with the headers of the connection
for a short time; not for impersonation (`impersonation`), where the request has another user.
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
    CredentialSource,
)
from restow.authentication.impersonation import is_requested
from restow.authentication.tokens import has_token
from restow.httpserver.request import HttpRequest
from restow.request.context import ANONYMOUS, Sender, User
from restow.request.negotiation import PLAIN_ACCEPTS, PRETTY_AGENTS

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
USERS_MAX: Final = 1_024


def _is_plain(request: HttpRequest) -> bool:
    """Return whether responses can be sent as stored: JSON, not pretty-printed, and with an audit
    ID chosen by the server."""
    headers = request.headers
    agent = headers.get("user-agent") or ""
    return (
        (headers.get("accept") or "") in PLAIN_ACCEPTS
        and not agent.startswith(PRETTY_AGENTS)
        and headers.get("audit-id") is None
    )


class Authenticator(Protocol):
    """One kind of authentication."""

    @property
    def keeps_seconds(self) -> float:
        """How long the result holds for requests of the same connection with the same headers; 0 if
        it depends on more than these."""

    def authenticate(self, request: HttpRequest) -> User | None:
        """Return the user, or None if the request has no credential of this kind.

        Raises a 401 for an invalid credential.
        """


@runtime_checkable
class TokenIdentifier(Protocol):
    """An authenticator that can also identify a token from elsewhere, such as a TokenReview."""

    def user_of(self, token: str) -> User | None:
        """Return the user of a token, or None if the token is unknown. May raise 401, and `DoAgain`
        when data must be fetched first."""


class Authentication:
    """All authenticators, in order."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        *,
        anonymous: AnonymousAccess = EVERYWHERE,
    ) -> None:
        self._authenticators = tuple((each, each.keeps_seconds) for each in authenticators)
        self._anonymous = anonymous
        self._users: dict[int, tuple[User, User]] = {}
        """By identity of a user object: that user, and the same with `system:authenticated`. So the
        returned object is the same each time."""

    def authenticate(self, request: HttpRequest) -> User:
        """Return the user of a request. Raises 401."""
        # Requests of one connection usually repeat their header lines byte for byte, and then share
        # one Headers object, so the result can be cached there.
        headers = request.headers
        cached: Sender | None = headers.memo
        if cached is not None and request.received_seconds <= cached.good_until_seconds:
            return cached.user
        headers.memo = None
        user, keeps_seconds = self._find(request)
        if keeps_seconds > 0 and not is_requested(headers):
            good_until = request.received_seconds + keeps_seconds
            is_plain = _is_plain(request)
            headers.memo = Sender(user, is_plain=is_plain, good_until_seconds=good_until)
        return user

    def authenticate_again(self, request: HttpRequest) -> User:
        """Return the user of a running request as of now, without cached results. Raises 401, and
        `DoAgain`."""
        user, _ = self._identify(request)
        return user if user is ANONYMOUS else _authenticated(user)

    def user_of(self, token: str) -> User | None:
        """Return the user of a token for a TokenReview, or None if it is invalid. May raise
        `DoAgain`, and a 503 when the token cannot be verified now."""
        for authenticator, _ in self._authenticators:
            if not isinstance(authenticator, TokenIdentifier):
                continue
            try:
                user = authenticator.user_of(token)
            except status.Unauthorized:
                return None
            if user is not None:
                return _authenticated(user)
        return None

    def credential_of(self, request: HttpRequest) -> Credential:
        """Return the credential of a request, without impersonation. Raises 401, and may raise
        `DoAgain`."""
        for authenticator, _ in self._authenticators:
            if authenticator.authenticate(request) is not None:
                if isinstance(authenticator, CredentialSource):
                    return authenticator.credential_of(request)
                return WITHOUT_END
        raise status.unauthorized()

    def _find(self, request: HttpRequest) -> tuple[User, float]:
        user, keeps_seconds = self._identify(request)
        return (user if user is ANONYMOUS else self._with_cached_groups(user)), keeps_seconds

    def _identify(self, request: HttpRequest) -> tuple[User, float]:
        for authenticator, keeps_seconds in self._authenticators:
            user = authenticator.authenticate(request)
            if user is not None:
                return user, keeps_seconds
        if has_token(request) or not self._anonymous.allows(request.path):
            raise status.unauthorized()
        return ANONYMOUS, 0.0

    def _with_cached_groups(self, user: User) -> User:
        """Return the user with `system:authenticated`, as the same object each time, because other
        caches use its identity."""
        found = self._users.get(id(user))
        if found is None:
            if len(self._users) >= USERS_MAX:
                self._users.clear()
            # Keep the user as well, so that its id is not reused.
            found = self._users[id(user)] = user, _authenticated(user)
        return found[1]


def _authenticated(user: User) -> User:
    """Return a user with the group `system:authenticated`."""
    if user.name == ANONYMOUS.name:
        return user
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
