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
from restow.request.parameters import WATCH_SECONDS_MIN
from restow.request.request_info import RequestInfo
from restow.storageversion.store_scan import StoreScanner


class Judge(Protocol):
    """Who knows about users and rights."""

    def allows(self, user: User, info: RequestInfo) -> bool: ...

    def reason(self, user: User, info: RequestInfo) -> str:
        """Why it is allowed, or what stands in the way; empty when there is nothing to say."""

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        """All rules that a user has in a namespace, and what else there should be."""

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        """Whose a token is, as `token_review` asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What every handler may need."""

    catalog: Catalog
    store: ResourceStore
    tokens: ContinueTokens
    runtime: Runtime
    tasks: Tasks
    judge: Judge
    """Answers questions about users and rights."""
    admission: Chain = field(default_factory=Chain)
    """Asked about each write."""
    watch_seconds: float = WATCH_SECONDS_MIN
    """How long a watch lasts that does not say it: so long at least, and twice that at most."""
    collects_dependents: bool = True
    """Whether somebody looks after dependents. If not, an owner does not wait for that."""
    scanner: StoreScanner | None = None
    """Scans the raw values of the store; None: this server has none of its own."""
    is_whole: Callable[[], bool] = lambda: True
    """Whether all is hosted that there is: otherwise no client is told that something is not."""
    fan_outs: dict[str, FanOut] = field(default_factory=dict)
    """By root of keys: the watchers of each resource."""

    def check_whole(self) -> None:
        """Before anybody is told that a resource is not there. Raises a 503 while this server may
        not host yet what was defined."""
        if not self.is_whole():
            raise status.unavailable(
                "this server does not serve all custom resources yet; try again",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            )
