"""One server process: from its options to a listening port, and back.

Start, in order: data directory and keys -> store -> is it our cluster -> caches and chain -> listen
-> join the servers -> report what is hosted, which opens it for writing -> first objects ->
front port -> kubeconfig -> ready. Stop: not ready -> leave the front port -> drain -> withdraw the
reports -> close.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Final

from restow.admission import Admission
from restow.aio import Runtime, Tasks, in_own_thread
from restow.apiserver.aggregation import aggregation_options
from restow.apiserver.assembly import Assembly, Secrets, assemble, make_custom_resources
from restow.apiserver.audit import load_audit
from restow.apiserver.authentication import Authenticators
from restow.apiserver.certificate_reload import CertificateReload, make_material
from restow.apiserver.cluster_keys import check_keys_exist
from restow.apiserver.encryption import Encryption
from restow.apiserver.kubeconfig import ExtraContext, write_kubeconfig
from restow.apiserver.lease_notes import LeaseNotes
from restow.apiserver.limits import listener_limits, request_limits
from restow.apiserver.memory_trim import find_trim, give_back_memory
from restow.apiserver.option_files import read_authorities
from restow.apiserver.options import ServeOptions
from restow.apiserver.pki import (
    ADMIN_GROUP,
    ADMIN_USER,
    FRONT_PROXY_NAME,
    Pki,
    PkiOptions,
    ensure_pki,
)
from restow.apiserver.releases import find_release
from restow.apiserver.runtime_config import with_served
from restow.apiserver.service_accounts import account_rules
from restow.apiserver.startup import take_part
from restow.apiserver.store_guard import StoreGuard, keep_guard, open_guarded
from restow.apiserver.webhooks import Webhooks
from restow.controllers import (
    ControllerManager,
    ControllerManagerOptions,
    CrdControllerOptions,
    EndpointAddress,
    ProxyTrust,
)
from restow.endpoints.barrier import WriteBarrier
from restow.httpserver import Listener, TlsMaterial, open_front_sockets
from restow.registry.catalog import Catalog, release_catalog
from restow.registry.committer import Sealed
from restow.registry.reconcile_loops import repeat
from restow.registry.resource import Resource
from restow.request.context import User
from restow.request.metrics import Metrics
from restow.request.responses import error_body
from restow.storage.errors import OpenRefused
from restow.storage.interface import Absent, Key, Put, Refused, Storage, Transaction
from restow.storage.private_files import make_data_directory
from restow.storageversion.agreements import Announcer
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.coordinator_parts import CoordinatorOptions
from restow.storageversion.membership import MembershipOptions
from restow.storageversion.remote_registration import check_not_reported
from restow.storageversion.remote_reports import RemoteReports
from restow.storageversion.store_scan import FIRST_SECONDS, BackgroundScan

CLUSTER_KEY: Final = Key("/restow/localcluster")
NOT_READY_SECONDS: Final = 0.2
"""Between saying that it is not ready and draining, so that balancers can look away."""
OWN_CONTEXT_NAME: Final = "restow-own"
"""In a kubeconfig whose usual context is the front port."""

logger = logging.getLogger(__name__)


class ApiServer:
    """A running server. Made by `start`."""

    def __init__(
        self, options: ServeOptions, assembly: Assembly, listener: Listener, undo: AsyncExitStack
    ) -> None:
        self._options = options
        self._listener = listener
        self._undo = undo
        self._clock = assembly.server.runtime.clock
        self.metrics = assembly.metrics
        """What it counts, as `/metrics` shows it."""
        self._stopping = False
        self.front_url: str | None = None
        """The address that this server shares with others, once it takes part."""
        assembly.health.add("shutdown", lambda: "stopping" if self._stopping else None, "readyz")

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def kubeconfig(self) -> Path:
        return self._options.kubeconfig or self._options.data_dir / "kubeconfig"

    @classmethod
    async def start(
        cls,
        options: ServeOptions,
        runtime: Runtime,
        *,
        kinds: Sequence[Resource] = (),
        admission: Sequence[Admission] = (),
    ) -> ApiServer:
        """Start a server; returns when it is ready. `kinds` are served besides the release's;
        `admission` has the last word on each write."""
        catalog = load_catalog(options, kinds)
        pki = await _load_pki(options, runtime)
        material = await in_own_thread("keys", partial(_make_material, options, pki))
        renewal = CertificateReload(pki, _pki_options(options), runtime, material=material)
        accounts = await in_own_thread(
            "keys", partial(account_rules, pki, options.service_accounts)
        )
        async with AsyncExitStack() as undo:
            authenticators = await _load_authenticators(options, pki, runtime, undo)
            authenticators.follow(renewal)
            storage, guard = await open_guarded(
                options.store_address, runtime, undo, data_dir=options.data_dir
            )
            await check_not_reported(storage)
            await _check_cluster(storage, pki)
            encryption = await _load_encryption(options, storage, runtime, undo)
            opened: Storage = storage if encryption is None else encryption.storage
            sealed = None if encryption is None else Sealed(storage, encryption.keys)
            metrics, webhooks = Metrics(), Webhooks(runtime)
            coordinator = Coordinator(
                storage,
                catalog,
                runtime,
                _coordinator_options(
                    options,
                    release=catalog.name,
                    notes=LeaseNotes(metrics, None if encryption is None else encryption.keys),
                    guard=guard,
                ),
                keys=None if sealed is None else sealed.keys,
                custom=lambda registration: make_custom_resources(
                    registration, opened, catalog, webhooks, runtime
                ),
            )
            if guard is not None:
                guard.accepted.subscribe(coordinator.store_replaced)
            assembly = await assemble(
                opened,
                catalog,
                runtime,
                secrets=Secrets(tokens={}, continue_key=pki.continue_key),
                authenticators=authenticators,
                address=f"{options.bind}:{options.port}",
                policy=coordinator.policy,
                barrier=WriteBarrier(coordinator),
                gates=options.feature_gates,
                version_of=coordinator.version_of,
                admission=admission,
                sealed=sealed,
                reports=RemoteReports(storage, coordinator.mirror, runtime),
                passes_on=aggregation_options(pki, options.bind),
                limits=request_limits(options.limits),
                audit=await load_audit(options.audit, runtime, undo),
                accounts=accounts,
                mirror=coordinator.mirror,
                custom=coordinator.custom,
                webhooks=webhooks,
                metrics=metrics,
            )
            catalog.is_whole = partial(_is_whole, assembly, guard)
            coordinator.table.switched.subscribe(assembly.discovery.forget)
            undo.push_async_callback(assembly.close)
            undo.push_async_callback(coordinator.close)
            assert assembly.aggregation is not None
            await assembly.aggregation.start()
            listener = await Listener.start(
                assembly.app,
                bind=options.bind,
                port=options.port,
                runtime=runtime,
                tls=material,
                limits=listener_limits(options.limits),
                gate=assembly.app.gate,
                given_up=assembly.app.given_up,
                quick=assembly.app.quick,
                error_body=error_body,
            )
            undo.push_async_callback(listener.stop, grace_seconds=options.grace_seconds)
            assembly.rewriter.others.asked = lambda: listener.counters.requests_total
            _publish(assembly.metrics, listener)
            authenticators.publish(assembly.metrics)
            tasks = runtime.tasks("apiserver")
            undo.push_async_callback(tasks.close)
            renewal.publish(assembly.metrics)
            tasks.spawn_loop("certificates", renewal.run())
            renew_seconds = options.identity_lease_renew_interval_seconds
            keep_guard(guard, assembly.health, tasks, interval_seconds=renew_seconds)
            tasks.spawn_loop(
                "memory", give_back_memory(listener.counters, runtime.clock, find_trim())
            )
            _scan_in_background(options, assembly, coordinator, tasks)
            undo.push_async_callback(assembly.custom.close)  # or it would register while it leaves
            announcer = Announcer(coordinator.mirror, assembly.store, assembly.catalog, runtime)
            own = _advertised(options.bind, listener.port)

            async def joined() -> None:
                coordinator.announce(announcer)
                await assembly.custom.start()

            await take_part(
                coordinator,
                assembly,
                address="" if own is None else f"{own.ip}:{own.port}",
                livez_grace_seconds=options.livez_grace_seconds,
                encryption=encryption,
                joined=joined,
                reported=assembly.custom.wait_for_first,
            )
            controller_manager = ControllerManager(
                opened,
                assembly.store,
                catalog,
                runtime,
                ControllerManagerOptions(
                    server_id=runtime.ids.nonce(8),
                    address=own,
                    certificates=pki.serving_ca_pem.decode(),
                    proxy_trust=_proxy_trust(pki),
                    sign_account_token=accounts.sign_for_secret,
                    compaction_seconds=options.compaction_interval_seconds,
                    event_ttl_seconds=options.event_ttl_seconds,
                ),
                definitions=CrdControllerOptions(
                    served_by_all=coordinator.custom_registration.served_by_all,
                    closed_by_all=coordinator.custom_registration.closed_by_all,
                    hosted_otherwise=coordinator.custom_registration.hosted_otherwise,
                    wake=coordinator.custom_registration.wake,
                ),
                remote=assembly.aggregation.contents,
            )
            undo.push_async_callback(controller_manager.close)
            assembly.aggregation.availability.is_leading = lambda: controller_manager.is_leading
            await controller_manager.start()
            renewal.listeners.append(
                lambda new: controller_manager.take_certificates(
                    new.serving_ca_pem.decode(), _proxy_trust(new)
                )
            )
            front_url = _open_front(options, listener, runtime)
            server = cls(options, assembly, listener, undo.pop_all())
        server.front_url = front_url
        url = f"https://{_host(options.bind)}:{listener.port}"
        assert assembly.service_accounts is not None
        assembly.service_accounts.documents.address = (front_url or url).removeprefix("https://")
        server.write_kubeconfig(renewal.pki)
        renewal.listeners.append(server.write_kubeconfig)  # the certificate in it ends, too
        logger.info(
            "serving %d resources on %s, stored in %s",
            len(catalog),
            url,
            options.store_address,
        )
        return server

    def write_kubeconfig(self, pki: Pki) -> None:
        """Leave one for clients, with these keys."""
        url, extra = f"https://{_host(self._options.bind)}:{self.port}", []
        if self.front_url is not None and not self._options.front_fds:
            # With sockets of a parent, that one writes another with the front port.
            url, extra = self.front_url, [ExtraContext(OWN_CONTEXT_NAME, url)]
        write_kubeconfig(
            self.kubeconfig,
            server_url=url,
            pki=pki,
            extra=extra,
            needs_certificate=self._options.tls.client_auth == "required",
        )

    async def stop(self) -> None:
        """Not ready, drain, close."""
        self._stopping = True
        if self.front_url is not None:
            await self._listener.retire()
        else:
            await self._clock.sleep(NOT_READY_SECONDS)
        await self._undo.aclose()
        logger.info("stopped")


def _is_whole(assembly: Assembly, guard: StoreGuard | None) -> bool:
    """Whether all CRDs of the store are known, so that other resources do not exist."""
    return assembly.custom.has_begun and (guard is None or guard.check() is None)


def _scan_in_background(
    options: ServeOptions, assembly: Assembly, coordinator: Coordinator, tasks: Tasks
) -> None:
    """Compare the StorageStates with the raw store from time to time."""
    runtime, scanner = assembly.server.runtime, assembly.server.scanner
    if scanner is None or options.storage_scan_interval_seconds <= 0:
        return
    scan = BackgroundScan(
        scanner,
        runtime.clock,
        interval_seconds=options.storage_scan_interval_seconds,
        collects_first=lambda: coordinator.completed and coordinator.collector.collects_first,
    )
    assembly.metrics.gauge(
        "restow_storage_scan_completed_timestamp_seconds",
        "When this server has last completed a background scan of the store.",
        (),
        lambda: [] if scan.completed_at is None else [((), scan.completed_at)],
    )
    assembly.metrics.gauge(
        "restow_storage_scan_values",
        "Values of the last background scan.",
        (),
        lambda: [((), scan.values)],
    )

    async def run() -> None:
        await runtime.clock.sleep(min(FIRST_SECONDS, options.storage_scan_interval_seconds))
        await repeat("storage scan", scan.step, runtime)

    tasks.spawn_loop("storage scan", run())


async def _load_encryption(
    options: ServeOptions, storage: Storage, runtime: Runtime, undo: AsyncExitStack
) -> Encryption | None:
    if options.encryption_provider_config is None:
        return None
    encryption = await Encryption.load(options.encryption_provider_config, storage, runtime)
    undo.push_async_callback(encryption.close)
    return encryption


async def _load_authenticators(
    options: ServeOptions, pki: Pki, runtime: Runtime, undo: AsyncExitStack
) -> Authenticators:
    authenticators = await Authenticators.load(
        options.authentication,
        runtime,
        tokens={pki.admin_token: User(ADMIN_USER, (ADMIN_GROUP,))},
        token_auth_file=options.token_auth_file,
        client_ca_pem=pki.client_ca_pem,
        own_issuers=options.service_accounts.issuers,
    )
    undo.push_async_callback(authenticators.close)
    return authenticators


def _make_material(options: ServeOptions, pki: Pki) -> TlsMaterial:
    """What the listener shows and trusts: users' authorities, and those of proxies in front."""
    files = pki.tls_files()
    proxies = options.authentication.request_header
    if proxies is not None:
        read_authorities("--requestheader-client-ca-file", proxies.client_ca_file)
        files = replace(files, client_ca_files=(*files.client_ca_files, proxies.client_ca_file))
    return make_material(files, options.tls)


