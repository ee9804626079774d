"""Resolves a Service to the addresses of its servers, from this server's store.

    a Service with endpoints  -> the ready ones, at the port with the name of the Service's port
    type ExternalName         -> that name
    no Service object         -> the name `<name>.<namespace>.svc`, for DNS to resolve

EndpointSlices take precedence over Endpoints; a cluster may maintain either.

Not here: DNS, and which addresses are rejected (`addresses`, `pools`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from restow.aggregator.addresses import is_host_name, parse_address
from restow.aggregator.interface import ServiceRef
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.registry.store import ResourceStore
from restow.registry.watch_cache import WatchCache

PLACES_MAX: Final = 1_000
"""Limit of endpoints per Service."""
KNOWN_MAX: Final = 1_000
"""Limit of Services whose endpoints are cached."""
SERVICE_LABEL: Final = "kubernetes.io/service-name"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """A server: an address or a name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NoServiceEndpoint(Exception):
    """A Service has no endpoint. The reason is one word, for a condition of the APIService."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Services(Protocol):
    """Resolves Services to endpoints."""

    async def places(self, service: ServiceRef) -> Sequence[ServiceEndpoint]:
        """Return at least one endpoint. Raises NoServiceEndpoint."""


def name_of(service: ServiceRef) -> str:
    """The name that the certificate of a Service's server must contain."""
    return f"{service.name}.{service.namespace}.svc"


class StoredServices:
    """Reads Services, EndpointSlices and Endpoints from the caches of this server."""

    def __init__(self, store: ResourceStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._known: dict[ServiceRef, tuple[tuple[int, ...], tuple[ServiceEndpoint, ...]]] = {}

    async def places(self, service: ServiceRef) -> Sequence[ServiceEndpoint]:
        """Return at least one endpoint. Raises NoServiceEndpoint, or a StatusError when the store
        cannot be read."""
        found = [self._catalog.find(*each) for each in _RESOURCES]
        caches = [None if each is None else await self._store.loaded(each) for each in found]
        seen = tuple(-1 if each is None else each.changed_at for each in caches)
        known = self._known.get(service)
        if known is not None and known[0] == seen:
            return known[1]
        services, slices, endpoints = (
            _Objects(self._store, resource, cache, api_version)
            for resource, cache, api_version in zip(found, caches, _API_VERSIONS, strict=True)
        )
        places = tuple(_places(service, services, slices, endpoints))[:PLACES_MAX]
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[service] = (seen, places)
        return places


# Group, version and plural, in the order of reading.
_RESOURCES: Final = (
    ("", "v1", "services"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("", "v1", "endpoints"),
)
_API_VERSIONS: Final = ("v1", "discovery.k8s.io/v1", "v1")


class _Objects:
    """Objects of one resource; none if it is not hosted here."""

    def __init__(
        self,
        store: ResourceStore,
        resource: Resource | None,
        cache: WatchCache | None,
        api_version: str,
    ) -> None:
        self._store = store
        self._resource = resource
        self._cache = cache
        self._api_version = api_version

    def get(self, namespace: str, name: str) -> Object | None:
        if self._resource is None or self._cache is None:
            return None
        entry = self._cache.get(self._resource.path_of(namespace, name))
        if entry is None:
            return None
        return self._store.object_of(self._resource, entry, self._api_version)

    def labelled(self, namespace: str, service: str) -> Iterator[Object]:
        """The EndpointSlices in a namespace that are labelled with a Service."""
        if self._resource is None or self._cache is None:
            return
        for entry in self._cache.select(f"{namespace}/").entries:
            found = self._store.object_of(self._resource, entry, self._api_version)
            labels = found.get("metadata", {}).get("labels") or {}
            if labels.get(SERVICE_LABEL) == service:
                yield found


def _places(
    service: ServiceRef, services: _Objects, slices: _Objects, endpoints: _Objects
) -> Sequence[ServiceEndpoint]:
    found = services.get(service.namespace, service.name)
    if found is None:
        return [ServiceEndpoint(name_of(service), service.port)]
    spec = found.get("spec") or {}
    if spec.get("type") == "ExternalName":
        name = str(spec.get("externalName") or "")
        if not is_host_name(name) and parse_address(name) is None:
            raise NoServiceEndpoint("ServiceNotFound", f"{_shown(service)} has no external name")
        return [ServiceEndpoint(name, service.port)]
    port_name = _port_name(service, spec)
    of_service = list(slices.labelled(service.namespace, service.name))
    places = [each for one in of_service for each in _of_slice(one, port_name)]
    if not places:
        one = endpoints.get(service.namespace, service.name)
        if one is None and not of_service:
            raise NoServiceEndpoint(
                "EndpointsNotFound", f"cannot find endpointslices for {_shown(service)}"
            )
        places = list(_of_endpoints(one or {}, port_name))
    if not places:
        raise NoServiceEndpoint(
            "MissingEndpoints",
            f'endpointslices for {_shown(service)} have no addresses with port name "{port_name}"',
        )
    return places


def _shown(service: ServiceRef) -> str:
    return f'service/{service.name} in "{service.namespace}"'


def _port_name(service: ServiceRef, spec: Object) -> str:
    for port in spec.get("ports") or ():
        if port.get("port") == service.port:
            return str(port.get("name") or "")
    raise NoServiceEndpoint(
        "ServicePortError", f"{_shown(service)} is not listening on port {service.port}"
    )


def _of_slice(found: Object, port_name: str) -> Iterator[ServiceEndpoint]:
    numbers = _ports(found.get("ports"), port_name)
    for endpoint in found.get("endpoints") or ():
        is_ready = (endpoint.get("conditions") or {}).get("ready")
        addresses = endpoint.get("addresses")
        if is_ready is not False and addresses:
            yield from (ServiceEndpoint(str(addresses[0]), number) for number in numbers)


def _of_endpoints(found: Object, port_name: str) -> Iterator[ServiceEndpoint]:
    for subset in found.get("subsets") or ():
        numbers = _ports(subset.get("ports"), port_name)
        for address in subset.get("addresses") or ():
            yield from (ServiceEndpoint(str(address.get("ip")), number) for number in numbers)


def _ports(ports: Any, port_name: str) -> list[int]:
    """The numbers of the ports with a name; only the first, as others are the same server."""
    return [
        port["port"]
        for port in ports or ()
        if str(port.get("name") or "") == port_name and isinstance(port.get("port"), int)
    ][:1]
