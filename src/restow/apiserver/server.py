"""One server process, from its options to a listening port, and its shutdown.

`START` lists the steps of the start; `restow.apiserver.shutdown` those of the shutdown, which
begins with reporting not ready and leaving the front port.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from restow.admission import Admission
from restow.aio import Runtime, in_own_thread
from restow.aio.leader_election import LeaderElector
from restow.apiserver.aggregation import aggregation_options, proxy_trust
from restow.apiserver.assembly import Assembly
from restow.apiserver.audit import Audit, open_audit
from restow.apiserver.authentication import Authenticators
from restow.apiserver.background_scan import scan_in_background
from restow.apiserver.build import build
from restow.apiserver.build_inputs import AccessOptions, EndpointOptions, Secrets
from restow.apiserver.build_store import (
    CoordinatorKind,
    OpenStore,
    agreement_of,
    build_coordinator,
    load_encryption,
    open_store,
)
from restow.apiserver.certificate_reload import CertificateReload, make_material
from restow.apiserver.cluster_keys import check_cluster, check_keys_exist
from restow.apiserver.kubeconfig import ExtraContext, write_kubeconfig
from restow.apiserver.limits import request_limits
from restow.apiserver.listener import listen, publish_listener
from restow.apiserver.loop_metrics import measure_lag
from restow.apiserver.memory_trim import find_trim, trim_memory
from restow.apiserver.option_files import read_authorities
from restow.apiserver.options import ServeOptions
from restow.apiserver.pki import (
    ADMIN_GROUP,
    ADMIN_USER,
    Pki,
    PkiOptions,
    ensure_pki,
)
from restow.apiserver.releases import find_release
from restow.apiserver.runtime_config import with_served
from restow.apiserver.service_accounts import AccountRules, account_rules
from restow.apiserver.shutdown import Shutdown
from restow.apiserver.startup import PARTICIPATION, Participation, StartStep, run_steps, start
from restow.apiserver.store_guard import StoreGuard, keep_guard
from restow.apiserver.subscriptions import (
    agreement_subscriptions,
    authenticator_subscriptions,
    certificate_subscriptions,
    subscribe_all,
)
from restow.controllers import (
    ControllerManager,
    ControllerManagerOptions,
    CrdControllerOptions,
    EndpointAddress,
    leader_elector,
)
from restow.httpserver import Listener, TlsMaterial, open_front_sockets
from restow.registry.catalog import Catalog, release_catalog
from restow.registry.resource import Resource
from restow.request.context import User
from restow.storage.private_files import make_data_directory
from restow.storageversion.agreements import Announcer
from restow.storageversion.coordinator import Coordinator
from restow.storageversion.remote_registration import check_not_reported
from restow.storageversion.remote_reports import RemoteReports

NOT_READY_SECONDS: Final = 0.2
"""Delay between reporting not ready and draining, so that load balancers remove the server."""
SERVER_ID_BYTES: Final = 8
OWN_CONTEXT_NAME: Final = "restow-own"
"""Context of the server's own port, in a kubeconfig whose current context is the front port."""

logger = logging.getLogger(__name__)


