"""Ingresses: `networking.k8s.io/v1beta1` has flat backends, `v1` has a service in each.

The field of the default backend has another name, too.
"""

from __future__ import annotations

from typing import Final

from restow.apimachinery.conversion import (
    Convert,
    Converter,
    Object,
    Spoke,
    part_of,
    renamed_keys,
)


def _to_v1(ingress: Object) -> Object:
    return _with_backends(ingress, {"backend": "defaultBackend"}, _backend_to_v1)


def _from_v1(ingress: Object) -> Object:
    return _with_backends(ingress, {"defaultBackend": "backend"}, _backend_from_v1)


def _with_backends(ingress: Object, names: dict[str, str], convert: Convert) -> Object:
    if not ingress.get("spec"):
        return ingress
    spec = renamed_keys(part_of(ingress, "spec"), names)
    for name in names.values():
        if spec.get(name) is not None:
            spec[name] = convert(spec[name])
    if spec.get("rules"):
        spec["rules"] = [_with_paths(rule, convert) for rule in spec["rules"]]
    return {**ingress, "spec": spec}


def _with_paths(rule: Object, convert: Convert) -> Object:
    http = part_of(rule, "http")
    paths = http.get("paths")
    if not paths:
        return rule
    converted = [
        {**path, "backend": convert(path["backend"])} if path.get("backend") else path
        for path in paths
    ]
    return {**rule, "http": {**http, "paths": converted}}


def _backend_to_v1(backend: Object) -> Object:
    converted = {
        name: value for name, value in backend.items() if name not in ("serviceName", "servicePort")
    }
    service: Object = {}
    if "serviceName" in backend:
        service["name"] = backend["serviceName"]
    if "servicePort" in backend:
        port = backend["servicePort"]
        service["port"] = {"number": port} if isinstance(port, int) else {"name": port}
    if service:
        converted["service"] = service
    return converted


def _backend_from_v1(backend: Object) -> Object:
    converted = {name: value for name, value in backend.items() if name != "service"}
    service = part_of(backend, "service")
    if "name" in service:
        converted["serviceName"] = service["name"]
    port = part_of(service, "port")
    # A port has a name or a number, and the older version has one field for both.
    if "name" in port:
        converted["servicePort"] = port["name"]
    elif "number" in port:
        converted["servicePort"] = port["number"]
    return converted


CONVERTER: Final = Converter(
    "Ingress.networking.k8s.io",
    hub="networking.k8s.io/v1",
    spokes={"networking.k8s.io/v1beta1": Spoke(_to_v1, _from_v1)},
)
