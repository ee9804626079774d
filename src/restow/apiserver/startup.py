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
    PostStartHook,
    PostStartHooks,
)
from restow.storageversion.agreements import Announcer
from restow.storageversion.coordinator import Coordinator

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """One step of a start, and why it stands at that place."""

    name: str
    run: Callable[[S], Awaitable[None]]
    reason: str


async def run_steps(steps: Sequence[Step[S]], state: S) -> None:
    """Run steps in order."""
    for step in steps:
        await step.run(state)


async def start(steps: Sequence[Step[S]], state: S, shutdown: Shutdown) -> None:
    """Run steps in order; if one fails, stop what the steps up to it have started."""
    try:
        await run_steps(steps, state)
    except BaseException:
        await shutdown.run()
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """One server, and what it agrees on with others."""

    coordinator: Coordinator
    assembly: Assembly
    encryption: Encryption | None
    address: str
    """Where others reach this server; empty: they do not."""
    identity: PostStartHook
    updater: PostStartHook
    collector: PostStartHook
    announcer: Announcer | None = None
    """Writes an Event for each change of an agreement."""

    @classmethod
    def show(
        cls,
        coordinator: Coordinator,
        assembly: Assembly,
        *,
        encryption: Encryption | None,
        address: str,
        livez_grace_seconds: float,
        announcer: Announcer | None = None,
    ) -> Participation:
        """Add the health checks and metrics, all of which say that nothing was done yet."""
        health = assembly.health
        clock = assembly.server.runtime.clock
        hooks = PostStartHooks(health, clock, livez_grace_seconds=livez_grace_seconds)
        identity = hooks.add(IDENTITY_LEASE_CONTROLLER)
        updater = hooks.add(STORAGE_VERSION_UPDATER)
        collector = hooks.add(IDENTITY_LEASE_COLLECTOR)
        # A server that has lost its identity is not ready until it has registered again.
        health.add(
            "storage-version-registration",
            lambda: None if coordinator.completed else "not everything is registered",
            "readyz",
        )
        publish_coordination(coordinator, assembly.metrics)
        if encryption is not None:
            encryption.publish(health, assembly.metrics, coordinator)
        return cls(
            coordinator=coordinator,
            assembly=assembly,
            encryption=encryption,
            address=address,
            identity=identity,
            updater=updater,
            collector=collector,
            announcer=announcer,
        )

    async def join(self) -> None:
        await self.coordinator.join(address=self.address)
        self.identity.finish()

    async def announce(self) -> None:
        if self.announcer is not None:
            self.coordinator.announce(self.announcer)

    async def serve_custom_resources(self) -> None:
        if self.coordinator.custom is not None:
            await self.coordinator.custom.start()

    async def register(self) -> None:
        await self.coordinator.register()

    async def wait_for_custom_resources(self) -> None:
        if self.coordinator.custom is not None:
            await self.coordinator.custom.wait_for_first()

    async def follow_keys(self) -> None:
        if self.encryption is not None:
            self.encryption.follow(self.coordinator)

    async def become_ready(self) -> None:
        self.updater.finish()
        self.collector.finish()


PARTICIPATION: Final[tuple[Step[Participation], ...]] = (
    Step(
        "membership",
        Participation.join,
        "no StorageVersion is written before the identity of the server is established",
    ),
    Step("events", Participation.announce, "people read how agreements change from here on"),
    Step(
        "custom resources",
        Participation.serve_custom_resources,
        "each passes the barrier by its own registration, and waits for no built-in resource",
    ),
    Step(
        "registration",
        Participation.register,
        "each resource passes the barrier in the step in which it is registered",
    ),
    Step(
        "stored CRDs",
        Participation.wait_for_custom_resources,
        "clients find what was defined before; that may take too long, and is not waited for then",
    ),
    Step(
        "encryption keys",
        Participation.follow_keys,
        "other keys are compared with what is registered and stored",
    ),
    Step("readiness", Participation.become_ready, "everything above was done"),
)
