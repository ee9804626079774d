"""The parts of a server that handlers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from restow.admission import Chain
from restow.aio import Runtime, Tasks
from restow.apimachinery import status
from restow.apimachinery.rbac import PolicyRule
from restow.authentication.service_accounts import Identified
from restow.endpoints.continue_tokens import ContinueTokens
from restow.endpoints.handlers.fan_out import FanOut
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.request.context import User
from restow.request.offload import Offload
from restow.request.parameters import WATCH_SECONDS_MIN
from restow.request.request_info import RequestInfo
from restow.storageversion.store_scan import StoreScanner


class AccessReviewer(Protocol):
    """Authorization and token lookups for reviews and handlers."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...

    def reason(self, user: User, info: RequestInfo) -> str:
        """Why a request is allowed or denied; empty if there is no reason to show."""

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        """All rules that a user has in a namespace, and the error if the list is incomplete."""

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """The user of a token, for `token_review`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The parts of a server that handlers may need."""

    catalog: Catalog
    store: ResourceStore
    tokens: ContinueTokens
    runtime: Runtime
    tasks: Tasks
    offload: Offload
    """Runs long work in threads."""
    access_reviewer: AccessReviewer
    """For reviews, and for handlers that check a second permission."""
    admission: Chain = field(default_factory=Chain)
    """Runs on each write."""
    watch_seconds: float = WATCH_SECONDS_MIN
    """The minimum duration of a watch without timeoutSeconds; the maximum is twice that."""
    collects_dependents: bool = True
    """Whether garbage collection runs. If not, owners do not wait for their dependents."""
    scanner: StoreScanner | None = None
    """Scans the raw values of the store; None if this server has no store of its own."""
    is_whole: Callable[[], bool] = lambda: True
    """Whether all CRDs are served; until then a missing resource is a 503, not a 404."""
    fan_outs: dict[str, FanOut] = field(default_factory=dict)
    """Watchers of each resource, by key prefix."""

    def check_whole(self) -> None:
        """Call before a response that a resource does not exist. Raises a 503 while this server may
        not serve all CRDs yet."""
        if not self.is_whole():
            raise status.unavailable(
                "this server does not serve all custom resources yet; try again",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            )
