"""The controller manager of one server process: starts and stops all controllers.

Every server publishes its address and the authentication settings for aggregated servers. All other
controllers run on the server that holds the leader lock; they are created for each leader term, so
that they keep no state of an earlier one. Not here: the controllers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from restow.aio import Runtime, retry
from restow.aio.events import EventChannel
from restow.aio.leader_election import LeaderElector
from restow.apimachinery.status_error import StatusError
from restow.controllers import compaction, events_expiry
from restow.controllers.admission_policies import PolicyController, hosts_policies
from restow.controllers.api_services import ApiServiceController, hosts_api_services
from restow.controllers.compaction import Compactor
from restow.controllers.crds import CrdController, CrdControllerOptions
from restow.controllers.endpoints import EndpointsController
from restow.controllers.events_expiry import EventExpiry
from restow.controllers.garbage_collector import GarbageCollector
from restow.controllers.namespaces import (
    NamespaceController,
    RemoteContents,
    ensure_namespaces,
)
from restow.controllers.objects_watch import ChangeObserver, ObjectsWatch
from restow.controllers.proxy_trust import ProxyTrust, ProxyTrustController
from restow.controllers.quotas import QuotaController, hosts_quotas
from restow.controllers.roles import RoleController, ensure_roles, hosts_roles
from restow.controllers.server_addresses import EndpointAddress, EndpointAddresses
from restow.controllers.service_account_secrets import (
    ServiceAccountSecretController,
    SignAccountToken,
)
from restow.controllers.service_accounts import ServiceAccountController
from restow.controllers.store_lock import store_elector
from restow.registry.catalog import Catalog, OnChange
from restow.registry.reconcile_loops import BACKOFF, repeat, run_worker
from restow.registry.store import ResourceStore
from restow.storage.errors import StorageError
from restow.storage.interface import Storage

LOCK_NAME: Final = "housekeeping"
"""A part of a key in the store: servers of all releases must use the same."""
AGAIN_SECONDS: Final = 0.5
"""Delay before it contends for the lock again, after all controllers have ended without an
error."""
START_ATTEMPTS_MAX: Final = 5
WITHDRAW_SECONDS: Final = 3.0
DEPENDENTS_WORKERS: Final = 8
NAMESPACE_WORKERS: Final = 2
DEFINITION_WORKERS: Final = 8
CLEANUP_WORKERS: Final = 8
API_SERVICE_WORKERS: Final = 4

_OneWorker = ServiceAccountSecretController | RoleController | PolicyController | QuotaController
"""Controllers whose queue has one worker, with a periodic resync."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManagerOptions:
    """Options of the operator, and properties of this server."""

    server_id: str
    """Unique ID of this incarnation of the process."""
    address: EndpointAddress | None = None
    """The address at which peers and clients reach this process; None: not published."""
    certificates: str = ""
    """The cluster's CA certificates as PEM text, for clients in namespaces."""
    proxy_trust: ProxyTrust | None = None
    """Authentication settings for aggregated servers; None: not published."""
    sign_account_token: SignAccountToken | None = None
    """Signs non-expiring service account tokens; None: Secrets get no tokens."""
    compaction_seconds: float = compaction.INTERVAL_SECONDS
    """Zero: no compaction."""
    event_ttl_seconds: float = events_expiry.TTL_SECONDS
    """Zero: events do not expire."""


def leader_elector(storage: Storage, runtime: Runtime, server_id: str) -> LeaderElector:
    """Return the candidate for the controllers that run on one server of a cluster."""
    return store_elector(storage, runtime, name=LOCK_NAME, identity=server_id)


