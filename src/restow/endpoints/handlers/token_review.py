"""TokenReview: authenticates a token for another server, with its audiences.

The authenticators of requests are used; an invalid token is a result, not an error. Service account
tokens contain their audiences; all other tokens are for this API server, under each of its names.

Not here: the other reviews (`reviews`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.authentication.service_accounts import (
    AccountAuthenticator,
    Identified,
    TokenRefused,
)
from restow.request.context import User

NOT_KNOWN: Final = "invalid bearer token"
AUTHENTICATED: Final = "system:authenticated"


class TokenLookup(Protocol):
    """Finds the user of a token."""

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """The user of a token that is valid for one of the audiences; if none are given, for this
        server.

        None if no authenticator accepts it. Raises TokenRefused for an invalid one, and `DoAgain`
        when a remote call is needed first.
        """


class TokenReviewer:
    """Looks tokens up: service account tokens by their claims, all others with `user_of`."""

    def __init__(
        self,
        *,
        user_of: Callable[[str], User | None],
        accounts: AccountAuthenticator | None = None,
        audiences: Sequence[str] = (),
    ) -> None:
        """`user_of` finds the user of any other token; `audiences` are the names of this server."""
        self._user_of = user_of
        self._accounts = accounts
        self._audiences = tuple(audiences)

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        wanted = audiences or self._audiences
        if self._accounts is not None:
            found = self._accounts.identify(token, wanted)
            if found is not None:
                return found
        try:
            user = self._user_of(token)
        except StatusError as error:
            if error.code != status.Unauthorized.code:
                raise
            raise TokenRefused(error.message) from error
        if user is None:
            return None
        good_for = tuple(each for each in self._audiences if each in wanted)
        return Identified(user, good_for) if good_for or not wanted else None


def review_token(knows: TokenLookup, spec: dict[str, Any]) -> dict[str, Any]:
    """The status of a review. Raises 400 for one without a token."""
    token = spec.get("token") or ""
    if not token:
        raise status.bad_request("token is required for TokenReview in authentication")
    try:
        found = knows.identify(token, spec.get("audiences") or ())
    except TokenRefused as error:
        return {"user": {}, "error": f"[{NOT_KNOWN}, {error}]"}
    if found is None:
        return {"user": {}, "error": NOT_KNOWN}
    review_status: dict[str, Any] = {"authenticated": True, "user": _user_info(found.user)}
    if found.audiences:
        review_status["audiences"] = list(found.audiences)
    return review_status


def _user_info(user: User) -> dict[str, Any]:
    info: dict[str, Any] = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    groups = user.groups
    info["groups"] = [*groups, *(() if AUTHENTICATED in groups else (AUTHENTICATED,))]
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info
