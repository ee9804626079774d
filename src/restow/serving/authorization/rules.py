"""Masters may do everything; whoever is known may discover; everyone may ask for health."""

from __future__ import annotations

from typing import Final, Protocol

from restow.machinery import status
from restow.machinery.names import GroupResource
from restow.serving.context import ANONYMOUS, User
from restow.serving.request_info import RequestInfo

_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})
# The page without data, and the way in: a ticket is a credential of its own.
_DASHBOARD: Final = "/dashboard"
_WAY_IN: Final = f"{_DASHBOARD}/session"
_TICKETS: Final = f"{_DASHBOARD}/tickets"
_DISCOVERY: Final = ("/api", "/apis", "/openapi")
_SELF_REVIEWS: Final = frozenset(
    {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
)


class Authorizer(Protocol):
    """Decides whether a request may be done."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...


class MastersOnly:
    """The authorizer of a server without roles."""

    def allows(self, user: User, info: RequestInfo) -> bool:
        if user.is_master:
            return True
        if info.is_resource:
            return (
                user is not ANONYMOUS and info.verb == "create" and info.resource in _SELF_REVIEWS
            )
        path = info.path.rstrip("/")
        known = user.name != ANONYMOUS.name
        if info.verb not in ("get", "head"):
            # A ticket lets in whoever asked for it as who they are, so that it gives no more.
            return path == _WAY_IN or (known and path == _TICKETS)
        if path in _PUBLIC or path == _DASHBOARD or path.startswith(_DASHBOARD + "/"):
            return True
        return known and any(path == each or path.startswith(each + "/") for each in _DISCOVERY)


def refusal(user: User, info: RequestInfo) -> status.StatusError:
    """The 403 for a request that is not allowed."""
    if not info.is_resource:
        return status.cannot_path(user.name, info.verb, path=info.path)
    return status.cannot(
        user.name,
        info.verb,
        resource=GroupResource(info.group, info.resource),
        subresource=info.subresource,
        name=info.name,
        namespace=info.namespace or None,
    )
