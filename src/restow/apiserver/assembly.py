"""One server's parts put together over an open store: caches, catalogue, chain.

The composition root of everything between storage and the listener. No files, sockets or
certificates here; see `server`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from restow.admission import Admission
from restow.admission.owner_references import OwnerCheck
from restow.aio import Runtime, Tasks
from restow.apimachinery.rbac import PolicyRule
from restow.apiserver.admission import AdmissionParts, OwnPlugins
from restow.apiserver.aggregation import Aggregation, AggregationOptions
from restow.apiserver.audit import Audit
from restow.apiserver.authentication import Authenticators
from restow.apiserver.authorization import authorization_admission, make_authorization
from restow.apiserver.dashboard import ROOT as DASHBOARD
from restow.apiserver.dashboard import DashboardPages
from restow.apiserver.feature_gates import FeatureGates, publish
from restow.apiserver.limits import publish_limits
from restow.apiserver.process_metrics import publish_process
from restow.apiserver.service_accounts import (
    AccountRules,
    ServiceAccounts,
    make_service_accounts,
)
from restow.apiserver.storage_probe import StorageProbe
from restow.apiserver.used_tickets import UsedTickets
from restow.apiserver.version import version_document
from restow.apiserver.webhooks import Webhooks
from restow.authentication import Authentication, SessionAuthenticator
from restow.authentication.service_accounts import Identified
from restow.authorization import Authorizer
from restow.authorization.rbac import Rbac
from restow.endpoints.actions import Action
from restow.endpoints.app import Actions, App, Barrier, open_barrier
from restow.endpoints.continue_tokens import ContinueTokens
from restow.endpoints.discovery import Discovery, VersionHash, no_version_hash
from restow.endpoints.handlers.rewrite import RewriteHandler
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.storage_version_report import ReportHandler, WithdrawHandler
from restow.endpoints.handlers.token_review import TokenReviewer
from restow.endpoints.health import HealthChecks
from restow.endpoints.nonresource import NonResources, Pages
from restow.endpoints.openapi_paths import OpenApi
from restow.openapi import ApiInfo
from restow.registry.caches import Caches
from restow.registry.catalog import Catalog, version_hash_of
from restow.registry.committer import Sealed
from restow.registry.custom import crds
from restow.registry.custom.crd_shape import CrdShape
from restow.registry.custom.custom_resource import custom_resource
from restow.registry.encoding import EncodingPolicy, FixedPolicy
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.request.context import User
from restow.request.limits import RequestLimits
from restow.request.metrics import Metrics
from restow.request.request_info import RequestInfo
from restow.storage.interface import Storage
from restow.storageversion.contradictions import Contradictions
from restow.storageversion.custom_resources import CustomRegistrar, CustomResources, Unregistered
from restow.storageversion.mirror import Mirror
from restow.storageversion.remote_reports import RemoteReports
from restow.storageversion.rewrite import Rewriter
from restow.storageversion.store_scan import StoreScanner

TASKS_MAX: Final = 10_000
"""As many as requests may wait for their answers: each could be a write that is done again."""

VersionOf = Callable[[Resource], str]
"""The version in which a resource is written now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What a server knows and tells nobody."""

    tokens: dict[str, User]
    continue_key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthParts:
    """Who comes in by which credential, and may do what, in the place of a cluster's own rules."""

    authentication: Authentication
    authorizer: Authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of one server that others need to reach."""

    app: App
    server: Server
    store: ResourceStore
    caches: Caches
    catalog: Catalog
    health: HealthChecks
    metrics: Metrics
    discovery: Discovery
    rewriter: Rewriter
    custom: CustomResources
    """What is defined through the API. Whoever has opened the server for writing starts it."""
    webhooks: Webhooks
    admission: AdmissionParts
    """Who has a say in writes."""
    tasks: Tasks
    service_accounts: ServiceAccounts | None = None
    rbac: Rbac | None = None
    """What decides by roles; None: others decide."""
    aggregation: Aggregation | None = None
    """What passes on requests for other servers. Whoever listens starts it before."""

    async def learn(self) -> None:
        """Know who may do what, and who has a say: before anything is asked or written. If that
        cannot be read, all is closed, and it raises."""
        try:
            if self.rbac is not None:
                await self.rbac.start()
            await self.admission.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self.aggregation is not None:
            await self.aggregation.close()
        await self.custom.close()
        await self.tasks.close()
        await self.admission.close()
        await self.webhooks.close()
        if self.rbac is not None:
            await self.rbac.close()
        await self.caches.close()


@dataclass(frozen=True, slots=True)
class _Judge:
    """Answers reviews by what decides about requests."""

    authorizer: Authorizer
    tokens: TokenReviewer
    rbac: Rbac | None

    def allows(self, user: User, info: RequestInfo) -> bool:
        return self.authorizer.allows(user, info)

    def reason(self, user: User, info: RequestInfo) -> str:
        return self.authorizer.reason(user, info)

    def rules_of(self, user: User, namespace: str) -> tuple[list[PolicyRule], str]:
        return ([], "") if self.rbac is None else self.rbac.rules_of(user, namespace)

    def identify(self, token: str, audiences: Sequence[str]) -> Identified | None:
        return self.tokens.identify(token, audiences)


def object_counts(catalog: Catalog, caches: Caches) -> Iterator[tuple[tuple[str, ...], float]]:
    """How many objects each loaded cache holds."""
    for resource in catalog.persisted():
        cache = caches.ready(resource.root)
        if cache is not None:
            yield (str(resource.kind.group_resource),), len(cache)


def _publish_objects(
    metrics: Metrics, catalog: Catalog, caches: Caches, contradictions: Contradictions | None
) -> None:
    metrics.gauge(
        "apiserver_storage_objects",
        "Objects in memory by resource, of those that were asked for.",
        ("resource",),
        lambda: object_counts(catalog, caches),
    )
    metrics.counter(
        "restow_storage_state_contradictions_total",
        "StorageStates that listed less than was stored, and were corrected by this server.",
        (),
        lambda: [] if contradictions is None else [((), contradictions.corrected)],
    )


def _hash_of_version(resource: Resource, *, version_of: VersionOf) -> str:
    return version_hash_of(resource, version_of(resource))


def _shown_hash(gates: FeatureGates, version_of: VersionOf) -> VersionHash:
    """What discovery shows of how resources are stored."""
    if gates.storage_version_hash:
        return partial(_hash_of_version, version_of=version_of)
    return no_version_hash


def _health(probe: StorageProbe, failed_loops: Mapping[str, str]) -> HealthChecks:
    def background_tasks() -> str | None:
        """Of livez as well: only a restart brings a loop back."""
        failed = "; ".join(f"{name} has failed: {error}" for name, error in failed_loops.items())
        return f"{failed}: restart the server" if failed else None

    health = HealthChecks()
    health.add("ping", lambda: None)
    health.add("background-tasks", background_tasks)
    health.add("storage", probe.check, "healthz", "readyz")
    return health


def preferred_version(resource: Resource) -> str:
    """What a server writes that agrees with nobody."""
    return resource.storage_api_version


def make_custom_resources(
    registration: CustomRegistrar,
    storage: Storage,
    catalog: Catalog,
    webhooks: Webhooks,
    runtime: Runtime,
) -> CustomResources:
    """What serves CRDs, reported by `registration`."""
    return CustomResources(
        storage,
        catalog,
        runtime,
        registration=registration,
        make=lambda definition: custom_resource(definition, remote=webhooks.of(definition)),
    )


def _subscribe(custom: CustomResources, store: ResourceStore, webhooks: Webhooks) -> None:
    custom.replaced.subscribe(store.forget)
    custom.replaced.subscribe(lambda resource: webhooks.retire(resource.remote))
    custom.removed.subscribe(webhooks.drop)


def _guard_definitions(catalog: Catalog, custom: CustomResources) -> None:
    """Let definitions keep the versions that servers write in the list of those stored."""
    resource = catalog.named(crds.GROUP, crds.PLURAL)
    if resource is not None:
        shape = CrdShape(resource.kind, resource.converter, written=custom.written)
        catalog.host(replace(resource, shape=shape))


def _scanner(
    storage: Storage,
    sealed: Sealed | None,
    runtime: Runtime,
    rewriter: Rewriter,
    contradictions: Contradictions | None,
) -> StoreScanner:
    """Scans below encryption: that is what a release has to read."""
    raw, keys = (storage, None) if sealed is None else sealed
    correct = None if contradictions is None else contradictions.correct
    return StoreScanner(raw, keys, runtime.clock, rewriter.others, correct=correct)


def _actions(
    rewriter: Rewriter, reports: RemoteReports | None, accounts: ServiceAccounts | None
) -> Actions:
    """What is done by subresources that are no part of their objects."""
    found: dict[tuple[str, str], Action] = {("rewrite", "create"): RewriteHandler(rewriter)}
    if reports is not None:
        found["report", "create"] = ReportHandler(reports)
        found["report", "delete"] = WithdrawHandler(reports)
    if accounts is not None:
        found["token", "create"] = accounts.requests
    return found


async def assemble(
    storage: Storage,
    catalog: Catalog,
    runtime: Runtime,
    *,
    secrets: Secrets,
    address: str,
    policy: EncodingPolicy | None = None,
    barrier: Barrier = open_barrier,
    gates: FeatureGates | None = None,
    version_of: VersionOf = preferred_version,
    admission: Sequence[Admission] = (),
    reports: RemoteReports | None = None,
    auth_parts: AuthParts | None = None,
    sealed: Sealed | None = None,
    passes_on: AggregationOptions | None = None,
    limits: RequestLimits | None = None,
    audit: Audit | None = None,
    accounts: AccountRules | None = None,
    authenticators: Authenticators | None = None,
    mirror: Mirror | None = None,
    custom: CustomResources | None = None,
    webhooks: Webhooks | None = None,
    metrics: Metrics | None = None,
) -> Assembly:
    """Put a server together and load what it needs at once.

    `custom` is what serves CRDs and reports them to other servers; `reports` takes what
    servers with a store of their own say. With `doors` of its own a server has no dashboard: that
    is for those who have a credential of the cluster itself. `sealed` is what lies beneath a
    storage that is encrypted. `passes_on` makes it one that others may stand behind. With
    `accounts` programs come in as service accounts, by tokens of this cluster. `entrance` has all
    other ways in; without it certificates and the tokens of `secrets` are enough. With the `mirror`
    of coordination, StorageStates that a scan contradicts are corrected.
    """
    limits = limits or RequestLimits()
    caches = Caches(storage, runtime)
    await caches.start()
    tasks = runtime.tasks("server", tasks_max=TASKS_MAX)
    policy = policy or FixedPolicy()
    store = ResourceStore(storage, caches, policy, runtime, sealed=sealed)
    rewriter = Rewriter(store, policy, runtime.clock)
    contradictions = None if mirror is None else Contradictions(mirror, store, catalog, runtime)
    webhooks = Webhooks(runtime) if webhooks is None else webhooks
    if custom is None:
        custom = make_custom_resources(Unregistered(), storage, catalog, webhooks, runtime)
    _subscribe(custom, store, webhooks)
    _guard_definitions(catalog, custom)
    service_accounts = None
    if accounts is not None:
        service_accounts = make_service_accounts(
            accounts, store, catalog, clock=runtime.clock, address=address
        )
    authenticators = authenticators or Authenticators.plain(secrets.tokens, runtime)
    sessions = authenticators.sessions(secrets.continue_key)
    if auth_parts is None:
        authentication = authenticators.chain(
            accounts=[] if service_accounts is None else [service_accounts.authenticator],
            sessions=[SessionAuthenticator(sessions)],
        )
    else:
        authentication = auth_parts.authentication
    rbac: Rbac | None = None
    plugins = OwnPlugins(own=admission)
    if auth_parts is None:
        authorizer: Authorizer = (rbac := make_authorization(store, catalog, runtime))
        plugins = OwnPlugins(
            checks=(authorization_admission(rbac),),
            # Who leaves that to a cluster does not know the kinds of its owners.
            at_once=(OwnerCheck(catalog, authorizer),),
            own=admission,
            gives_accounts=accounts is not None,
        )
    else:
        authorizer = auth_parts.authorizer
    admitting = AdmissionParts(
        store,
        catalog,
        runtime,
        authorizer=authorizer,
        plugins=plugins,
        allows_loopback=passes_on is not None and passes_on.allows_loopback,
    )
    server = Server(
        catalog=catalog,
        store=store,
        tokens=ContinueTokens(secrets.continue_key),
        runtime=runtime,
        tasks=tasks,
        judge=_Judge(
            authorizer,
            TokenReviewer(
                user_of=authentication.user_of,
                accounts=None if service_accounts is None else service_accounts.authenticator,
                audiences=() if accounts is None else accounts.trust.audiences,
            ),
            rbac,
        ),
        admission=admitting.chain,
        # Those who leave their doors to a cluster keep nobody's house.
        collects_dependents=auth_parts is None,
        scanner=_scanner(storage, sealed, runtime, rewriter, contradictions),
        watch_seconds=limits.deadlines.watch_seconds,
    )
    probe = StorageProbe(storage, runtime.clock)
    health, version = _health(probe, runtime.failed_loops), version_document()
    metrics = Metrics() if metrics is None else metrics
    tasks.spawn_loop("probe", probe.run())
    _publish_objects(metrics, catalog, caches, contradictions)
    gates = gates or FeatureGates()
    publish(gates, metrics)
    admitting.publish(metrics)
    aggregation = None
    if passes_on is not None:
        aggregation = Aggregation(store, catalog, runtime, passes_on)
        aggregation.publish(metrics)
    documents = None if aggregation is None else aggregation.documents
    discovery = Discovery(
        catalog, _shown_hash(gates, version_of), address=address, remotes=documents
    )
    info = ApiInfo(version=version["gitVersion"])
    dashboard = DashboardPages(
        sessions,
        UsedTickets(storage, runtime),
        credential_of=authentication.credential_of,
        clock=runtime.clock,
        tasks=tasks,
    )
    pages: dict[str, Pages] = {DASHBOARD: dashboard}
    if service_accounts is not None:
        pages |= service_accounts.pages
    app = App(
        server,
        authentication=authentication,
        authorizer=authorizer,
        nonresources=NonResources(
            discovery=discovery,
            openapi=OpenApi(catalog, info, documents),
            health=health,
            metrics=metrics,
            version=version,
            pages=pages if auth_parts is None else {},
            page_paths=() if service_accounts is None else service_accounts.documents.paths,
            directory=None if aggregation is None else aggregation.directory,
            forward=None if aggregation is None else aggregation.proxy.forward,
        ),
        metrics=metrics,
        barrier=barrier,
        actions=_actions(rewriter, reports, service_accounts),
        aggregation=None if aggregation is None else aggregation.proxy,
        limits=limits,
        audit=None if audit is None else audit.auditor,
    )
    dashboard.app = app
    publish_limits(metrics, app.in_flight)
    publish_process(metrics)
    if audit is not None:
        audit.join(authorizer, metrics)
    assembly = Assembly(
        app=app,
        server=server,
        store=store,
        caches=caches,
        catalog=catalog,
        health=health,
        metrics=metrics,
        discovery=discovery,
        rewriter=rewriter,
        custom=custom,
        webhooks=webhooks,
        admission=admitting,
        tasks=tasks,
        service_accounts=service_accounts,
        rbac=rbac,
        aggregation=aggregation,
    )
    await assembly.learn()
    return assembly
