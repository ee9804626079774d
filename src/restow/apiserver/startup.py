"""How a server takes its part in the agreement, whatever else it is: join, then report.

The order is the same for the servers of a cluster and for aggregated ones, and so is what it shows
on the way: the post-start hooks of Kubernetes, and a check of its own for who waits until it is
ready. Not here: how joining and reporting are done (`restow.storageversion`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from restow.apiserver.assembly import Assembly
from restow.apiserver.encryption import Encryption
from restow.apiserver.storageversion_metrics import publish_coordination
from restow.endpoints.post_start_hooks import (
    IDENTITY_LEASE_COLLECTOR,
    IDENTITY_LEASE_CONTROLLER,
    STORAGE_VERSION_UPDATER,
    PostStartHooks,
)
from restow.storageversion.coordinator import Coordinator


async def _nothing() -> None:
    return None


async def take_part(
    coordinator: Coordinator,
    assembly: Assembly,
    *,
    address: str,
    livez_grace_seconds: float,
    encryption: Encryption | None,
    joined: Callable[[], Awaitable[None]] = _nothing,
    reported: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Join the servers, reachable at an address, and report; from then on objects can be written.

    `joined` is called when this server is a member, `reported` when all built-in resources are
    registered, before the hooks say so. The second may never come; the first does.
    """
    clock = assembly.server.runtime.clock
    hooks = PostStartHooks(assembly.health, clock, livez_grace_seconds=livez_grace_seconds)
    identity = hooks.add(IDENTITY_LEASE_CONTROLLER)
    updater = hooks.add(STORAGE_VERSION_UPDATER)
    collector = hooks.add(IDENTITY_LEASE_COLLECTOR)
    # A server that has lost its identity is not ready until it has reported anew.
    assembly.health.add(
        "storage-version-registration",
        lambda: None if coordinator.completed else "not everything is registered",
        "readyz",
    )
    publish_coordination(coordinator, assembly.metrics)
    if encryption is not None:
        encryption.publish(assembly.health, assembly.metrics, coordinator)
    await coordinator.join(address=address)
    identity.finish()
    await joined()
    await coordinator.register()
    await reported()
    if encryption is not None:
        encryption.follow(coordinator, forget=assembly.store.reload)
    updater.finish()
    collector.finish()
