"""Resolving Services from the objects of a real server."""

from __future__ import annotations

from typing import Any

import pytest

from restow.aggregator.interface import ServiceRef
from restow.aggregator.services import NoServiceEndpoint, ServiceEndpoint, StoredServices
from tests.conformance.aggregation.proxy.proxies import Rig

NS = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
REF = ServiceRef(namespace="default", name="samples", port=443)


async def _post(rig: Rig, target: str, body: dict[str, Any]) -> None:
    reply = await rig.server.client.post(target, body)
    assert reply.status == 201, reply.body


async def _services(rig: Rig) -> StoredServices:
    await _post(rig, "/api/v1/namespaces", {"metadata": {"name": "default"}})
    return StoredServices(rig.server.assembly.store, rig.server.assembly.catalog)


def _service(**spec: Any) -> dict[str, Any]:
    ports = [{"name": "https", "port": 443}, {"name": "metrics", "port": 9090}]
    return {"metadata": {"name": "samples"}, "spec": {"ports": ports, **spec}}


def _endpoints(**port: Any) -> dict[str, Any]:
    subset = {
        "addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
        "notReadyAddresses": [{"ip": "10.0.0.3"}],
        "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 8443, **port}],
    }
    return {"metadata": {"name": "samples"}, "subsets": [subset]}


async def test_without_a_service_it_is_a_name(rig: Rig) -> None:
    """An APIService may refer to a Service that only DNS can resolve."""
    services = await _services(rig)
    assert list(await services.places(REF)) == [ServiceEndpoint("samples.default.svc", 443)]


async def test_endpoints_by_the_name_of_the_port(rig: Rig) -> None:
    """Ready addresses at the port with the name of the Service's port; changes are seen."""
    services = await _services(rig)
    await _post(rig, f"{NS}/services", _service())
    with pytest.raises(NoServiceEndpoint) as no_place:
        await services.places(REF)
    assert no_place.value.reason == "EndpointsNotFound"
    assert no_place.value.message == 'cannot find endpointslices for service/samples in "default"'
    await _post(rig, f"{NS}/endpoints", _endpoints())
    assert list(await services.places(REF)) == [
        ServiceEndpoint("10.0.0.1", 8443),
        ServiceEndpoint("10.0.0.2", 8443),
    ]
    reply = await rig.server.client.patch(f"{NS}/endpoints/samples", {"subsets": None})
    assert reply.status == 200
    with pytest.raises(NoServiceEndpoint) as no_place:
        await services.places(REF)
    assert no_place.value.reason == "MissingEndpoints"
    assert no_place.value.message == (
        'endpointslices for service/samples in "default" have no addresses with port name "https"'
    )


async def test_slices_come_first(rig: Rig) -> None:
    """EndpointSlices of the Service take precedence, without endpoints that are not ready."""
    services = await _services(rig)
    await _post(rig, f"{NS}/services", _service())
    await _post(rig, f"{NS}/endpoints", _endpoints())
    for name, service in (("one", "samples"), ("two", "others")):
        slice_ = {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.1.0.1"], "conditions": {"ready": True}},
                {"addresses": ["10.1.0.2"], "conditions": {"ready": False}},
            ],
            "ports": [{"name": "https", "port": 9443}],
        }
        await _post(rig, SLICES, slice_)
    assert list(await services.places(REF)) == [ServiceEndpoint("10.1.0.1", 9443)]


async def test_an_external_name(rig: Rig) -> None:
    """A Service of type ExternalName resolves to that name, at the port of the APIService."""
    services = await _services(rig)
    body = _service(type="ExternalName", externalName="backend.example.com")
    await _post(rig, f"{NS}/services", body)
    assert list(await services.places(REF)) == [ServiceEndpoint("backend.example.com", 443)]


async def test_a_port_that_the_service_does_not_have(rig: Rig) -> None:
    """The port of the APIService must be one of the Service's."""
    services = await _services(rig)
    await _post(rig, f"{NS}/services", _service())
    with pytest.raises(NoServiceEndpoint) as no_place:
        await services.places(ServiceRef(namespace="default", name="samples", port=444))
    assert no_place.value.reason == "ServicePortError"
    assert no_place.value.message == 'service/samples in "default" is not listening on port 444'
