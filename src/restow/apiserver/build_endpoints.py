"""Build stage of what clients see: discovery, OpenAPI, health, metrics, pages, and the chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from restow.apiserver.aggregation import Aggregation
from restow.apiserver.build_access import Access
from restow.apiserver.build_inputs import EndpointOptions, Foundation, StorageAgreement, VersionOf
from restow.apiserver.build_registry import Registry
from restow.apiserver.dashboard import ROOT as DASHBOARD
from restow.apiserver.dashboard import DashboardPages
from restow.apiserver.feature_gates import publish
from restow.apiserver.limits import publish_limits, publish_revocation
from restow.apiserver.loop_metrics import publish_steps
from restow.apiserver.process_metrics import publish_process
from restow.apiserver.storage_probe import StorageProbe
from restow.apiserver.used_tickets import UsedTickets
from restow.apiserver.version import version_document
from restow.endpoints.actions import Action
from restow.endpoints.app import Actions, App
from restow.endpoints.bundle import App as Chain
from restow.endpoints.continue_tokens import ContinueTokens
from restow.endpoints.discovery import Discovery, VersionHash, no_version_hash
from restow.endpoints.handlers.rewrite import RewriteHandler
from restow.endpoints.handlers.server import Server
from restow.endpoints.handlers.storage_version_report import ReportHandler, WithdrawHandler
from restow.endpoints.health import HealthChecks
from restow.endpoints.nonresource import NonResources, Pages
from restow.endpoints.openapi_paths import OpenApi
from restow.openapi import ApiInfo
from restow.registry.catalog import version_hash_of
from restow.registry.resource import Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The parts that process requests."""

    app: App
    server: Server
    discovery: Discovery
    health: HealthChecks
    probe: StorageProbe
    aggregation: Aggregation | None


def build_endpoints(
    foundation: Foundation,
    registry: Registry,
    access: Access,
    agreement: StorageAgreement,
    options: EndpointOptions,
) -> Endpoints:
    """Build all parts that process requests."""
    runtime, metrics = foundation.runtime, foundation.metrics
    server = _build_server(foundation, registry, access, agreement, options)
    probe = StorageProbe(foundation.storage, runtime.clock)
    health = _build_health(probe, runtime.failed_loops)
    aggregation = None
    if options.aggregation is not None:
        aggregation = Aggregation(
            registry.store,
            foundation.catalog,
            runtime,
            options.aggregation,
            is_leading=options.is_leading,
        )
    documents = None if aggregation is None else aggregation.documents
    discovery = Discovery(
        foundation.catalog,
        _shown_hash(agreement, options),
        address=options.address,
        remotes=documents,
    )
    version = version_document()
    accounts = access.service_accounts
    nonresources = partial(
        NonResources,
        discovery=discovery,
        openapi=OpenApi(foundation.catalog, ApiInfo(version=version["gitVersion"]), documents),
        health=health,
        metrics=metrics,
        version=version,
        page_paths=() if accounts is None else accounts.documents.paths,
        directory=None if aggregation is None else aggregation.directory,
        forward=None if aggregation is None else aggregation.proxy.forward,
    )
    app = App(
        server,
        authentication=access.authentication,
        authorizer=access.authorizer,
        nonresources=lambda chain: nonresources(pages=_pages(foundation, registry, access, chain)),
        metrics=metrics,
        barrier=agreement.barrier,
        actions=_actions(registry, access, agreement),
        aggregation=None if aggregation is None else aggregation.proxy,
        limits=options.limits,
        audit=access.auditor,
    )
    if aggregation is not None:
        aggregation.publish(metrics)
    publish(options.gates, metrics)
    publish_limits(metrics, app.in_flight)
    publish_revocation(metrics, app.revocation)
    publish_process(metrics)
    publish_steps(metrics, runtime.steps)
    return Endpoints(
        app=app,
        server=server,
        discovery=discovery,
        health=health,
        probe=probe,
        aggregation=aggregation,
    )


def _build_server(
    foundation: Foundation,
    registry: Registry,
    access: Access,
    agreement: StorageAgreement,
    options: EndpointOptions,
) -> Server:
    return Server(
        catalog=foundation.catalog,
        is_whole=agreement.is_whole,
        store=registry.store,
        tokens=ContinueTokens(access.continue_key),
        runtime=foundation.runtime,
        tasks=registry.tasks,
        offload=registry.offload,
        access_reviewer=access.reviewer,
        admission=access.admission.chain,
        # Aggregated servers run no garbage collection.
        collects_dependents=access.rbac is not None,
        scanner=registry.scanner,
        watch_seconds=options.limits.deadlines.watch_seconds,
    )


def _hash_of_version(resource: Resource, *, version_of: VersionOf) -> str:
    return version_hash_of(resource, version_of(resource))


def _shown_hash(agreement: StorageAgreement, options: EndpointOptions) -> VersionHash:
    """Return the function with which discovery computes the storage version hash of a resource."""
    # KEP-35 1.4: show hashes only with the feature gate on
    if options.gates.storage_version_hash:
        return partial(_hash_of_version, version_of=agreement.version_of)
    return no_version_hash


def _build_health(probe: StorageProbe, failed_loops: Mapping[str, str]) -> HealthChecks:
    def background_tasks() -> str | None:
        """Part of livez as well: only a restart recovers a failed loop."""
        failed = "; ".join(f"{name} has failed: {error}" for name, error in failed_loops.items())
        return f"{failed}: restart the server" if failed else None

    health = HealthChecks()
    health.add("ping", lambda: None)
    health.add("background-tasks", background_tasks)
    health.add("storage", probe.check, "healthz", "readyz")
    return health


def _pages(
    foundation: Foundation, registry: Registry, access: Access, chain: Chain
) -> Mapping[str, Pages]:
    """The handlers of non-resource paths; an aggregated server has none."""
    if access.rbac is None:
        return {}
    dashboard = DashboardPages(
        access.sessions,
        UsedTickets(foundation.storage, foundation.runtime),
        access.ended_sessions,
        chain,
        credential_of=access.authentication.credential_of,
        clock=foundation.runtime.clock,
        tasks=registry.tasks,
    )
    accounts = access.service_accounts
    return {DASHBOARD: dashboard, **({} if accounts is None else accounts.pages)}


def _actions(registry: Registry, access: Access, agreement: StorageAgreement) -> Actions:
    """Subresources with actions of their own: rewrite, report, token."""
    handler = RewriteHandler(registry.rewriter)
    found: dict[tuple[str, str], Action] = {("rewrite", "create"): handler}
    if agreement.reports is not None:
        found["report", "create"] = ReportHandler(agreement.reports)
        found["report", "delete"] = WithdrawHandler(agreement.reports)
    if access.service_accounts is not None:
        found["token", "create"] = access.service_accounts.requests
    return found