def _coordinator_options(
    options: ServeOptions, *, release: str, notes: LeaseNotes, guard: StoreGuard | None
) -> CoordinatorOptions:
    membership = MembershipOptions(
        host=socket.gethostname(),
        release=release,
        notes=notes,
        mode=options.recorded_mode,
        lease_seconds=options.identity_lease_duration_seconds,
        renew_seconds=options.identity_lease_renew_interval_seconds,
        has_lease=options.feature_gates.api_server_identity,
    )
    coordination = CoordinatorOptions(
        membership=membership,
        may_change_mode=options.coordination.change_mode,
        may_force=options.coordination.vote_bootstrap == "force",
        loose_bound_seconds=options.coordination.loose_bound_seconds,
    )
    return coordination if guard is None else replace(coordination, confirm_store=guard.confirm)


def _open_front(options: ServeOptions, listener: Listener, runtime: Runtime) -> str | None:
    """Take part in the front port, if there is one; its address."""
    if options.front_fds:
        sockets = [socket.socket(fileno=fd) for fd in options.front_fds]
    elif options.front_port is not None:
        bind = options.front_bind or options.bind
        sockets = open_front_sockets(bind, options.front_port, count=1)
    else:
        return None
    bind, port = sockets[0].getsockname()[:2]
    listener.open_front(sockets, runtime, is_shared=bool(options.front_fds))
    url = f"https://{_host(bind)}:{port}"
    logger.info("sharing %s", url)
    return url


