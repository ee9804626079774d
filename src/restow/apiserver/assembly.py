"""The parts of one server between store and listener, as `build` creates them."""

from __future__ import annotations

from dataclasses import dataclass

from restow.aio import Tasks
from restow.apiserver.admission import AdmissionParts
from restow.apiserver.aggregation import Aggregation
from restow.apiserver.audit import Audit
from restow.apiserver.ended_sessions import EndedSessions
from restow.apiserver.service_accounts import ServiceAccounts
from restow.apiserver.storage_probe import StorageProbe
from restow.apiserver.webhooks import Webhooks
from restow.audit import Auditor
from restow.authorization.rbac import Rbac
from restow.endpoints.app import App
from restow.endpoints.discovery import Discovery
from restow.endpoints.handlers.server import Server
from restow.endpoints.health import HealthChecks
from restow.httpserver import Counters
from restow.registry.caches import Caches
from restow.registry.catalog import Catalog
from restow.registry.store import ResourceStore
from restow.request.metrics import Metrics
from restow.storageversion.custom_resources import CustomResources
from restow.storageversion.rewrite import Rewriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of one server that other modules access."""

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
    """Serves CRDs; started once this server may write."""
    webhooks: Webhooks
    admission: AdmissionParts
    tasks: Tasks
    probe: StorageProbe
    counters: Counters
    """Request counters of the listener."""
    audit: Audit | None
    auditor: Auditor | None
    service_accounts: ServiceAccounts | None
    rbac: Rbac | None
    """The RBAC authorizer; None if the main servers authorize."""
    ended_sessions: EndedSessions
    aggregation: Aggregation | None
    """Forwards requests to aggregated servers; started before the listener."""

    async def start(self) -> None:
        """Load RBAC and the admission configuration, before the first request or write. On failure,
        close everything and raise."""
        await self.caches.start()
        try:
            self.tasks.spawn_loop("probe", self.probe.run())
            if self.rbac is not None:
                await self.rbac.start()
                await self.ended_sessions.start(self.tasks)  # others have no sessions
            await self.admission.start()
            self.tasks.spawn_loop("revocation", self.app.revocation.run())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self.aggregation is not None:
            await self.aggregation.close()
        await self.custom.close()
        await self.tasks.close()
        await self.admission.close()
        self.server.offload.close()
        await self.webhooks.close()
        if self.rbac is not None:
            await self.rbac.close()
        await self.caches.close()
