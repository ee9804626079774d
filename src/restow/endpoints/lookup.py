"""Lookup of the resource of a request, and the check that it supports the verb: 404 and 405.

Not here: parsing of the request line (`request_info`, `routes`), and authorization.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from restow.apimachinery import status
from restow.endpoints.handlers.server import Server
from restow.registry.resource import Resource
from restow.request.request_info import RequestInfo

# Verbs of one object; all others apply to a collection.
_NAMED: Final = frozenset({"get", "update", "patch", "delete"})
_IN_ONE_NAMESPACE: Final = frozenset({"create", "deletecollection"})
_SUBRESOURCE_VERBS: Final = frozenset({"get", "update", "patch"})


def find_resource(
    server: Server, info: RequestInfo, actions: Container[tuple[str, str]]
) -> Resource:
    """The resource of a request. Raises 404 or 405."""
    resource = server.catalog.find(info.group, info.version, info.resource)
    if resource is None:
        server.check_whole()
        raise status.resource_not_found()
    kind = resource.kind
    if info.subresource:
        subresource = resource.subresource(info.version, info.subresource)
        if subresource is None or (info.rest and not subresource.takes_path):
            raise status.resource_not_found()
        # Other verbs of a subresource have no handler of objects.
        is_done = info.verb in _SUBRESOURCE_VERBS or (info.subresource, info.verb) in actions
        if info.verb not in subresource.verbs or not is_done:
            raise status.method_not_allowed(kind.group_resource, info.verb)
    elif info.verb not in kind.verbs or (info.verb in _NAMED) is not bool(info.name):
        raise status.method_not_allowed(kind.group_resource, info.verb)
    # A cluster-scoped resource has no path in a namespace, a namespaced object none outside.
    if kind.namespaced:
        if not info.namespace and info.name:
            raise status.resource_not_found()
        if not info.namespace and info.verb in _IN_ONE_NAMESPACE:
            raise status.method_not_allowed(kind.group_resource, info.verb)
    elif info.namespace and (kind.plural != "namespaces" or info.namespace != info.name):
        raise status.resource_not_found()
    return resource