def load_catalog(options: ServeOptions, kinds: Sequence[Resource] = ()) -> Catalog:
    """What the server hosts. Raises `ReleaseError` naming the line that is wrong, and ValueError
    for what `--runtime-config` names and the release does not have."""
    release = find_release(options.release)
    hosted = [*release_catalog(release), *kinds]
    served = with_served(hosted, options.runtime_config, options.feature_gates)
    return Catalog(served, name=release.name)


def _publish(metrics: Metrics, listener: Listener) -> None:
    """Show what the listener counts."""
    for field in fields(listener.counters):
        grows = field.metadata["grows"]
        name = f"restow_listener_{field.name.removesuffix('_total')}"
        add = metrics.counter if grows else metrics.gauge
        add(
            f"{name}_total" if grows else name,
            field.metadata["about"],
            (),
            lambda name=field.name: [((), getattr(listener.counters, name))],  # type: ignore[misc]
        )


async def _load_pki(options: ServeOptions, runtime: Runtime) -> Pki:
    await check_keys_exist(options.store_address, options.data_dir / "pki", runtime)
    return await in_own_thread("keys", partial(_make_pki, options, runtime))


def _make_pki(options: ServeOptions, runtime: Runtime) -> Pki:
    make_data_directory(options.data_dir)
    return ensure_pki(options.data_dir / "pki", runtime, _pki_options(options))


