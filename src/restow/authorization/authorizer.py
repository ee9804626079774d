"""The question "may they", what everybody may whatever roles say, and the words of a refusal.

Whoever asks builds a `RequestInfo` and asks the server's `Authorizer`. Not here: roles (`rbac`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo

_PUBLIC: Final = frozenset({"/healthz", "/livez", "/readyz", "/version"})
# The page without data, and the way in: a ticket is a credential of its own.
_DASHBOARD: Final = "/dashboard"
_WAY_IN: Final = f"{_DASHBOARD}/session"
_TICKETS: Final = f"{_DASHBOARD}/tickets"
_READING: Final = ("get", "head")
_DISCOVERY: Final = ("/api", "/apis", "/openapi")
_SELF_REVIEWS: Final = frozenset(
    {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
)


class Authorizer(Protocol):
    """Decides whether a request may be done."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...

    def reason(self, user: User, info: RequestInfo) -> str:
        """Why it is allowed, or what is wrong with the roles of somebody whom it is refused; empty
        when there is nothing to say. Asked of what has been decided, and not on hot paths."""


@runtime_checkable
class Lasting(Protocol):
    """An authorizer whose decisions hold until it says otherwise: they may be kept that long."""

    @property
    def listeners(self) -> list[Callable[[], None]]:
        """Called when it may decide otherwise than before."""


class MastersOnly:
    """The authorizer of a server without roles, for tests: masters may do everything, whoever is
    known may discover, everyone may ask for health."""

    def allows(self, user: User, info: RequestInfo) -> bool:
        if user.is_master:
            return True
        if info.is_resource:
            return (
                user is not ANONYMOUS and info.verb == "create" and info.resource in _SELF_REVIEWS
            )
        if always_allowed(user, info):
            return True
        path = info.path.rstrip("/")
        if info.verb not in _READING:
            return False
        known = user.name != ANONYMOUS.name
        return path in _PUBLIC or (
            known and any(path == each or path.startswith(each + "/") for each in _DISCOVERY)
        )

    def reason(self, user: User, info: RequestInfo) -> str:
        return ""


def always_allowed(user: User, info: RequestInfo) -> bool:
    """Whether a request that is about no resource is for everybody: the page that shows nothing
    by itself, and the ways to come in by it. Its data comes from the API, as whoever came in."""
    if not info.path.startswith(_DASHBOARD):
        return False
    path = info.path.rstrip("/")
    if info.verb not in _READING:
        # A ticket lets in whoever asked for it as who they are, so that it gives no more.
        return path == _WAY_IN or (path == _TICKETS and user.name != ANONYMOUS.name)
    return path == _DASHBOARD or path.startswith(_DASHBOARD + "/")


def refusal(user: User, info: RequestInfo, why: str = "") -> status.StatusError:
    """The 403 for a request that is not allowed."""
    if not info.is_resource:
        return status.cannot_path(user.name, info.verb, path=info.path, why=why)
    return status.cannot(
        user.name,
        info.verb,
        resource=GroupResource(info.group, info.resource),
        subresource=info.subresource,
        name=info.name,
        namespace=info.namespace or None,
        why=why,
    )