class ApiServer:
    """A running server. Create it with `start`."""

    def __init__(self, started: _Start) -> None:
        self._options = started.options
        self._started = started
        self.metrics = started.assembly.metrics
        """The metrics that `/metrics` serves."""
        self._stopping = False
        health = started.assembly.health
        health.add("shutdown", lambda: "stopping" if self._stopping else None, "readyz")

    @property
    def port(self) -> int:
        return self._started.listener.port

    @property
    def front_url(self) -> str | None:
        """The address that this server shares with others, if it uses a front port."""
        return self._started.front_url

    @property
    def kubeconfig(self) -> Path:
        return self._started.kubeconfig

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
        `admission` is the last plug-in that reviews each write."""
        started = _Start(options, load_catalog(options, kinds), runtime, admission)
        await start(START, started, started.shutdown)
        return cls(started)

    async def stop(self) -> None:
        """Report not ready, drain, close."""
        self._stopping = True
        if self.front_url is not None:
            await self._started.listener.retire()
        else:
            await self._started.runtime.clock.sleep(NOT_READY_SECONDS)
        await self._started.shutdown.run()
        logger.info("stopped")


class _Start:
    """The steps of a start, with the state that one step leaves for the next."""

    def __init__(
        self,
        options: ServeOptions,
        catalog: Catalog,
        runtime: Runtime,
        admission: Sequence[Admission],
    ) -> None:
        self.options: Final = options
        self.runtime: Final = runtime
        self.shutdown: Final = Shutdown()
        self.front_url: str | None = None
        self.assembly: Assembly
        self.listener: Listener
        self._catalog = catalog
        self._admission = admission
        self._keys: _Keys
        self._authenticators: Authenticators
        self._store: OpenStore
        self._audit: Audit | None
        self._server_id = runtime.ids.nonce(SERVER_ID_BYTES)
        self._coordinator: Coordinator
        self._elector: LeaderElector
        self._controllers: ControllerManager

    async def load_keys(self) -> None:
        options, runtime = self.options, self.runtime
        await check_keys_exist(options.store_address, options.data_dir / "pki", runtime)
        pki = await in_own_thread("keys", partial(_make_pki, options, runtime))
        material = await in_own_thread("keys", partial(_make_material, options, pki))
        self._keys = _Keys(
            pki=pki,
            material=material,
            renewal=CertificateReload(pki, _pki_options(options), runtime, material=material),
            accounts=await in_own_thread(
                "keys", partial(account_rules, pki, options.service_accounts)
            ),
        )

    async def load_authenticators(self) -> None:
        options, pki = self.options, self._keys.pki
        self._authenticators = authenticators = await Authenticators.load(
            options.authentication,
            self.runtime,
            tokens={pki.admin_token: User(ADMIN_USER, (ADMIN_GROUP,))},
            token_auth_file=options.token_auth_file,
            client_ca_pem=pki.client_ca_pem,
            own_issuers=options.service_accounts.issuers,
        )
        self.shutdown.add("authenticators", authenticators.close)
        authenticators.follow(self._keys.renewal)
        subscribe_all(authenticator_subscriptions(self._keys.renewal, authenticators))

    async def open_store(self) -> None:
        store = await open_store(self.options, self.runtime, self.shutdown)
        await check_not_reported(store.storage)
        await check_cluster(store.storage, self._keys.pki)
        self._store = await load_encryption(store, self.options, self.runtime, self.shutdown)

    async def open_audit(self) -> None:
        self._audit = await open_audit(self.options.audit, self.runtime)
        if self._audit is not None:
            self.shutdown.add("audit", self._audit.close)

    async def build(self) -> None:
        options, runtime, store, keys = self.options, self.runtime, self._store, self._keys
        foundation = store.foundation(self._catalog, runtime)
        coordinator = build_coordinator(options, store, foundation, CoordinatorKind())
        elector = leader_elector(store.opened, runtime, self._server_id)
        agreement = replace(
            agreement_of(coordinator),
            mirror=coordinator.mirror,
            reports=RemoteReports(store.storage, coordinator.mirror, runtime),
            is_whole=partial(_is_whole, coordinator, store.guard),
        )
        self.assembly = build(
            foundation,
            AccessOptions(
                secrets=Secrets(tokens={}, continue_key=keys.pki.continue_key),
                authenticators=self._authenticators,
                accounts=keys.accounts,
                admission=self._admission,
                audit=self._audit,
            ),
            EndpointOptions(
                address=f"{options.bind}:{options.port}",
                gates=options.feature_gates,
                limits=request_limits(options.limits),
                aggregation=aggregation_options(keys.pki, options.bind),
                is_leading=lambda: elector.is_leading,
            ),
            agreement,
        )
        self._coordinator, self._elector = coordinator, elector
        subscribe_all(
            agreement_subscriptions(
                self.assembly, coordinator, guard=store.guard, encryption=store.encryption
            )
        )

    async def start_assembly(self) -> None:
        await self.assembly.start()
        self.shutdown.add("assembly", self.assembly.close)
        self.shutdown.add("participation", self._coordinator.close)
        assert self.assembly.aggregation is not None
        await self.assembly.aggregation.start()

    async def listen(self) -> None:
        options, metrics = self.options, self.assembly.metrics
        self.listener = listener = await listen(
            self.assembly, options, self.runtime, self._keys.material
        )
        self.shutdown.add("listener", partial(listener.stop, grace_seconds=options.grace_seconds))
        publish_listener(metrics, listener)
        self._authenticators.publish(metrics)
        self._keys.renewal.publish(metrics)

    async def start_background(self) -> None:
        runtime, options = self.runtime, self.options
        tasks = runtime.tasks("apiserver")
        self.shutdown.add("background", tasks.close)
        tasks.spawn_loop("certificates", self._keys.renewal.run())
        renew_seconds = options.identity_lease_renew_interval_seconds
        health = self.assembly.health
        keep_guard(self._store.guard, health, tasks, interval_seconds=renew_seconds)
        work = trim_memory(self.listener.counters, runtime.clock, find_trim())
        tasks.spawn_loop("memory", work)
        measure_lag(tasks, runtime.clock, self.assembly.metrics)
        scan_in_background(options, self.assembly, self._coordinator, tasks)

    async def participate(self) -> None:
        assembly, own = self.assembly, _advertised(self.options.bind, self.port)
        self.shutdown.add("custom resources", assembly.custom.close)
        participation = Participation(
            self._coordinator,
            assembly,
            encryption=self._store.encryption,
            address="" if own is None else f"{own.ip}:{own.port}",
            livez_grace_seconds=self.options.livez_grace_seconds,
            announcer=Announcer(
                self._coordinator.mirror, assembly.store, assembly.catalog, self.runtime
            ),
        )
        await run_steps(PARTICIPATION, participation)

    async def start_controllers(self) -> None:
        options, keys = self.options, self._keys
        registration = self._coordinator.custom_registration
        assert self.assembly.aggregation is not None
        self._controllers = ControllerManager(
            self._store.opened,
            self.assembly.store,
            self._catalog,
            self.runtime,
            ControllerManagerOptions(
                server_id=self._server_id,
                address=_advertised(options.bind, self.port),
                certificates=keys.pki.serving_ca_pem.decode(),
                proxy_trust=proxy_trust(keys.pki),
                sign_account_token=keys.accounts.sign_for_secret,
                compaction_seconds=options.compaction_interval_seconds,
                event_ttl_seconds=options.event_ttl_seconds,
            ),
            definitions=CrdControllerOptions(
                served_by_all=registration.served_by_all,
                closed_by_all=registration.closed_by_all,
                hosted_otherwise=registration.hosted_otherwise,
                wake=registration.wake,
            ),
            remote=self.assembly.aggregation.contents,
            elector=self._elector,
        )
        self.shutdown.add("controllers", self._controllers.close)
        await self._controllers.start()

    async def open_front(self) -> None:
        self.front_url = _open_front(self.options, self.listener, self.runtime)

    async def publish_address(self) -> None:
        url = f"https://{_host(self.options.bind)}:{self.port}"
        assert self.assembly.service_accounts is not None
        documents = self.assembly.service_accounts.documents
        documents.take_address((self.front_url or url).removeprefix("https://"))
        renewal = self._keys.renewal
        self._write_kubeconfig(renewal.pki)
        subscribe_all(certificate_subscriptions(renewal, self._controllers, self._write_kubeconfig))
        logger.info(
            "serving %d resources on %s, stored in %s",
            len(self._catalog),
            url,
            self.options.store_address,
        )

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def kubeconfig(self) -> Path:
        return self.options.kubeconfig or self.options.data_dir / "kubeconfig"

    def _write_kubeconfig(self, pki: Pki) -> None:
        """Write a kubeconfig for clients, with these keys."""
        url, extra = f"https://{_host(self.options.bind)}:{self.port}", []
        if self.front_url is not None and not self.options.front_fds:
            # A parent process that passed sockets writes another one, with the front port.
            url, extra = self.front_url, [ExtraContext(OWN_CONTEXT_NAME, url)]
        write_kubeconfig(
            self.kubeconfig,
            server_url=url,
            pki=pki,
            extra=extra,
            needs_certificate=self.options.tls.client_auth == "required",
        )


START: Final[tuple[StartStep[_Start], ...]] = (
    StartStep(
        "keys", _Start.load_keys, "the store is compared with them, and the listener uses them"
    ),
    StartStep(
        "authenticators", _Start.load_authenticators, "an invalid option fails the start early"
    ),
    StartStep(
        "store",
        _Start.open_store,
        "it must be the store that belongs to this server and these keys",
    ),
    StartStep(
        "audit", _Start.open_audit, "an invalid policy fails the start before anything is served"
    ),
    StartStep("build", _Start.build, "all parts are complete before the first of them is started"),
    StartStep(
        "assembly", _Start.start_assembly, "RBAC and APIs are loaded before the first request"
    ),
    StartStep(
        "listener", _Start.listen, "health checks report the progress, and the port is known"
    ),
    StartStep(
        "background", _Start.start_background, "follow changes of certificates and the store"
    ),
    StartStep("participation", _Start.participate, "KEP-2339: see `startup.PARTICIPATION`"),
    StartStep(
        "controllers", _Start.start_controllers, "they write objects, which requires participation"
    ),
    StartStep("front port", _Start.open_front, "clients of the shared port expect a ready server"),
    StartStep("address", _Start.publish_address, "clients are sent to a ready server"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """Content of the keys' directory and of the files that options name."""

    pki: Pki
    material: TlsMaterial
    renewal: CertificateReload
    accounts: AccountRules


