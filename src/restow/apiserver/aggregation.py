"""Composes the parts of a main server that forward requests to aggregated servers.

    APIServices -> directory -> directory_availability, documents, proxy, namespace_contents
        -> backends -> Services

This is the composition root of `restow.aggregator`. Not here: the parts themselves, and the
aggregated servers (`aggregated`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass

from restow.aggregator.backends import ClientCertificate, Identity, RemoteBackends
from restow.aggregator.directory import ApiDirectory
from restow.aggregator.directory_availability import Availability
from restow.aggregator.documents import RemoteDocuments
from restow.aggregator.namespace_contents import RemoteNamespaceContents
from restow.aggregator.proxy import Proxy
from restow.aggregator.published_headers import PublishedHeaders
from restow.aggregator.services import StoredServices
from restow.aio import Runtime
from restow.apiserver.pki import FRONT_PROXY_NAME, Pki
from restow.controllers import ProxyTrust
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import repeat
from restow.registry.store import ResourceStore
from restow.request.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationOptions:
    """The identity with which a server calls aggregated servers, and where they may run."""

    identity: Identity
    allows_loopback: bool = False
    """Whether they may run on this machine: only if this server listens on loopback as well."""


def aggregation_options(pki: Pki, bind: str) -> AggregationOptions:
    """The options of a server with these keys and this bind address."""

    def identity() -> ClientCertificate:
        return ClientCertificate(
            pki.front_proxy_cert_file.read_text(), pki.front_proxy_key_file.read_text()
        )

    return AggregationOptions(identity=identity, allows_loopback=_is_loopback(bind))


def proxy_trust(pki: Pki) -> ProxyTrust:
    """Return the settings by which aggregated servers authenticate a main server."""
    return ProxyTrust(
        client_ca_pem=pki.client_ca_pem.decode(),
        proxy_ca_pem=pki.front_proxy_ca_pem.decode(),
        allowed_names=(FRONT_PROXY_NAME,),
    )


class Aggregation:
    """All aggregation parts. Started when the store is readable, closed before it."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        options: AggregationOptions,
        *,
        is_leading: Callable[[], bool],
    ) -> None:
        """`is_leading`: whether this server writes the availability of the APIs."""
        services = StoredServices(store, catalog)
        self._runtime = runtime
        self._tasks = runtime.tasks("aggregation", on_failure=lambda _: None)
        self._backends = RemoteBackends(
            services,
            runtime,
            identity=options.identity,
            allows_loopback=options.allows_loopback,
        )
        self.directory = ApiDirectory(catalog, store)
        identity_headers = PublishedHeaders(store, catalog)
        self.availability = Availability(
            self.directory,
            self._backends,
            services,
            store,
            runtime,
            is_leading=is_leading,
            on_located=self._backends.settle,
        )
        # Failed requests detect a crashed server long before the next availability check.
        recheck = self.availability.recheck
        self.proxy = Proxy(
            self.directory,
            self._backends,
            runtime,
            identity_headers=identity_headers,
            on_failed=recheck,
        )
        self.documents = RemoteDocuments(self.directory, self._backends, runtime)
        self.contents = RemoteNamespaceContents(
            self.directory, self.documents, self._backends, runtime.clock, on_failed=recheck
        )

    async def start(self) -> None:
        """Load the APIServices, and start the checks of their availability."""
        await self.directory.start()
        self.availability.start()

        async def fetch() -> float:
            await self.documents.run()
            return 0.0

        self._tasks.spawn_loop("documents", repeat("documents of APIs", fetch, self._runtime))

    def publish(self, metrics: Metrics) -> None:
        """Export the availability by APIService name; `APIS_MAX` limits the number of series."""

        def read() -> list[tuple[tuple[str, ...], float]]:
            unavailable = self.directory.unavailable
            apis = self.directory.all()
            return [((api.name,), float(unavailable(api) is not None)) for api in apis]

        metrics.gauge(
            "aggregator_unavailable_apiservice",
            "Whether the servers of an APIService are unavailable: 1 or 0.",
            ("name",),
            read,
        )

    async def close(self) -> None:
        await self._tasks.close()
        await self.availability.close()
        self.directory.close()
        await self.proxy.close()
        await self._backends.close()


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
