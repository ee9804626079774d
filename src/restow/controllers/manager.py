"""All housekeeping of one server process: its tasks, their start and their end.

Every server publishes its address, and how servers behind it know who asks. All else is done by
the server that has the turn, with parts that are made anew when it gets it, so that nothing is
remembered from an earlier one. Not here: what the parts do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from restow.aio import Runtime, retry
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
from restow.registry.reconcile_loops import BACKOFF, repeat, work_off
from restow.registry.store import ResourceStore
from restow.storage.errors import StorageError
from restow.storage.interface import Storage

LOCK_NAME: Final = "housekeeping"
AGAIN_SECONDS: Final = 0.5
"""Before it contends again, after all work has ended by itself."""
START_ATTEMPTS_MAX: Final = 5
WITHDRAW_SECONDS: Final = 3.0
DEPENDENTS_WORKERS: Final = 8
NAMESPACE_WORKERS: Final = 2
DEFINITION_WORKERS: Final = 8
CLEANUP_WORKERS: Final = 8
API_SERVICE_WORKERS: Final = 4

_OneWorker = ServiceAccountSecretController | RoleController | PolicyController | QuotaController
"""Keepers whose queue is worked off by one, with a look now and then."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManagerOptions:
    """What an operator may choose, and what a server knows of itself."""

    server_id: str
    """Of this process and of no other, earlier or later."""
    address: EndpointAddress | None = None
    """Where peers and clients reach this very process; None: it is not published."""
    certificates: str = ""
    """The cluster's certificate authorities as PEM text, for clients inside namespaces."""
    proxy_trust: ProxyTrust | None = None
    """How servers behind this one know who asks; None: they are told nothing."""
    sign_account_token: SignAccountToken | None = None
    """How tokens without an end are signed; None: Secrets get none."""
    compaction_seconds: float = compaction.INTERVAL_SECONDS
    """Zero: no compaction."""
    event_ttl_seconds: float = events_expiry.TTL_SECONDS
    """Zero: events stay."""


def leader_elector(storage: Storage, runtime: Runtime, server_id: str) -> LeaderElector:
    """A candidate for running the controllers that run on one server of a cluster."""
    return store_elector(storage, runtime, name=LOCK_NAME, identity=server_id)


class ControllerManager:
    """Starts and ends all housekeeping of a server."""

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
        """`definitions`: how to know what the servers of a cluster serve. `remote`: what servers
        behind this one have in namespaces. `elector`: from `leader_elector`, if others ask it, too.
        """
        self._storage = storage
        self._store = store
        self._catalog = catalog
        self._runtime = runtime
        self._options = options
        self._definitions = definitions
        self._remote = remote
        self._tasks = runtime.tasks("housekeeping", on_failure=lambda _: None)
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
        """Make what every cluster has, publish the address, begin to work.

        Raises when the store cannot be written even after some tries: such a server is not ready.
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
            self._spawn("proxy-trust", repeat("proxy trust", self._trust.look_again, self._runtime))
        self._spawn("leader", repeat("leader", self._lead, self._runtime))

    async def close(self) -> None:
        """End all work, release the leader lock, withdraw the address."""
        await self._tasks.close()
        if self.endpoints is None:
            return
        try:
            async with self._runtime.clock.timeout(WITHDRAW_SECONDS):
                await self.endpoints.withdraw()
        except (StorageError, StatusError, TimeoutError) as error:
            logger.warning("the address of this server could not be withdrawn: %s", error)

    def take_certificates(self, certificates: str, proxy_trust: ProxyTrust) -> None:
        """Publish renewed authorities, from the next look on."""
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
        """All that one server does for all, until the leader lock is lost."""
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
        # The collector last, because its look reads every object.
        watch = ObjectsWatch(self._storage, runtime, (*observers, dependents))
        loops: dict[str, Coroutine[Any, Any, None]] = {
            "watch": watch.run(),
            "namespaces": repeat("namespaces", namespaces.look_again, runtime),
            "accounts": repeat("accounts", accounts.look_again, runtime),
            "account": work_off(accounts.queue, accounts.reconcile),
            **{each.queue.name: work_off(each.queue, each.reconcile) for each in single},
            **{
                f"look-{each.queue.name}": repeat(each.queue.name, each.look_again, runtime)
                for each in single
            },
            **{
                f"{each.queue.name}-{number}": work_off(each.queue, each.reconcile)
                for each in aggregation
                for number in range(API_SERVICE_WORKERS)
            },
            **{
                each.queue.name: repeat(each.queue.name, each.look_again, runtime)
                for each in aggregation
            },
            **{
                f"namespace-{number}": work_off(namespaces.queue, namespaces.reconcile)
                for number in range(NAMESPACE_WORKERS)
            },
            **{
                f"definition-{number}": work_off(definitions.queue, definitions.reconcile)
                for number in range(DEFINITION_WORKERS)
            },
            **{
                f"cleanup-{number}": work_off(
                    definitions.cleaner.queue, definitions.cleaner.reconcile
                )
                for number in range(CLEANUP_WORKERS)
            },
            **{
                f"dependent-{number}": work_off(dependents.queue, dependents.reconcile)
                for number in range(DEPENDENTS_WORKERS)
            },
            **self._timed_loops(),
        }
        told = [each.hosting_changed for each in (definitions, namespaces, dependents)]
        told += [each.hosting_changed for each in quotas]
        with (
            definitions.woken(),
            _listening(catalog.listeners, told),
            _listening([] if remote is None else remote.listeners, [namespaces.hosting_changed]),
        ):
            async with asyncio.TaskGroup() as group:
                for name, loop in loops.items():
                    group.create_task(loop, name=f"housekeeping/{name}")

    def _aggregation(self) -> list[ApiServiceController | ProxyTrustController]:
        """Who keeps what servers behind this one, and those who ask for them, look at."""
        keepers: list[ApiServiceController | ProxyTrustController] = []
        if hosts_api_services(self._catalog):
            keepers.append(ApiServiceController(self._store, self._catalog, self._runtime))
        if (trust := self._new_trust()) is not None:
            keepers.append(trust)
        return keepers

    def _account_secrets(self) -> list[ServiceAccountSecretController]:
        """Who fills Secrets with tokens, if anybody does."""
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
def _listening(told: list[OnChange], listeners: Sequence[OnChange]) -> Iterator[None]:
    """Tell these of what is hosted and dropped, as long as this lasts."""
    told.extend(listeners)
    try:
        yield
    finally:
        for each in listeners:
            told.remove(each)
