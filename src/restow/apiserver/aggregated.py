"""One aggregated server process: it serves its own groups, behind the main servers.

Start, in order: keys -> whom to believe, as the main servers say -> store -> caches and chain
-> listen -> join the servers and report, which opens it for writing -> make itself known to the
main servers -> ready. Stop: not ready -> take the address out -> drain -> withdraw -> close.

In the main servers' store it is a member of their agreement. In one of its own it agrees with the
servers on that store, and reports through the main servers' API. It keeps nobody's house but its
own: namespaces, accounts and definitions are the main servers'.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from restow.admission import Admission
from restow.aio import Runtime
from restow.apiserver.aggregated_namespaces import MainNamespaces
from restow.apiserver.aggregated_options import AggregatedOptions
from restow.apiserver.aggregated_registration import (
    Identity,
    SelfRegistration,
    group_versions_of,
)
from restow.apiserver.aggregated_reviews import Reviews
from restow.apiserver.aggregated_store import check_component, check_main, cluster_of, is_shared
from restow.apiserver.aggregated_trust import ForgetfulAuthentication, MainTrust
from restow.apiserver.assembly import Assembly, AuthParts, Secrets, assemble
from restow.apiserver.audit import load_audit
from restow.apiserver.certificate_reload import CertificateReload
from restow.apiserver.encryption import Encryption
from restow.apiserver.lease_notes import LeaseNotes
from restow.apiserver.limits import listener_limits, request_limits
from restow.apiserver.main_api import ClientMainApi
from restow.apiserver.memory_trim import find_trim, give_back_memory
from restow.apiserver.option_files import read_option
from restow.apiserver.options import ServeOptions
from restow.apiserver.pki import Pki, PkiOptions, ensure_pki
from restow.apiserver.startup import take_part
from restow.apiserver.store_guard import StoreGuard, keep_guard, open_guarded
from restow.client import ApiClient, ClientConfig, read_kubeconfig
from restow.controllers import EndpointAddress
from restow.controllers.compaction import Compactor
from restow.controllers.store_lock import store_elector
from restow.endpoints.barrier import WriteBarrier
from restow.httpserver import Listener
from restow.registry.catalog import Catalog
from restow.registry.committer import Sealed
from restow.registry.reconcile_loops import repeat
from restow.registry.resource import Resource
from restow.request.metrics import Metrics
from restow.request.responses import error_body
from restow.storage.errors import OpenRefused
from restow.storage.interface import Storage
from restow.storage.private_files import make_data_directory
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.participants import Participants
from restow.storageversion.records import name_of
from restow.storageversion.remote_registration import Remote, ensure_store_id, forget_store

NOT_READY_SECONDS: Final = 0.2
"""Between taking the address out and draining, so that the main servers can look away."""
LOCK_NAME: Final = "housekeeping"
NONCE_BYTES: Final = 8

logger = logging.getLogger(__name__)


class AggregatedServer:
    """A running aggregated server. Made by `start`."""

    def __init__(
        self, *, component: str, assembly: Assembly, listener: Listener, undo: AsyncExitStack
    ) -> None:
        self.component = component
        self._listener = listener
        self._undo = undo
        self.metrics = assembly.metrics
        """What it counts, as `/metrics` shows it."""
        self._stopping = False
        assembly.health.add("shutdown", lambda: "stopping" if self._stopping else None, "readyz")

    @property
    def port(self) -> int:
        return self._listener.port

    @classmethod
    async def start(
        cls,
        options: AggregatedOptions,
        runtime: Runtime,
        *,
        kinds: Sequence[Resource],
        admission: Sequence[Admission] = (),
    ) -> AggregatedServer:
        """Start a server that hosts these kinds; returns when it is ready. `admission` has the
        last word on each write. Waits for the main servers, if they are not there yet."""
        catalog = aggregated_catalog(kinds, name=options.release_name)
        starting = _Starting(options, catalog, runtime)
        async with AsyncExitStack() as undo:
            await starting.meet_main(undo)
            await starting.open_store(undo)
            assembly = await starting.assemble(undo, admission)
            listener = await starting.listen(undo, assembly)
            await starting.take_part(assembly, listener.port)
            await starting.go_to_work(undo, assembly, listener)
            server = cls(
                component=starting.component,
                assembly=assembly,
                listener=listener,
                undo=undo.pop_all(),
            )
        logger.info(
            "serving %d resources of %s as %s on port %d, stored in %s (%s)",
            len(catalog),
            ", ".join(catalog.groups),
            server.component,
            server.port,
            options.serve.store_address,
            "the main servers' store" if starting.shares_store else "its own store",
        )
        return server

    async def stop(self) -> None:
        """Not ready, drain, close."""
        self._stopping = True
        await self._undo.aclose()
        logger.info("stopped")


def aggregated_catalog(kinds: Sequence[Resource], *, name: str = "") -> Catalog:
    """What the server hosts. Raises ValueError for what no aggregated server could."""
    if not kinds:
        raise ValueError("an aggregated server needs kinds of its own: give --kinds")
    for each in kinds:
        if "." not in each.group:
            raise ValueError(f"{each.kind.group_resource} is no kind of an aggregated server")
    return Catalog(kinds, name=name)


def _read_main(path: Path) -> ClientConfig:
    """Where the main servers are, and whom to believe that it is they. It blocks."""
    read_option("--main-kubeconfig", path)  # whoever writes it says who comes in here
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


class _Starting:
    """The steps of a start, in their order, and what each leaves for the next."""

    def __init__(self, options: AggregatedOptions, catalog: Catalog, runtime: Runtime) -> None:
        self._options = options
        self._catalog = catalog
        self._runtime = runtime
        self.component = options.component_for(list(catalog.groups))
        self.shares_store = False
        self._requested = _pki_options(options, self.component)
        self._pki: Pki
        self._renewal: CertificateReload
        self._client: ApiClient
        self._trust: MainTrust
        self._storage: Storage
        self._encryption: Encryption | None = None
        self._coordinator: Coordinator
        self._namespaces: MainNamespaces
        self._guard: StoreGuard | None
        self._metrics = Metrics()

    async def meet_main(self, undo: AsyncExitStack) -> None:
        """Have keys, and know whom to believe."""
        options, runtime = self._options, self._runtime
        self._pki = await asyncio.to_thread(_make_pki, options.serve, runtime, self._requested)
        config = await asyncio.to_thread(_read_main, options.main_kubeconfig)
        self._client = ApiClient.connect(config, runtime=runtime)
        undo.push_async_callback(self._client.close)
        self._trust = MainTrust(self._client, runtime, options.serve.data_dir)
        await self._trust.load()

    async def open_store(self, undo: AsyncExitStack) -> None:
        """Open the store, and see whose it is."""
        serve = self._options.serve
        self._storage, self._guard = await open_guarded(
            serve.store_address, self._runtime, undo, data_dir=serve.data_dir
        )
        config = serve.encryption_provider_config
        if config is not None:
            self._encryption = await Encryption.load(config, self._storage, self._runtime)
            undo.push_async_callback(self._encryption.close)
        cluster = await cluster_of(self._client)
        self.shares_store = await is_shared(self._opened, cluster)
        await check_component(self._storage, self.component, self._pki)
        main, remote = ClientMainApi(self._client), None
        if not self.shares_store:
            await check_main(self._storage, cluster)
            store_id = await ensure_store_id(self._storage, self._runtime)
            remote = Remote(main=main, store=store_id)
        self._coordinator = self._make_coordinator(remote)
        if self._guard is not None:
            self._guard.accepted.subscribe(self._coordinator.store_replaced)
        for store in self._options.forget_stores:
            if remote is not None and store == remote.store:
                raise OpenRefused(f"--forget-store {store}: that is the store of this server")
            names = [name_of(each.kind.group_resource) for each in self._catalog.persisted()]
            await forget_store(main, names, store=store)

    @property
    def _opened(self) -> Storage:
        """The store as it reads with the keys there are."""
        return self._storage if self._encryption is None else self._encryption.storage

    def _make_coordinator(self, remote: Remote | None) -> Coordinator:
        serve = self._options.serve
        membership = MembershipOptions(
            host=socket.gethostname(),
            release=self._catalog.name,
            component=self.component,
            notes=LeaseNotes(
                self._metrics, None if self._encryption is None else self._encryption.keys
            ),
            mode=serve.recorded_mode,
            lease_seconds=serve.identity_lease_duration_seconds,
            renew_seconds=serve.identity_lease_renew_interval_seconds,
            has_lease=serve.feature_gates.api_server_identity,
        )
        coordination = CoordinatorOptions(
            membership=membership,
            may_change_mode=serve.coordination.change_mode,
            may_force=serve.coordination.vote_bootstrap == "force",
            loose_bound_seconds=serve.coordination.loose_bound_seconds,
        )
        if self._guard is not None:
            coordination = replace(coordination, confirm_store=self._guard.confirm)
        return Coordinator(
            self._storage,
            self._catalog,
            self._runtime,
            coordination,
            keys=None if self._encryption is None else self._encryption.keys,
            remote=remote,
        )

    async def assemble(self, undo: AsyncExitStack, admission: Sequence[Admission]) -> Assembly:
        """Put the parts together: who may come in is the main servers' to say."""
        coordinator, serve, trust = self._coordinator, self._options.serve, self._trust
        reviews = Reviews(self._client, self._runtime)
        undo.push_async_callback(reviews.close)
        self._namespaces = MainNamespaces(self._client, self._runtime)
        encryption = self._encryption
        assembly = await assemble(
            self._opened,
            self._catalog,
            self._runtime,
            secrets=Secrets(tokens={}, continue_key=self._pki.continue_key),
            address=f"{serve.bind}:{serve.port}",
            policy=coordinator.policy,
            barrier=WriteBarrier(coordinator),
            gates=serve.feature_gates,
            version_of=coordinator.version_of,
            admission=(self._namespaces, *admission),
            sealed=None if encryption is None else Sealed(self._storage, encryption.keys),
            limits=request_limits(serve.limits),
            audit=await load_audit(serve.audit, self._runtime, undo),
            metrics=self._metrics,
            auth_parts=AuthParts(
                authentication=ForgetfulAuthentication(trust.proxies, trust.clients, reviews),
                authorizer=reviews,
            ),
        )
        coordinator.table.switched.subscribe(assembly.discovery.forget)
        undo.push_async_callback(assembly.close)
        undo.push_async_callback(coordinator.close)
        return assembly

    async def listen(self, undo: AsyncExitStack, assembly: Assembly) -> Listener:
        serve, pki = self._options.serve, self._pki
        material = self._trust.tls(pki.serving_cert_file, pki.serving_key_file, serve.tls)
        self._renewal = CertificateReload(pki, self._requested, self._runtime, material=material)
        self._renewal.publish(assembly.metrics)
        listener = await Listener.start(
            assembly.app,
            bind=serve.bind,
            port=serve.port,
            runtime=self._runtime,
            tls=material,
            limits=listener_limits(serve.limits),
            gate=assembly.app.gate,
            given_up=assembly.app.given_up,
            quick=assembly.app.quick,
            error_body=error_body,
        )
        undo.push_async_callback(listener.stop, grace_seconds=serve.grace_seconds)
        return listener

    async def take_part(self, assembly: Assembly, port: int) -> None:
        """Join the servers and report; from then on objects can be written."""
        address = self._options.address
        await take_part(
            self._coordinator,
            assembly,
            address=f"{address}:{port}" if address else "",
            livez_grace_seconds=self._options.serve.livez_grace_seconds,
            encryption=self._encryption,
        )

    async def go_to_work(
        self, undo: AsyncExitStack, assembly: Assembly, listener: Listener
    ) -> None:
        """Begin what goes on for ever, and make this server known."""
        runtime, serve = self._runtime, self._options.serve
        tasks = runtime.tasks("aggregated", on_failure=lambda _: None)
        undo.push_async_callback(tasks.close)

        async def follow_namespaces() -> None:
            await self._namespaces.run(assembly.store, self._catalog)

        tasks.spawn_loop("memory", give_back_memory(listener.counters, runtime.clock, find_trim()))
        tasks.spawn_loop("certificates", self._renewal.run())
        renew_seconds = self._options.serve.identity_lease_renew_interval_seconds
        keep_guard(self._guard, assembly.health, tasks, interval_seconds=renew_seconds)
        tasks.spawn_loop("trust", _for_ever("whom to believe", self._trust.follow, runtime))
        tasks.spawn_loop("namespaces", _for_ever("namespaces", follow_namespaces, runtime))
        if not self.shares_store and serve.compaction_interval_seconds > 0:
            work = _compact(self._storage, runtime, serve.compaction_interval_seconds)
            tasks.spawn_loop("compaction", work)
        if self._options.registers_itself:
            registration = self._registration(listener.port)
            # Not of livez: a restart would not bring the main servers back.
            assembly.health.add("api-service-registration", lambda: registration.trouble, "readyz")
            undo.push_async_callback(runtime.clock.sleep, NOT_READY_SECONDS)
            undo.push_async_callback(registration.leave)
            await registration.enter()
            self._coordinator.mirror.listeners.append(registration.server_changed)
            tasks.spawn_loop("self-registration", registration.run())

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
            living=_Living(self._coordinator, self.component),
        )


class _Living:
    """The addresses of the members of one component. Call it."""

    def __init__(self, coordinator: Coordinator, component: str) -> None:
        self._roster = Participants(coordinator.mirror)
        self._component = component

    def __call__(self) -> set[EndpointAddress]:
        found = set[EndpointAddress]()
        for record in self._roster.servers().values():
            if record is not None and record.component == self._component:
                ip, _, port = record.address.rpartition(":")
                if ip and port.isdecimal():
                    found.add(EndpointAddress(ip, int(port)))
        return found


async def _for_ever(name: str, run: Callable[[], Awaitable[None]], runtime: Runtime) -> None:
    """Begin again what has ended by an error."""

    async def step() -> float:
        await run()
        return 0.0

    await repeat(name, step, runtime)


async def _compact(storage: Storage, runtime: Runtime, seconds: float) -> None:
    """Nobody else would do it in a store of one's own; one server does it for all."""
    identity = runtime.ids.nonce(NONCE_BYTES)
    elector = store_elector(storage, runtime, name=LOCK_NAME, identity=identity)

    async def work() -> None:
        compactor = Compactor(storage)

        async def step() -> float:
            await compactor.step()
            return seconds

        await repeat("compaction", step, runtime)

    await elector.run(work)