def _is_whole(coordinator: Coordinator, guard: StoreGuard | None) -> bool:
    """Whether all CRDs of the store are loaded, so that an unknown resource does not exist."""
    custom = coordinator.custom
    return (custom is None or custom.has_begun) and (guard is None or guard.check() is None)


def _make_material(options: ServeOptions, pki: Pki) -> TlsMaterial:
    """The listener's certificates, and the CAs of users and of front proxies that it trusts."""
    files = pki.tls_files()
    proxies = options.authentication.request_header
    if proxies is not None:
        read_authorities("--requestheader-client-ca-file", proxies.client_ca_file)
        files = replace(files, client_ca_files=(*files.client_ca_files, proxies.client_ca_file))
    return make_material(files, options.tls)


def _open_front(options: ServeOptions, listener: Listener, runtime: Runtime) -> str | None:
    """Listen on the front port if one is configured; returns its URL."""
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
    logger.info("listening on the shared front port %s", url)
    return url


def load_catalog(options: ServeOptions, kinds: Sequence[Resource] = ()) -> Catalog:
    """The resources that the server hosts. Raises `ReleaseError` naming the invalid line, and
    ValueError for a key of `--runtime-config` that matches nothing in the release."""
    release = find_release(options.release)
    hosted = [*release_catalog(release), *kinds]
    served = with_served(hosted, options.runtime_config, options.feature_gates)
    return Catalog(served, name=release.name)


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


def _advertised(bind: str, port: int) -> EndpointAddress | None:
    """Address to publish for this process; None for a host name, since endpoints are addresses."""
    try:
        return EndpointAddress(str(ipaddress.ip_address(_host(bind).strip("[]"))), port)
    except ValueError:
        return None


def _host(bind: str) -> str:
    if bind in ("0.0.0.0", "::", ""):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{bind}]" if ":" in bind else bind