def _pki_options(options: ServeOptions) -> PkiOptions:
    return PkiOptions(
        bind=options.bind,
        extra_names=(options.front_bind,) if options.front_bind else (),
        tls_cert_file=options.tls_cert_file,
        tls_private_key_file=options.tls_private_key_file,
        client_ca_file=options.client_ca_file,
        service_account_signing_key_file=options.service_account_signing_key_file,
    )


def _proxy_trust(pki: Pki) -> ProxyTrust:
    return ProxyTrust(
        client_ca_pem=pki.client_ca_pem.decode(),
        proxy_ca_pem=pki.front_proxy_ca_pem.decode(),
        allowed_names=(FRONT_PROXY_NAME,),
    )


async def _check_cluster(storage: Storage, pki: Pki) -> None:
    """Refuse a store that belongs to a cluster with other keys."""
    fingerprint = pki.fingerprint.encode()
    create = Transaction((Absent(CLUSTER_KEY),), (Put(CLUSTER_KEY, fingerprint),))
    outcome = await storage.commit(create)
    if isinstance(outcome, Refused) and outcome.current is not None:
        found = outcome.current.value
        if found not in (fingerprint, pki.fingerprint_before.encode()):
            raise OpenRefused(
                "this store belongs to a cluster with other keys (its fingerprint is"
                f" {found.decode(errors='replace')}, ours {pki.fingerprint}): copy the directory"
                " 'pki' from the data directory of a server of that cluster"
            )


def _advertised(bind: str, port: int) -> EndpointAddress | None:
    """Where others reach this process; a name is not published, since endpoints are addresses."""
    try:
        return EndpointAddress(str(ipaddress.ip_address(_host(bind).strip("[]"))), port)
    except ValueError:
        return None


def _host(bind: str) -> str:
    if bind in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{bind}]" if ":" in bind else bind
