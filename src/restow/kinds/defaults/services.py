"""Defaults of services, and fields that an update keeps.

An update without the allocated address keeps it.

Not here: allocation of addresses and ports. The server allocates none: a service has the address
that its client set, or none.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from restow.kinds.defaults.fields import Object, child, given, items, own, put, put_all

_AFFINITY_SECONDS: Final = 10800
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_EXTERNAL: Final = "ExternalName"
_HEADLESS: Final = "None"
_DUAL: Final = ["IPv4", "IPv6"]
_ADDRESS_FIELDS: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def default_service(obj: Object, _version: str) -> None:
    spec = child(obj, "spec")
    put_all(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    kind = spec.get("type")
    _default_affinity(spec)
    for port in items(spec, "ports"):
        put(port, "protocol", "TCP")
        if not port.get("targetPort") and port.get("port"):
            port["targetPort"] = port["port"]
    if kind != _EXTERNAL:
        put(spec, "internalTrafficPolicy", "Cluster")
    if kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and spec.get("externalIPs")):
        put(spec, "externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        put(spec, "allocateLoadBalancerNodePorts", True)
        balancer = given(given(obj, "status") or {}, "loadBalancer") or {}
        for ingress in items(balancer, "ingress"):
            if ingress.get("ip"):
                put(ingress, "ipMode", "VIP")


def _default_affinity(spec: Object) -> None:
    if spec.get("sessionAffinity") == "ClientIP":
        config = given(given(spec, "sessionAffinityConfig") or {}, "clientIP") or {}
        if config.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    elif spec.get("sessionAffinity") == "None":
        spec.pop("sessionAffinityConfig", None)


def begin_service(obj: Object) -> None:
    """Set the addresses of a new service in both fields, and their families."""
    spec = own(obj, "spec")
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _default_families(spec)
    if spec.get("type") == _EXTERNAL:
        spec.pop("internalTrafficPolicy", None)


def keep_from_old(new: Object, old: Object) -> None:
    """Keep allocated fields that the service still needs, and drop those that its type does not."""
    before, after = old.get("spec"), new.get("spec")
    if after is before or not isinstance(after, dict) or not isinstance(before, dict):
        return
    # Parts may be shared with the old object, which must not change.
    spec = new["spec"] = dict(after)
    if spec.get("type") == _EXTERNAL:
        if before.get("type") != _EXTERNAL:
            _drop_unchanged(spec, before, _ADDRESS_FIELDS)
    else:
        _keep_addresses(spec, before)
        _default_families(spec)
    _keep_node_ports(spec, before)
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        _drop_unchanged(spec, before, ("allocateLoadBalancerNodePorts", "loadBalancerClass"))
    if _is_reached_from_outside(before) and not _is_reached_from_outside(spec):
        _drop_unchanged(spec, before, ("externalTrafficPolicy",))


def _keep_addresses(spec: Object, before: Object) -> None:
    own, listed = spec.get("clusterIP"), spec.get("clusterIPs")
    if before.get("type") != _EXTERNAL:
        if not own and not (listed and listed != before.get("clusterIPs")):
            own = before.get("clusterIP")
        if not listed and own == before.get("clusterIP"):
            listed = before.get("clusterIPs")
        if not spec.get("ipFamilyPolicy") and before.get("ipFamilyPolicy"):
            spec["ipFamilyPolicy"] = before["ipFamilyPolicy"]
        if not spec.get("ipFamilies") and before.get("ipFamilies"):
            spec["ipFamilies"] = before["ipFamilies"]
    if own and not listed:
        listed = [own]
    for name, value in (("clusterIP", own), ("clusterIPs", listed)):
        if value:
            spec[name] = value


def _default_families(spec: Object) -> None:
    if spec.get("type") == _EXTERNAL:
        return
    is_free = spec.get("clusterIP") == _HEADLESS and not spec.get("selector")
    put(spec, "ipFamilyPolicy", "RequireDualStack" if is_free else "SingleStack")
    families = list(spec.get("ipFamilies") or ())
    if not families:
        families = [each for each in map(_family, spec.get("clusterIPs") or ()) if each]
    families = families or ["IPv4"]
    if is_free and len(families) == 1 and spec["ipFamilyPolicy"] != "SingleStack":
        families += [each for each in _DUAL if each not in families]
    spec["ipFamilies"] = families


def _family(address: Any) -> str:
    try:
        return f"IPv{ipaddress.ip_address(address).version}"
    except ValueError:
        return ""


def _keep_node_ports(spec: Object, before: Object) -> None:
    had = before.get("type") in _WITH_NODE_PORTS
    if not had:
        return
    known = {_port_key(port): port.get("nodePort") for port in items(before, "ports")}
    ports = []
    for port in items(spec, "ports"):
        number = known.get(_port_key(port))
        if spec.get("type") not in _WITH_NODE_PORTS and port.get("nodePort") == number:
            ports.append({name: value for name, value in port.items() if name != "nodePort"})
        elif spec.get("type") in _WITH_NODE_PORTS and number and not port.get("nodePort"):
            ports.append({**port, "nodePort": number})
        else:
            ports.append(port)
    if ports:
        spec["ports"] = ports


def _port_key(port: Object) -> tuple[Any, Any]:
    return port.get("protocol"), port.get("port")


def _drop_unchanged(spec: Object, before: Object, names: tuple[str, ...]) -> None:
    for name in names:
        if spec.get(name) == before.get(name):
            spec.pop(name, None)


def _is_reached_from_outside(spec: Object) -> bool:
    kind = spec.get("type")
    return kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