class ControllerManager:
    """Starts and stops the controllers of a server."""

    def __init__(
        self,
        storage: Storage,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        options: ControllerManagerOptions,
        *,
        definitions: CrdControllerOptions | None = None,
        remote: RemoteContents | None = None,
        elector: LeaderElector | None = None,
    ) -> None:
        """`definitions`: information about the servers of the cluster. `remote`: the contents of
        namespaces on aggregated servers. `elector`: from `leader_elector`, if it is shared.
        """
        self._storage = storage
        self._store = store
        self._catalog = catalog
        self._runtime = runtime
        self._options = options
        self._definitions = definitions
        self._remote = remote
        self._tasks = runtime.tasks("controllers", on_failure=lambda _: None)
        self._elector = elector or leader_elector(storage, runtime, options.server_id)
        self._trust = self._new_trust()
        self._accounts: list[ServiceAccountController | ServiceAccountSecretController] = []
        self.endpoints: EndpointsController | None = None
        if options.address is not None:
            addresses = EndpointAddresses(
                storage, runtime, server_id=options.server_id, own=options.address
            )
            self.endpoints = EndpointsController(store, catalog, addresses)

    @property
    def is_leading(self) -> bool:
        """Whether this server runs the controllers that run on one server of a cluster."""
        return self._elector.is_leading

    async def start(self) -> None:
        """Create the default objects, publish the address, start the controllers.

        Raises if the store cannot be written after some retries: the server is not ready then.
        """
        await retry(
            self._prepare,
            retry_on=(StorageError, StatusError),
            attempts_max=START_ATTEMPTS_MAX,
            backoff=BACKOFF,
            clock=self._runtime.clock,
            randomness=self._runtime.randomness,
        )
        if self.endpoints is not None:
            self._spawn("addresses", repeat("addresses", self.endpoints.step, self._runtime))
        if self._trust is not None:
            self._spawn("proxy-trust", repeat("proxy trust", self._trust.resync, self._runtime))
        self._spawn("leader", repeat("leader", self._lead, self._runtime))

    async def close(self) -> None:
        """Stop all controllers, release the leader lock, withdraw the address."""
        await self._tasks.close()
        if self.endpoints is None:
            return
        try:
            async with self._runtime.clock.timeout(WITHDRAW_SECONDS):
                await self.endpoints.withdraw()
        except (StorageError, StatusError, TimeoutError) as error:
            logger.warning("could not withdraw the address of this server: %s", error)

    def take_certificates(self, certificates: str, proxy_trust: ProxyTrust) -> None:
        """Publish reloaded CA certificates, from the next resync on."""
        self._options = replace(self._options, certificates=certificates, proxy_trust=proxy_trust)
        for each in self._accounts:
            each.take_certificates(certificates)
        if self._trust is not None:
            self._trust.take(proxy_trust)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn_loop(name, work)

    async def _prepare(self) -> None:
        await ensure_namespaces(self._store, self._catalog)
        await ensure_roles(self._store, self._catalog)
        if self.endpoints is not None:
            await self.endpoints.step()
            self._elector.note_gone(await self.endpoints.predecessors())

    async def _lead(self) -> float:
        await self._elector.run(self._work)
        return AGAIN_SECONDS

    async def _work(self) -> None:
        """Run the controllers of the leader, until the leader lock is lost."""
        runtime, store, catalog = self._runtime, self._store, self._catalog
        remote = self._remote
        namespaces = NamespaceController(store, catalog, runtime, remote=remote)
        dependents = GarbageCollector(store, catalog, runtime)
        definitions = CrdController(store, catalog, runtime, self._definitions)
        accounts = ServiceAccountController(
            store, catalog, runtime, certificates=self._options.certificates
        )
        secrets = self._account_secrets()
        self._accounts = [accounts, *secrets]
        aggregation = self._aggregation()
        roles = [RoleController(store, catalog, runtime)] if hosts_roles(catalog) else []
        policies = [PolicyController(store, catalog, runtime)] if hosts_policies(catalog) else []
        quotas = [QuotaController(store, catalog, runtime)] if hosts_quotas(catalog) else []
        single: list[_OneWorker] = [*secrets, *roles, *policies, *quotas]
        observers: list[ChangeObserver] = [definitions, namespaces, accounts, *aggregation, *single]
        # The garbage collector last, because it reads every object at its start.
        watch = ObjectsWatch(self._storage, runtime, (*observers, dependents))
        loops: dict[str, Coroutine[Any, Any, None]] = {
            "watch": watch.run(),
            "namespaces": repeat("namespaces", namespaces.resync, runtime),
            "accounts": repeat("accounts", accounts.resync, runtime),
            "account": run_worker(accounts.queue, accounts.reconcile),
            **{each.queue.name: run_worker(each.queue, each.reconcile) for each in single},
            **{
                f"look-{each.queue.name}": repeat(each.queue.name, each.resync, runtime)
                for each in single
            },
            **{
                each.queue.name: repeat(each.queue.name, each.resync, runtime)
                for each in aggregation
            },
            **{
                f"{name}-{number}": run_worker(each.queue, each.reconcile)
                for name, each, count in (
                    *((each.queue.name, each, API_SERVICE_WORKERS) for each in aggregation),
                    ("namespace", namespaces, NAMESPACE_WORKERS),
                    ("definition", definitions, DEFINITION_WORKERS),
                    ("cleanup", definitions.cleaner, CLEANUP_WORKERS),
                    ("dependent", dependents, DEPENDENTS_WORKERS),
                )
                for number in range(count)
            },
            **self._timed_loops(),
        }
        hosting = [each.hosting_changed for each in (definitions, namespaces, dependents)]
        hosting += [each.hosting_changed for each in quotas]
        with (
            definitions.woken(),
            _subscribed(catalog.changed, hosting),
            nullcontext()
            if remote is None
            else _subscribed(remote.changed, [namespaces.hosting_changed]),
        ):
            async with asyncio.TaskGroup() as group:
                for name, loop in loops.items():
                    group.create_task(loop, name=f"controllers/{name}")

    def _aggregation(self) -> list[ApiServiceController | ProxyTrustController]:
        """Return the controllers of objects that aggregated servers and their clients read."""
        controllers: list[ApiServiceController | ProxyTrustController] = []
        if hosts_api_services(self._catalog):
            controllers.append(ApiServiceController(self._store, self._catalog, self._runtime))
        if (trust := self._new_trust()) is not None:
            controllers.append(trust)
        return controllers

    def _account_secrets(self) -> list[ServiceAccountSecretController]:
        """Return the controller of service account tokens in Secrets, if they are signed."""
        sign, certificates = self._options.sign_account_token, self._options.certificates
        if sign is None:
            return []
        store, catalog = self._store, self._catalog
        return [
            ServiceAccountSecretController(
                store, catalog, self._runtime, certificates=certificates, sign=sign
            )
        ]

    def _new_trust(self) -> ProxyTrustController | None:
        own = self._options.proxy_trust
        if own is None:
            return None
        return ProxyTrustController(self._store, self._catalog, self._runtime, own)

    def _timed_loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        options, loops = self._options, dict[str, Coroutine[Any, Any, None]]()
        if options.compaction_seconds > 0:
            compactor = Compactor(self._storage)

            async def compact() -> float:
                await compactor.step()
                return options.compaction_seconds

            loops["compaction"] = repeat("compaction", compact, self._runtime)
        if options.event_ttl_seconds > 0:
            expiry = EventExpiry(
                self._store,
                self._catalog,
                self._runtime,
                ttl_seconds=options.event_ttl_seconds,
            )
            loops["events"] = repeat("expiry of events", expiry.step, self._runtime)
        return loops


@contextmanager
def _subscribed(channel: EventChannel[[str]], parts: Sequence[OnChange]) -> Iterator[None]:
    """Subscribe while the context is active."""
    for each in parts:
        channel.subscribe(each)
    try:
        yield
    finally:
        for each in parts:
            channel.unsubscribe(each)
