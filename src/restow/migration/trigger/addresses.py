"""The addresses of all servers of a cluster: the endpoints of the service `default/kubernetes`.

Servers that are not ready are included: they may write too.

Not here: connecting to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.client import ApiClient, ListOptions, Object
from restow.migration.migration_objects import text

ADDRESSES_MAX: Final = 100
SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
ENDPOINTS: Final = GroupVersionResource("", "v1", "endpoints")

_NAMESPACE: Final = "default"
_SERVICE: Final = "kubernetes"
_OF_SERVICE: Final = ListOptions(label_selector=f"kubernetes.io/service-name={_SERVICE}")


async def read_addresses(client: ApiClient) -> tuple[str, ...]:
    """Return each server as `host:port`, sorted; empty if there is none. Raises API errors."""
    found: set[str] = set()
    try:
        async for each in client.items(SLICES, namespace=_NAMESPACE, options=_OF_SERVICE):
            found.update(_of_slice(each))
    except NotFound:
        found.clear()
    if not found:
        # Older servers, and servers that write no EndpointSlices for themselves.
        found.update(_of_endpoints(await client.get(ENDPOINTS, _SERVICE, namespace=_NAMESPACE)))
    return tuple(sorted(found)[:ADDRESSES_MAX])


def _of_slice(value: Object) -> Iterator[str]:
    hosts = [host for each in _parts(value, "endpoints") for host in _texts(each.get("addresses"))]
    yield from _joined(hosts, _parts(value, "ports"))


def _of_endpoints(value: Object) -> Iterator[str]:
    for subset in _parts(value, "subsets"):
        listed = (*_parts(subset, "addresses"), *_parts(subset, "notReadyAddresses"))
        yield from _joined([text(each, "ip") for each in listed], _parts(subset, "ports"))


def _joined(hosts: Iterable[str], ports: list[Object]) -> Iterator[str]:
    """Combine hosts with the port of HTTPS."""
    numbers = [each.get("port") for each in ports if text(each, "name") in {"", "https"}]
    port = next((each for each in numbers if isinstance(each, int)), None)
    for host in hosts:
        if host and port is not None:
            yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parts(value: Object, name: str) -> list[Object]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
