"""The write barrier: rejects writes until this server has registered its storage versions.

While a resource is pending, only these requests pass (the list of KEP-2339):

    1  storageversions, by the server itself   through no request: written directly to storage
    2  reads                                   get, list and watch
    3  kinds that are not persisted            reviews
    4  aggregated APIs                         always: they are proxied before this check
    5  custom resources                        always: they are served only once registered

Everything else gets a 503 with Retry-After, including dry runs and every subresource. The barrier
opens per resource. Not here: how a resource is registered, and the fence in the transaction of the
write, which still holds when a server is paused between this check and its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from restow.apimachinery import status
from restow.registry.resource import Resource
from restow.request.context import Context

RETRY_AFTER_SECONDS: Final = 1
ERROR_CHARACTERS_MAX: Final = 512
NO_ERROR: Final = "<nil>"

_READS: Final = frozenset({"get", "list", "watch"})

# By verb, not by method: a method cannot distinguish a list from a watch. Anything else is refused.
_EXCEPTIONS: Final[tuple[Callable[[str, Resource], bool], ...]] = (
    # KEP-2339 3.27: reads pass
    lambda verb, _resource: verb in _READS,
    # KEP-2339 3.28: resources that are not persisted pass
    lambda _verb, resource: not resource.kind.persisted,
)


class RegistrationState(Protocol):
    """The storage versions that this server has registered so far."""

    @property
    def completed(self) -> bool:
        """Whether every resource is registered."""

    def pending(self, resource: Resource) -> str | None:
        """None when the resource is registered; otherwise the last error, or `NO_ERROR` if there
        was none. Resources with one root share a store, and therefore the result."""


class WriteBarrier:
    """The check: call it with a request and its resource."""

    __slots__ = ("_registration",)

    def __init__(self, registration: RegistrationState) -> None:
        self._registration = registration

    def __call__(self, context: Context, resource: Resource) -> None:
        """Return if the request may pass, else raise a 503."""
        # KEP-2339 3.57: once all is registered the filter changes nothing
        if self._registration.completed:
            return
        verb = context.info.verb
        if any(passes(verb, resource) for passes in _EXCEPTIONS):
            return
        # KEP-2339 3.1: no write before this server has reported the resource
        error = self._registration.pending(resource)
        if error is not None:
            # KEP-2339 3.31, 3.69: reject with 503 and the resource, in the words of Kubernetes
            raise status.unavailable(
                "wait for storage version registration to complete for resource: "
                f"{resource.kind.group_resource}, last seen error: {_shortened(error)}",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )


def _shortened(error: str) -> str:
    if len(error) <= ERROR_CHARACTERS_MAX:
        return error or NO_ERROR
    return error[:ERROR_CHARACTERS_MAX] + "…"
