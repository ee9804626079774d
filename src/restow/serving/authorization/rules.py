"""Masters may do everything; whoever is known may discover; everyone may ask for health."""

from __future__ import annotations

from typing import Final, Protocol

from restow.machinery import status
from restow.machinery.names import GroupResource
from restow.serving.context import ANONYMOUS, User
from restow.serving.request_info import RequestInfo

_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})
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
        if info.verb not in ("get", "head"):
            return False
        path = info.path.rstrip("/")
        if path in _PUBLIC:
            return True
        known = user.name != ANONYMOUS.name
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
