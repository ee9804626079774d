"""Controller of the service `default/kubernetes`: Service, Endpoints and EndpointSlices.

The service is headless (`clusterIP: None`), since no proxy is available here: its endpoints are the
addresses of the servers. Servers may listen on different ports; a slice has one list of ports, so
there is one slice for each port and address family.

Every server runs this after it has renewed its address. Not here: which servers are running
(`server_addresses`).
"""

from __future__ import annotations

from typing import Any, Final

from restow.apimachinery import status
from restow.controllers.object_keys import working_version
from restow.controllers.object_updates import update_if_present
from restow.controllers.server_addresses import EndpointAddress, EndpointAddresses
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.stored_bytes import load
from restow.storage.interface import Item, Span

NAMESPACE: Final = "default"
NAME: Final = "kubernetes"
SERVICE_PORT: Final = 443
PORT_NAME: Final = "https"
SERVICE_LABEL: Final = "kubernetes.io/service-name"


class EndpointsController:
    """Keeps the three kinds of objects in sync with the addresses of running servers."""

    def __init__(
        self, store: ResourceStore, catalog: Catalog, addresses: EndpointAddresses
    ) -> None:
        self._store = store
        self._storage = store.storage
        self._services = catalog.of_kind("", "Service")
        self._endpoints = catalog.of_kind("", "Endpoints")
        self._slices = catalog.of_kind("discovery.k8s.io", "EndpointSlice")
        self._addresses = addresses

    async def step(self) -> float:
        """Renew the address of this server, then update the objects."""
        await self._addresses.publish()
        await self.reconcile()
        return self._addresses.renew_seconds

    async def predecessors(self) -> frozenset[str]:
        """Return the IDs of servers that used this address before, and have ended."""
        return await self._addresses.predecessors()

    async def withdraw(self) -> None:
        """Remove the address of this server, from the store and the objects; for a clean
        shutdown."""
        await self._addresses.withdraw()
        await self.reconcile()

    async def reconcile(self) -> None:
        """Update the objects."""
        live = await self._addresses.live()
        if self._services is not None and live:
            await self._ensure(self._services, _service(live[0]), only_if_missing=True)
        if self._endpoints is not None:
            await self._ensure(self._endpoints, _endpoints(live))
        if self._slices is not None:
            await self._ensure_slices(self._slices, _slices(live))

    async def _ensure(
        self, resource: Resource, wanted: Object, *, only_if_missing: bool = False
    ) -> None:
        path = resource.path_of(NAMESPACE, wanted["metadata"]["name"])
        item = await self._storage.get(resource.key_of(path))
        wanted = resource.shape.default(resource.storage_api_version, wanted)
        if item is None:
            await self._create(resource, wanted)
        elif not only_if_missing:
            await self._adjust(resource, path, item, wanted)

    async def _create(self, resource: Resource, obj: Object) -> None:
        try:
            await self._store.create(resource, working_version(resource), obj, namespace=NAMESPACE)
        except status.AlreadyExists:
            return  # created by another server; the next step compares it

    async def _adjust(self, resource: Resource, path: str, item: Item, wanted: Object) -> None:
        """Update an object that differs; compared in our storage version, so that defaults are
        equal."""
        stored = load(item.value)
        version = str(stored.get("apiVersion"))
        current = resource.converter.convert(stored, version, resource.storage_api_version)
        parts = {name: value for name, value in wanted.items() if name != "metadata"}
        labels = wanted["metadata"]["labels"]
        is_right = all(
            (current.get(name) or None) == (value or None) for name, value in parts.items()
        )
        if is_right and labels.items() <= (current["metadata"].get("labels") or {}).items():
            return
        if current.get("addressType") != wanted.get("addressType"):
            # It is immutable: delete this slice; the next step creates a new one.
            await self._delete(resource, path, item)
            return
        await update_if_present(
            self._store, resource, path, lambda obj: _labelled({**obj, **parts}, labels)
        )

    async def _ensure_slices(self, resource: Resource, wanted: dict[str, Object]) -> None:
        for each in wanted.values():
            await self._ensure(resource, each)
        page = await self._storage.range(Span.of_prefix(f"{resource.root}{NAMESPACE}/{NAME}"))
        for item in page.items:
            path = item.key[len(resource.root) :]
            if path.partition("/")[2] not in wanted and _is_ours(item):
                await self._delete(resource, path, item)

    async def _delete(self, resource: Resource, path: str, item: Item) -> None:
        options = DeleteOptions(resource_version=str(item.revision))
        try:
            await self._store.delete(resource, working_version(resource), path, options)
        except (status.NotFound, status.Conflict):
            return


def _labelled(obj: Object, labels: dict[str, str]) -> Object:
    """Return the object with these labels added."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _service(target: EndpointAddress) -> Object:
    port = {"name": PORT_NAME, "port": SERVICE_PORT, "protocol": "TCP", "targetPort": target.port}
    return {
        "metadata": {"name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "ipFamilies": [target.family],
            "ipFamilyPolicy": "SingleStack",
            "ports": [port],
        },
    }


def _endpoints(live: list[EndpointAddress]) -> Object:
    subsets = [
        {
            "addresses": [{"ip": each.ip} for each in live if each.port == port],
            "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
        }
        for port in sorted({each.port for each in live})
    ]
    # This controller manages the slices itself, so they must not be mirrored from Endpoints.
    labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return {"metadata": {"name": NAME, "labels": labels}, "subsets": subsets}


def _slices(live: list[EndpointAddress]) -> dict[str, Object]:
    """Return one slice for each family and port, by name; the first has the name of the service."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in sorted(live, key=lambda address: (address.family, address.port, address.ip)):
        endpoint = {"addresses": [each.ip], "conditions": {"ready": True}}
        groups.setdefault((each.family, each.port), []).append(endpoint)
    slices: dict[str, Object] = {}
    for (family, port), endpoints in groups.items():
        name = f"{NAME}-{family.lower()}-{port}" if slices else NAME
        slices[name] = {
            "metadata": {"name": name, "labels": {SERVICE_LABEL: NAME}},
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
        }
    return slices


def _is_ours(item: Item) -> bool:
    labels = (load(item.value).get("metadata") or {}).get("labels") or {}
    return bool(labels.get(SERVICE_LABEL) == NAME)
