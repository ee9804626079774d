"""Endpoint slices: `discovery.k8s.io/v1beta1` has the zone in `topology`, `v1` in `zone`.

The rest of `topology` is kept as `deprecatedTopology`.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.conversion import Convert, Converter, Object, Spoke, part_of

ZONE_LABEL: Final = "topology.kubernetes.io/zone"


def _to_v1(slice_: Object) -> Object:
    return _with_endpoints(slice_, _endpoint_to_v1)


def _from_v1(slice_: Object) -> Object:
    return _with_endpoints(slice_, _endpoint_from_v1)


def _with_endpoints(slice_: Object, convert: Convert) -> Object:
    endpoints = slice_.get("endpoints")
    if not endpoints:
        return slice_
    return {**slice_, "endpoints": [convert(endpoint) for endpoint in endpoints]}


def _endpoint_to_v1(endpoint: Object) -> Object:
    if endpoint.get("topology") is None:
        return endpoint
    converted = {name: value for name, value in endpoint.items() if name != "topology"}
    topology = part_of(endpoint, "topology")
    rest = {label: value for label, value in topology.items() if label != ZONE_LABEL}
    if rest:
        converted["deprecatedTopology"] = rest
    if ZONE_LABEL in topology:
        converted["zone"] = topology[ZONE_LABEL]
    return converted


def _endpoint_from_v1(endpoint: Object) -> Object:
    zone = endpoint.get("zone")
    topology = part_of(endpoint, "deprecatedTopology")
    if zone is None and not topology:
        return endpoint
    converted = {
        name: value
        for name, value in endpoint.items()
        if name not in ("zone", "deprecatedTopology")
    }
    converted["topology"] = topology if zone is None else {**topology, ZONE_LABEL: zone}
    return converted


CONVERTER: Final = Converter(
    "EndpointSlice.discovery.k8s.io",
    hub="discovery.k8s.io/v1",
    spokes={"discovery.k8s.io/v1beta1": Spoke(_to_v1, _from_v1)},
)
