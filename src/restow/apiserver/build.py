"""Builds the parts of one server, bottom-up over an open store, without waiting or reading.

    storage, and how it is agreed on (`build_store`)
      -> registry: caches, object store, rewriting, CRDs    (`build_registry`)
      -> authentication, authorization, admission, audit    (`build_access`)
      -> endpoints: discovery, OpenAPI, pages, the chain    (`build_endpoints`)
      -> listener, controllers                              (`server`, `aggregated`: as they start)

Each stage is one frozen dataclass and gets those before it. A part that notifies another one has a
channel, and all channels are subscribed in `subscriptions`. The storage-version coordinator decides
how objects are encoded, so it is built before the registry.

Not here: the order in which parts are started (`startup`) and stopped (`shutdown`).
"""

from __future__ import annotations

from restow.apiserver.assembly import Assembly
from restow.apiserver.build_access import build_access
from restow.apiserver.build_endpoints import build_endpoints
from restow.apiserver.build_inputs import (
    AccessOptions,
    EndpointOptions,
    Foundation,
    StorageAgreement,
)
from restow.apiserver.build_registry import build_registry
from restow.apiserver.subscriptions import assembly_subscriptions, subscribe_all


def build(
    foundation: Foundation,
    access_options: AccessOptions,
    endpoint_options: EndpointOptions,
    agreement: StorageAgreement | None = None,
) -> Assembly:
    """Build a server; without an `agreement` it is the only one on its store."""
    agreement = StorageAgreement() if agreement is None else agreement
    registry = build_registry(foundation, agreement, counters=endpoint_options.counters)
    access = build_access(foundation, registry, access_options, endpoint_options)
    endpoints = build_endpoints(foundation, registry, access, agreement, endpoint_options)
    assembly = Assembly(
        app=endpoints.app,
        server=endpoints.server,
        store=registry.store,
        caches=registry.caches,
        catalog=foundation.catalog,
        health=endpoints.health,
        metrics=foundation.metrics,
        discovery=endpoints.discovery,
        rewriter=registry.rewriter,
        custom=registry.custom,
        webhooks=registry.webhooks,
        admission=access.admission,
        tasks=registry.tasks,
        probe=endpoints.probe,
        counters=endpoint_options.counters,
        audit=access_options.audit,
        auditor=access.auditor,
        service_accounts=access.service_accounts,
        rbac=access.rbac,
        ended_sessions=access.ended_sessions,
        aggregation=endpoints.aggregation,
    )
    subscribe_all(assembly_subscriptions(assembly))
    return assembly


async def assemble(
    foundation: Foundation,
    access_options: AccessOptions,
    endpoint_options: EndpointOptions,
    agreement: StorageAgreement | None = None,
) -> Assembly:
    """Build a server, and start the parts that its first request needs."""
    assembly = build(foundation, access_options, endpoint_options, agreement)
    await assembly.start()
    return assembly
