"""Build stage above the store: caches, the object store, rewriting, scanning and CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from restow.aio import Tasks
from restow.apiserver.build_inputs import Foundation, StorageAgreement
from restow.apiserver.webhooks import Webhooks
from restow.httpserver import Counters
from restow.registry.caches import Caches
from restow.registry.catalog import Catalog
from restow.registry.custom import crds
from restow.registry.custom.crd_shape import CrdShape
from restow.registry.store import ResourceStore
from restow.request.offload import Offload
from restow.storageversion.contradictions import Contradictions
from restow.storageversion.custom_resources import CustomResources, Unregistered
from restow.storageversion.foreground_load import ForegroundLoad
from restow.storageversion.rewrite import Rewriter
from restow.storageversion.store_scan import StoreScanner

TASKS_MAX: Final = 10_000
"""The number of pending requests: each may be a write that is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Reads and writes objects."""

    caches: Caches
    store: ResourceStore
    tasks: Tasks
    rewriter: Rewriter
    scanner: StoreScanner
    webhooks: Webhooks
    custom: CustomResources
    offload: Offload


def build_registry(
    foundation: Foundation, agreement: StorageAgreement, *, counters: Counters
) -> Registry:
    """`counters` give the number of other requests, to which rewrites and scans yield."""
    storage, runtime, sealed = foundation.storage, foundation.runtime, foundation.sealed
    catalog, policy = foundation.catalog, agreement.policy
    caches = Caches(storage, runtime)
    store = ResourceStore(storage, caches, policy, runtime, sealed=sealed)
    contradictions = None
    if agreement.mirror is not None:
        contradictions = Contradictions(agreement.mirror, store, catalog, runtime)
    custom = agreement.custom
    if custom is None:
        custom = foundation.custom_resources(Unregistered())
    _keep_written_versions(catalog, custom)
    others = ForegroundLoad(runtime.clock.monotonic, request_count=lambda: counters.requests_total)
    # Below encryption: the values that a release must be able to read.
    raw, keys = (storage, None) if sealed is None else sealed
    correct = None if contradictions is None else contradictions.correct
    _publish(foundation, caches, contradictions)
    return Registry(
        caches=caches,
        store=store,
        tasks=runtime.tasks("server", tasks_max=TASKS_MAX),
        rewriter=Rewriter(store, policy, runtime.clock, others),
        scanner=StoreScanner(raw, keys, runtime.clock, others, correct=correct),
        webhooks=foundation.webhooks,
        custom=custom,
        offload=Offload(runtime),
    )


def _keep_written_versions(catalog: Catalog, custom: CustomResources) -> None:
    """Keep the versions that servers write in `status.storedVersions` of CRDs."""
    resource = catalog.named(crds.GROUP, crds.PLURAL)
    if resource is not None:
        shape = CrdShape(resource.kind, resource.converter, written=custom.written)
        catalog.host(replace(resource, shape=shape))


def _object_counts(catalog: Catalog, caches: Caches) -> Iterator[tuple[tuple[str, ...], float]]:
    """Number of objects in each loaded cache."""
    for resource in catalog.persisted():
        cache = caches.ready(resource.root)
        if cache is not None:
            yield (str(resource.kind.group_resource),), len(cache)


def _publish(foundation: Foundation, caches: Caches, contradictions: Contradictions | None) -> None:
    foundation.metrics.gauge(
        "apiserver_storage_objects",
        "Objects in memory by resource, for resources that have been read.",
        ("resource",),
        lambda: _object_counts(foundation.catalog, caches),
    )
    foundation.metrics.counter(
        "restow_storage_state_contradictions_total",
        "StorageStates that listed fewer hashes than a scan found stored, and were corrected.",
        (),
        lambda: [] if contradictions is None else [((), contradictions.corrected)],
    )
