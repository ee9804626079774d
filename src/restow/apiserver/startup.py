"""How a server starts: steps with reasons, in order, each undone when a later one fails.

`PARTICIPATION` is how it takes part in the agreement, whatever else it is: membership,
registration, barrier, readiness. The order is the same for the servers of a cluster and for
aggregated ones, and so is what they show: the post-start hooks of Kubernetes, and a check of its
own for clients that wait until it is ready. Not here: how joining and registering are done
(`restow.storageversion`).
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
    """One step of a start, and why it stands at that place."""

    name: str
    run: Callable[[S], Awaitable[None]]
    reason: str


async def run_steps(steps: Sequence[StartStep[S]], state: S) -> None:
    """Run steps in order."""
    for step in steps:
        await step.run(state)


async def start(steps: Sequence[StartStep[S]], state: S, shutdown: Shutdown) -> None:
    """Run steps in order; if one fails, stop what the steps up to it have started."""
    try:
        await run_steps(steps, state)
    except BaseException:
        await shutdown.run()
        raise


class Participation:
    """One server, and what it agrees on with others."""

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
        """Add the health checks and metrics: they say that nothing was done yet. `address` is where
        others reach this server, if they do; `announcer` writes an Event for each change of an
        agreement."""
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
        # A server that has lost its identity is not ready until it has registered again.
        health.add(
            # KEP-2339 3.3, 3.68: not ready until all is registered, and again after a lost lease
            "storage-version-registration",
            lambda: None if coordinator.completed else "not everything is registered",
            "readyz",
        )
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
    StartStep("events", Participation.announce, "people read how agreements change from here on"),
    StartStep(
        "custom resources",
        # KEP-2339 3.30: custom resources do not wait for built-in ones
        Participation.serve_custom_resources,
        "each passes the barrier by its own registration, and waits for no built-in resource",
    ),
    StartStep(
        "registration",
        Participation.register,
        "each resource passes the barrier in the step in which it is registered",
    ),
    StartStep(
        "stored CRDs",
        Participation.wait_for_custom_resources,
        "clients find what was defined before; that may take too long, and is not waited for then",
    ),
    StartStep(
        "encryption keys",
        Participation.follow_keys,
        "other keys are compared with what is registered and stored",
    ),
    StartStep("readiness", Participation.become_ready, "everything above was done"),
)
