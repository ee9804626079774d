"""The access check of a request: authentication, impersonation, authorization.

The chain checks each request once, before its body is read. A long-running request is checked again
while it runs, by the same authenticators and the same authorizer.

Not here: when a request is checked again (`revocation`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from restow.aio import Clock
from restow.apimachinery import status
from restow.authentication import Authentication
from restow.authentication.impersonation import impersonated, requested_user
from restow.authorization.authorizer import Authorizer, refusal
from restow.httpserver import Headers, HttpRequest
from restow.request.context import ANONYMOUS, Context, User
from restow.request.request_info import RequestInfo


class RequestUsers(NamedTuple):
    """The user of a request, and the authenticated user if that is another one."""

    user: User
    impersonator: User | None


class AccessCheck:
    """Decides who sends a request, and whether the request is allowed."""

    def __init__(
        self, authentication: Authentication, authorizer: Authorizer, clock: Clock
    ) -> None:
        self._authentication = authentication
        self.authorizer: Final = authorizer
        self._clock = clock

    def admit(self, context: Context) -> None:
        """Authenticate, impersonate and authorize, once per request. Raises 401, 403, or 429 if the
        user has too many connections."""
        if context.is_authorized:
            return
        request = context.request
        user = context.user = self._authentication.authenticate(request)
        if user is not ANONYMOUS and not request.peer.admit(
            user.name, is_privileged=user.is_master
        ):
            raise status.too_many_requests("too many connections are open, please try again later.")
        # Header lines that identify a known sender contain no impersonation headers.
        if request.headers.memo is None:
            context.user, context.impersonator = self._acting(context.user, request.headers)
        self.authorize(context.user, context.info)
        context.is_authorized = True

    def authenticate_again(self, request: HttpRequest) -> RequestUsers:
        """Authenticate a running request as if it were new, without cached results. Raises 401 or
        403, and `DoAgain`."""
        return self._acting(self._authentication.authenticate_again(request), request.headers)

    def authorize(self, user: User, info: RequestInfo) -> None:
        """Raise a 403 if the user may not send this request. May raise `DoAgain`."""
        if not self.authorizer.allows(user, info):
            raise refusal(user, info, self.authorizer.reason(user, info))

    def limit_duration(self, context: Context) -> None:
        """Let a watch end when the credential of its request expires."""
        if context.user is ANONYMOUS:
            return
        ends = self._authentication.credential_of(context.request).ends_epoch_seconds
        if ends is not None:
            context.seconds_max = max(0.0, ends - self._clock.wall().timestamp())

    def _acting(self, sender: User, headers: Headers) -> RequestUsers:
        """Apply the impersonation that the headers or the session request, if any. Raises 400 or
        403."""
        requested = requested_user(headers)
        if sender.acts_as is not None:
            if requested is not None:
                raise status.forbidden("a session of an impersonated user cannot impersonate")
            requested = sender.acts_as
        if requested is None:
            return RequestUsers(sender, None)
        return RequestUsers(impersonated(requested, by=sender, authorizer=self.authorizer), sender)
