"""The `Authorizer` interface, the requests that are allowed for everyone, and the 403 error.

A caller builds a `RequestInfo` and passes it to the server's `Authorizer`.

Not here: roles (`rbac`).
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from restow.aio.events import EventChannel
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.request.context import ANONYMOUS, User
from restow.request.request_info import RequestInfo

# The page, which contains no data, and the exchange of tickets: a ticket is a credential itself.
_DASHBOARD: Final = "/dashboard"
_SESSION: Final = f"{_DASHBOARD}/session"
_TICKETS: Final = f"{_DASHBOARD}/tickets"
_READ_VERBS: Final = ("get", "head")


class Authorizer(Protocol):
    """Decides whether a request is allowed."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...

    def reason(self, user: User, info: RequestInfo) -> str:
        """Return why a request is allowed, or which roles are missing if it is denied; empty if
        there is nothing to report. Called after the decision."""


@runtime_checkable
class CacheableAuthorizer(Protocol):
    """An authorizer whose decisions may be cached until it emits `changed`."""

    @property
    def changed(self) -> EventChannel[[]]:
        """Called when decisions may have changed."""


def always_allowed(user: User, info: RequestInfo) -> bool:
    """Return whether a non-resource request is allowed for everyone: the dashboard page, and the
    exchange of tickets. The data of the page comes from the API, with the rights of the user."""
    if not info.path.startswith(_DASHBOARD):
        return False
    path = info.path.rstrip("/")
    if info.verb not in _READ_VERBS:
        # A ticket has the identity of the user who requested it, so it grants no more rights.
        return path == _SESSION or (path == _TICKETS and user.name != ANONYMOUS.name)
    return path == _DASHBOARD or path.startswith(_DASHBOARD + "/")


def refusal(user: User, info: RequestInfo, why: str = "") -> status.StatusError:
    """Return the 403 for a request that is not allowed."""
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
