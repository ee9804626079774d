"""Starts a server: steps with reasons, in order, undone if a later one fails.

`PARTICIPATION` lists the steps that main and aggregated servers share: membership, registration,
barrier, readiness. They report progress through the post-start hooks of Kubernetes, and a readiness
check of their own. Not here: joining and registering (`restow.storageversion`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from restow.apiserver.assembly import Assembly
from restow.apiserver.encryption import Encryption
from restow.apiserver.shutdown import Shutdown
from restow.apiserver.storageversion_metrics import publish_coordination
from restow.endpoints.post_start_hooks import (
    IDENTITY_LEASE_COLLECTOR,
    IDENTITY_LEASE_CONTROLLER,
    STORAGE_VERSION_UPDATER,
    PostStartHooks,
)
from restow.storageversion.agreements import Announcer
from restow.storageversion.coordinator import Coordinator

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class StartStep(Generic[S]):
    """One step of a start, and the reason for its position."""

    name: str
    run: Callable[[S], Awaitable[None]]
    reason: str


async def run_steps(steps: Sequence[StartStep[S]], state: S) -> None:
    """Run steps in order."""
    for step in steps:
        await step.run(state)


async def start(steps: Sequence[StartStep[S]], state: S, shutdown: Shutdown) -> None:
    """Run steps in order; if one fails, stop all parts that were started."""
    try:
        await run_steps(steps, state)
    except BaseException:
        await shutdown.run()
        raise


class Participation:
    """The participation of one server in the storage version agreement."""

    def __init__(
        self,
        coordinator: Coordinator,
        assembly: Assembly,
        *,
        encryption: Encryption | None,
        address: str,
        livez_grace_seconds: float,
        announcer: Announcer | None = None,
    ) -> None:
        """Add the health checks and metrics, which first report that nothing is done. `address`:
        where clients reach this server, None if they do not; `announcer` creates an Event for each
        change of an agreement."""
        self._coordinator = coordinator
        self._encryption = encryption
        self._address = address
        self._announcer = announcer
        health, clock = assembly.health, assembly.server.runtime.clock
        hooks = PostStartHooks(health, clock, livez_grace_seconds=livez_grace_seconds)
        self._identity = hooks.add(IDENTITY_LEASE_CONTROLLER)
        # KEP-2339 3.32: this post-start hook keeps the server from being ready
        self._updater = hooks.add(STORAGE_VERSION_UPDATER)
        self._collector = hooks.add(IDENTITY_LEASE_COLLECTOR)
        # A server that has lost its identity is not ready until it is registered again.
        health.add(
            # KEP-2339 3.3, 3.68: not ready until all is registered, and again after a lost lease
            "storage-version-registration",
            lambda: None if coordinator.completed else "not all resources are registered",
            "readyz",
        )
        # A server that others are about to remove gets no more requests from load balancers.
        health.add("identity-lease", coordinator.lease.error, "readyz")
        publish_coordination(coordinator, assembly.metrics)
        if encryption is not None:
            encryption.publish(health, assembly.metrics, coordinator)

    async def join(self) -> None:
        await self._coordinator.join(address=self._address)
        self._identity.finish()

    async def announce(self) -> None:
        if self._announcer is not None:
            self._coordinator.announce(self._announcer)

    async def serve_custom_resources(self) -> None:
        if self._coordinator.custom is not None:
            await self._coordinator.custom.start()

    async def register(self) -> None:
        await self._coordinator.register()

    async def wait_for_custom_resources(self) -> None:
        if self._coordinator.custom is not None:
            await self._coordinator.custom.wait_for_first()

    async def follow_keys(self) -> None:
        if self._encryption is not None:
            self._encryption.follow(self._coordinator)

    async def become_ready(self) -> None:
        # KEP-2339 3.32: ready when all storage versions are reported
        self._updater.finish()
        self._collector.finish()


PARTICIPATION: Final[tuple[StartStep[Participation], ...]] = (
    StartStep(
        "membership",
        # KEP-2339 3.38: membership comes before any StorageVersion
        Participation.join,
        "no StorageVersion is written before the identity of the server is established",
    ),
    StartStep("events", Participation.announce, "changes of agreements create Events from now on"),
    StartStep(
        "custom resources",
        # KEP-2339 3.30: custom resources do not wait for built-in ones
        Participation.serve_custom_resources,
        "each CRD passes the barrier on its own, independently of built-in resources",
    ),
    StartStep(
        "registration",
        Participation.register,
        "each resource passes the barrier when it is registered",
    ),
    StartStep(
        "stored CRDs",
        Participation.wait_for_custom_resources,
        "clients find the CRDs of the store; after a timeout the start goes on without them",
    ),
    StartStep(
        "encryption keys",
        Participation.follow_keys,
        "new keys are compared with the registered and stored ones",
    ),
    StartStep("readiness", Participation.become_ready, "all steps above are done"),
)
