"""One aggregated API server process, which serves its own API groups behind the main servers.

`START` lists the steps of its start; `restow.apiserver.shutdown` stops it.

On the main servers' store it participates in their storage version agreement. On its own store it
agrees with the other servers of that store, and reports its storage versions through the main
servers' API. It runs controllers only for its own resources: namespaces, service accounts and CRDs
belong to the main servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from restow.admission import Admission
from restow.aio import Runtime, Tasks
from restow.apiserver.aggregated_namespaces import MainNamespaces
from restow.apiserver.aggregated_options import AggregatedOptions
from restow.apiserver.aggregated_registration import (
    Identity,
    SelfRegistration,
    group_versions_of,
)
from restow.apiserver.aggregated_reviews import Reviews
from restow.apiserver.aggregated_store import check_component, check_main, cluster_of, is_shared
from restow.apiserver.aggregated_trust import MainTrust, UncachedAuthentication
from restow.apiserver.assembly import Assembly
from restow.apiserver.audit import Audit, open_audit
from restow.apiserver.build import build
from restow.apiserver.build_inputs import AccessOptions, AuthParts, EndpointOptions, Secrets
from restow.apiserver.build_store import (
    CoordinatorKind,
    OpenStore,
    agreement_of,
    build_coordinator,
    load_encryption,
    open_store,
)
from restow.apiserver.certificate_reload import CertificateReload
from restow.apiserver.limits import request_limits
from restow.apiserver.listener import listen
from restow.apiserver.loop_metrics import measure_lag
from restow.apiserver.main_api import ClientMainApi
from restow.apiserver.memory_trim import find_trim, trim_memory
from restow.apiserver.option_files import read_option
from restow.apiserver.options import ServeOptions
from restow.apiserver.pki import Pki, PkiOptions, ensure_pki
from restow.apiserver.shutdown import Shutdown
from restow.apiserver.startup import PARTICIPATION, Participation, StartStep, run_steps, start
from restow.apiserver.store_guard import keep_guard
from restow.apiserver.subscriptions import (
    agreement_subscriptions,
    registration_subscriptions,
    subscribe_all,
)
from restow.client import ApiClient, ClientConfig, read_kubeconfig
from restow.controllers import EndpointAddress
from restow.controllers.compaction import Compactor
from restow.controllers.store_lock import store_elector
from restow.httpserver import Listener
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import repeat
from restow.registry.resource import Resource
from restow.storage.errors import OpenRefused
from restow.storage.interface import Storage
from restow.storage.private_files import make_data_directory
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.participants import Participants
from restow.storageversion.records import name_of
from restow.storageversion.remote_registration import Remote, ensure_store_id, forget_store

NOT_READY_SECONDS: Final = 0.2
"""Delay between removing the address and draining, so that the main servers stop forwarding."""
LOCK_NAME: Final = "housekeeping"
NONCE_BYTES: Final = 8

logger = logging.getLogger(__name__)


class AggregatedServer:
    """A running aggregated server. Create it with `start`."""

    def __init__(self, started: _Start) -> None:
        self._started = started
        self.component: Final = started.component
        self.metrics = started.assembly.metrics
        """The metrics that `/metrics` serves."""
        self._stopping = False
        health = started.assembly.health
        health.add("shutdown", lambda: "stopping" if self._stopping else None, "readyz")

    @property
    def port(self) -> int:
        return self._started.listener.port

    @classmethod
    async def start(
        cls,
        options: AggregatedOptions,
        runtime: Runtime,
        *,
        kinds: Sequence[Resource],
        admission: Sequence[Admission] = (),
    ) -> AggregatedServer:
        """Start a server of these kinds; returns when it is ready. `admission`: additional plug-ins
        that review each write. Waits until the main servers are reachable."""
        catalog = aggregated_catalog(kinds, name=options.release_name)
        started = _Start(options, catalog, runtime, admission)
        await start(START, started, started.shutdown)
        logger.info(
            "serving %d resources of %s as %s on port %d, stored in %s (%s)",
            len(catalog),
            ", ".join(catalog.groups),
            started.component,
            started.listener.port,
            options.serve.store_address,
            "the main servers' store" if started.shares_store else "its own store",
        )
        return cls(started)

    async def stop(self) -> None:
        """Report not ready, drain, close."""
        self._stopping = True
        await self._started.shutdown.run()
        logger.info("stopped")


def aggregated_catalog(kinds: Sequence[Resource], *, name: str = "") -> Catalog:
    """The resources that the server hosts. Raises ValueError if it cannot host one of them."""
    if not kinds:
        raise ValueError("an aggregated server needs kinds of its own: give --kinds")
    for each in kinds:
        if "." not in each.group:
            raise ValueError(f"{each.kind.group_resource} cannot be served by an aggregated server")
    return Catalog(kinds, name=name)


def _read_main(path: Path) -> ClientConfig:
    """Read the address and the CA of the main servers. Blocks."""
    read_option("--main-kubeconfig", path)  # its writer decides which clients are trusted
    return read_kubeconfig([path])


def _make_pki(serve: ServeOptions, runtime: Runtime, requested: PkiOptions) -> Pki:
    make_data_directory(serve.data_dir)
    return ensure_pki(serve.data_dir / "pki", runtime, requested)


def _pki_options(options: AggregatedOptions, component: str) -> PkiOptions:
    serve = options.serve
    service = f"{options.service_for(component)}.{options.namespace}.svc"
    addresses = (options.advertise_address,) if options.advertise_address else ()
    return PkiOptions(
        bind=serve.bind,
        extra_names=(service, f"{service}.cluster.local", *addresses),
        tls_cert_file=serve.tls_cert_file,
        tls_private_key_file=serve.tls_private_key_file,
    )


class _Start:
    """The steps of a start, with the state that one step leaves for the next."""

    def __init__(
        self,
        options: AggregatedOptions,
        catalog: Catalog,
        runtime: Runtime,
        admission: Sequence[Admission],
    ) -> None:
        self.shutdown: Final = Shutdown()
        self.component: Final = options.component_for(list(catalog.groups))
        self.shares_store = False
        self.assembly: Assembly
        self.listener: Listener
        self._options = options
        self._catalog = catalog
        self._runtime = runtime
        self._admission = admission
        self._requested = _pki_options(options, self.component)
        self._pki: Pki
        self._renewal: CertificateReload
        self._client: ApiClient
        self._trust: MainTrust
        self._store: OpenStore
        self._remote: Remote | None = None
        self._reviews: Reviews
        self._audit: Audit | None
        self._coordinator: Coordinator
        self._namespaces: MainNamespaces
        self._tasks: Tasks

    async def connect_main(self) -> None:
        options, runtime = self._options, self._runtime
        self._pki = await asyncio.to_thread(_make_pki, options.serve, runtime, self._requested)
        config = await asyncio.to_thread(_read_main, options.main_kubeconfig)
        self._client = ApiClient.connect(config, runtime=runtime)
        self.shutdown.add("main client", self._client.close)
        self._trust = MainTrust(self._client, runtime, options.serve.data_dir)
        await self._trust.load()

    async def open_store(self) -> None:
        serve, runtime = self._options.serve, self._runtime
        store = await open_store(serve, runtime, self.shutdown)
        self._store = store = await load_encryption(store, serve, runtime, self.shutdown)
        cluster = await cluster_of(self._client)
        self.shares_store = await is_shared(store.opened, cluster)
        await check_component(store.storage, self.component, self._pki)
        if self.shares_store:
            return
        await check_main(store.storage, cluster)
        store_id = await ensure_store_id(store.storage, runtime)
        self._remote = Remote(main=ClientMainApi(self._client), store=store_id)

    async def forget_stores(self) -> None:
        own = None if self._remote is None else self._remote.store
        for store in self._options.forget_stores:
            if store == own:
                raise OpenRefused(f"--forget-store {store}: that is this server's own store")
            names = [name_of(each.kind.group_resource) for each in self._catalog.persisted()]
            await forget_store(ClientMainApi(self._client), names, store=store)

    async def open_reviews(self) -> None:
        self._reviews = Reviews(self._client, self._runtime)
        self.shutdown.add("reviews", self._reviews.close)

    async def open_audit(self) -> None:
        self._audit = await open_audit(self._options.serve.audit, self._runtime)
        if self._audit is not None:
            self.shutdown.add("audit", self._audit.close)

    async def build(self) -> None:
        """Build the parts; the main servers authenticate and authorize."""
        serve, store, trust = self._options.serve, self._store, self._trust
        self._namespaces = MainNamespaces(self._client, self._runtime)
        foundation = store.foundation(self._catalog, self._runtime)
        kind = CoordinatorKind(component=self.component, remote=self._remote, serves_crds=False)
        self._coordinator = coordinator = build_coordinator(serve, store, foundation, kind)
        # KEP-35 1.8: aggregated servers show hashes through the same code
        self.assembly = build(
            foundation,
            AccessOptions(
                secrets=Secrets(tokens={}, continue_key=self._pki.continue_key),
                admission=(self._namespaces, *self._admission),
                audit=self._audit,
                auth_parts=AuthParts(
                    authentication=UncachedAuthentication(
                        trust.proxies, trust.clients, self._reviews
                    ),
                    authorizer=self._reviews,
                ),
            ),
            EndpointOptions(
                address=f"{serve.bind}:{serve.port}",
                gates=serve.feature_gates,
                limits=request_limits(serve.limits),
            ),
            agreement_of(coordinator),
        )
        subscribe_all(
            agreement_subscriptions(
                self.assembly, coordinator, guard=store.guard, encryption=store.encryption
            )
        )

    async def start_assembly(self) -> None:
        await self.assembly.start()
        self.shutdown.add("assembly", self.assembly.close)
        self.shutdown.add("participation", self._coordinator.close)

    async def listen(self) -> None:
        serve, pki = self._options.serve, self._pki
        material = self._trust.tls(pki.serving_cert_file, pki.serving_key_file, serve.tls)
        self._renewal = CertificateReload(pki, self._requested, self._runtime, material=material)
        self._renewal.publish(self.assembly.metrics)
        self.listener = listener = await listen(self.assembly, serve, self._runtime, material)
        self.shutdown.add("listener", partial(listener.stop, grace_seconds=serve.grace_seconds))

    async def participate(self) -> None:
        address = self._options.address
        participation = Participation(
            self._coordinator,
            self.assembly,
            encryption=self._store.encryption,
            address=f"{address}:{self.listener.port}" if address else "",
            livez_grace_seconds=self._options.serve.livez_grace_seconds,
        )
        # KEP-2339 3.40: aggregated servers report, are fenced and collected by the same code
        await run_steps(PARTICIPATION, participation)

    async def start_background(self) -> None:
        runtime, serve, store = self._runtime, self._options.serve, self._store
        self._tasks = tasks = runtime.tasks("aggregated", on_failure=lambda _: None)
        self.shutdown.add("background", tasks.close)

        async def follow_namespaces() -> None:
            await self._namespaces.run(self.assembly.store, self._catalog)

        memory = trim_memory(self.listener.counters, runtime.clock, find_trim())
        tasks.spawn_loop("memory", memory)
        measure_lag(tasks, runtime.clock, self.assembly.metrics)
        tasks.spawn_loop("certificates", self._renewal.run())
        renew_seconds = serve.identity_lease_renew_interval_seconds
        keep_guard(store.guard, self.assembly.health, tasks, interval_seconds=renew_seconds)
        tasks.spawn_loop("trust", _run_repeatedly("main trust", self._trust.follow, runtime))
        tasks.spawn_loop("namespaces", _run_repeatedly("namespaces", follow_namespaces, runtime))
        if not self.shares_store and serve.compaction_interval_seconds > 0:
            work = _compact(store.storage, runtime, serve.compaction_interval_seconds)
            tasks.spawn_loop("compaction", work)

    async def register_apis(self) -> None:
        if not self._options.registers_itself:
            return
        registration = self._registration(self.listener.port)
        # Not a livez check: a restart would not bring the main servers back.
        self.assembly.health.add("api-service-registration", lambda: registration.trouble, "readyz")

        async def leave() -> None:
            try:
                await registration.leave()
            finally:
                await self._runtime.clock.sleep(NOT_READY_SECONDS)

        self.shutdown.add("registration", leave)
        await registration.enter()
        subscribe_all(registration_subscriptions(self._coordinator, registration))
        self._tasks.spawn_loop("self-registration", registration.run())

    def _registration(self, port: int) -> SelfRegistration:
        options = self._options
        identity = Identity(
            component=self.component,
            namespace=options.namespace,
            service=options.service_for(self.component),
            ca_pem=self._pki.serving_ca_pem,
            group_versions=group_versions_of(self._catalog.groups),
        )
        return SelfRegistration(
            self._client,
            self._runtime,
            identity,
            own=EndpointAddress(options.address, port),
            member_addresses=_MemberAddresses(self._coordinator, self.component),
        )


START: Final[tuple[StartStep[_Start], ...]] = (
    StartStep("main servers", _Start.connect_main, "they define the trusted clients and proxies"),
    StartStep(
        "store", _Start.open_store, "it must belong to this component and these main servers"
    ),
    StartStep(
        "forgotten stores", _Start.forget_stores, "before this server reports to the same APIs"
    ),
    StartStep(
        "reviews",
        _Start.open_reviews,
        "the main servers authorize the requests that the audit log records",
    ),
    StartStep(
        "audit", _Start.open_audit, "an invalid policy fails the start before anything is served"
    ),
    StartStep("build", _Start.build, "all parts are complete before the first of them is started"),
    StartStep(
        "assembly",
        _Start.start_assembly,
        "the admission configuration is loaded before the first request",
    ),
    StartStep(
        "listener", _Start.listen, "health checks report the progress, and the port is known"
    ),
    StartStep("participation", _Start.participate, "KEP-2339: see `startup.PARTICIPATION`"),
    StartStep(
        "background", _Start.start_background, "follow changes of trust, namespaces and the store"
    ),
    StartStep(
        "registration", _Start.register_apis, "the main servers forward requests from now on"
    ),
)


class _MemberAddresses:
    """Returns the addresses of all participating servers of one component when called."""

    def __init__(self, coordinator: Coordinator, component: str) -> None:
        self._participants = Participants(coordinator.mirror)
        self._component = component

    def __call__(self) -> set[EndpointAddress]:
        found = set[EndpointAddress]()
        for record in self._participants.servers().values():
            if record is not None and record.component == self._component:
                ip, _, port = record.address.rpartition(":")
                if ip and port.isdecimal():
                    found.add(EndpointAddress(ip, int(port)))
        return found


async def _run_repeatedly(name: str, run: Callable[[], Awaitable[None]], runtime: Runtime) -> None:
    """Run a coroutine function forever; restart it after an error."""

    async def step() -> float:
        await run()
        return 0.0

    await repeat(name, step, runtime)


async def _compact(storage: Storage, runtime: Runtime, seconds: float) -> None:
    """Compact a store of one's own, where no main server does; one elected server compacts."""
    identity = runtime.ids.nonce(NONCE_BYTES)
    elector = store_elector(storage, runtime, name=LOCK_NAME, identity=identity)

    async def work() -> None:
        compactor = Compactor(storage)

        async def step() -> float:
            await compactor.step()
            return seconds

        await repeat("compaction", step, runtime)

    await elector.run(work)
