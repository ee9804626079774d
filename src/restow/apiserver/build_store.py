"""Build stages below the registry: the open store, and its storage version coordinator."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from restow.aio import Runtime
from restow.apiserver.build_inputs import Foundation, StorageAgreement
from restow.apiserver.encryption import Encryption
from restow.apiserver.lease_notes import LeaseNotes
from restow.apiserver.options import ServeOptions
from restow.apiserver.shutdown import Shutdown
from restow.apiserver.store_guard import StoreGuard, open_guarded
from restow.endpoints.barrier import WriteBarrier
from restow.registry.catalog import Catalog
from restow.registry.committer import Sealed
from restow.storage.interface import Storage
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.identity import COMPONENT
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.remote_registration import Remote


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """The open store of a server."""

    storage: Storage
    """Access to values as they are stored."""
    guard: StoreGuard | None
    """Checks that the store's identity is the recorded one; None if none is recorded on disk."""
    encryption: Encryption | None

    @property
    def opened(self) -> Storage:
        """The storage with values decrypted by the available keys."""
        return self.storage if self.encryption is None else self.encryption.storage

    def foundation(self, catalog: Catalog, runtime: Runtime) -> Foundation:
        sealed = None
        if self.encryption is not None:
            sealed = Sealed(self.storage, self.encryption.keys)
        return Foundation(storage=self.opened, catalog=catalog, runtime=runtime, sealed=sealed)


async def open_store(options: ServeOptions, runtime: Runtime, shutdown: Shutdown) -> OpenStore:
    """Open the store and check that it is the one this server used before. Raises `OpenRefused`."""
    stack = AsyncExitStack()
    shutdown.add("store", stack.aclose)
    storage, guard = await open_guarded(
        options.store_address, runtime, stack, data_dir=options.data_dir
    )
    return OpenStore(storage=storage, guard=guard, encryption=None)


async def load_encryption(
    store: OpenStore, options: ServeOptions, runtime: Runtime, shutdown: Shutdown
) -> OpenStore:
    """The same store with encryption keys, if any are configured."""
    config = options.encryption_provider_config
    if config is None:
        return store
    encryption = await Encryption.load(config, store.storage, runtime)
    shutdown.add("encryption", encryption.close)
    return replace(store, encryption=encryption)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind:
    """The differences between coordinators of main and aggregated servers."""

    component: str = COMPONENT
    remote: Remote | None = None
    serves_crds: bool = True


def build_coordinator(
    options: ServeOptions, store: OpenStore, foundation: Foundation, kind: CoordinatorKind
) -> Coordinator:
    """Build the coordinator of a server. Raises `ModeRefused`."""
    keys = None if store.encryption is None else store.encryption.keys
    catalog = foundation.catalog
    coordination = CoordinatorOptions(
        membership=MembershipOptions(
            host=socket.gethostname(),
            release=catalog.name,
            component=kind.component,
            mode=options.recorded_mode,
            lease_seconds=options.identity_lease_duration_seconds,
            renew_seconds=options.identity_lease_renew_interval_seconds,
            has_lease=options.feature_gates.api_server_identity,
            extra_annotations=LeaseNotes(foundation.metrics, keys),
        ),
        may_change_mode=options.coordination.change_mode,
        may_force=options.coordination.vote_bootstrap == "force",
        loose_bound_seconds=options.coordination.loose_bound_seconds,
    )
    if store.guard is not None:
        coordination = replace(coordination, confirm_store=store.guard.confirm)
    return Coordinator(
        store.storage,
        catalog,
        foundation.runtime,
        coordination,
        keys=keys,
        remote=kind.remote,
        custom=foundation.custom_resources if kind.serves_crds else None,
    )


def agreement_of(coordinator: Coordinator) -> StorageAgreement:
    """Return the storage agreement of a server with this coordinator."""
    return StorageAgreement(
        policy=coordinator.policy,
        barrier=WriteBarrier(coordinator),
        version_of=coordinator.version_of,
        custom=coordinator.custom,
    )
