"""Caches the parsed and validated form of request lines until the catalog changes.

Not here: authorization, and the responses.
"""

from __future__ import annotations

from typing import Any, Final

from restow.httpserver import HttpRequest, RequestLine
from restow.registry.resource import Resource
from restow.request.metrics import Metrics
from restow.request.parameters import DEADLINES, Deadlines, seconds_of
from restow.request.request_info import RequestInfo, has_siblings, parse_request, sibling

ROUTES_MAX: Final = 4096
# Longer ones are rare, and would fill the memory with lines that are not requested again.
ROUTE_LENGTH_MAX: Final = 512
_NO_MOMENT: Final = frozenset({"", "0"})
_WRITING_METHODS: Final = frozenset({"PUT", "PATCH", "DELETE"})


def deprecation_of(resource: Resource, version: str) -> str:
    """The deprecation warning for a version of a resource, if any."""
    traits = resource.traits.get(version)
    return resource.kind.deprecation if traits is None else traits.deprecation


class ShortGet:
    """A get whose response is the cached object, unchanged."""

    __slots__ = ("api_version", "audited", "info", "is_stale", "path", "root", "tally")

    def __init__(self, resource: Resource, info: RequestInfo, metrics: Metrics) -> None:
        self.info = info
        self.audited: dict[object, Any] = {}
        """Cached audit decisions, by audit policy."""
        self.is_stale = False
        """Whether the resource may have been replaced meanwhile."""
        self.root = resource.root
        self.path = resource.path_of(info.namespace, info.name)
        self.api_version = resource.api_version(info.version)
        self.tally = metrics.tally(("get", info.group, info.version, info.resource, "", "200"))

    @staticmethod
    def is_there(resource: Resource, info: RequestInfo) -> bool:
        """Whether the fast path can serve a request from the cache."""
        if not resource.kind.persisted or deprecation_of(resource, info.version):
            return False
        return info.verb == "get" and info.method == "GET" and not (info.subresource or info.query)


class Route:
    """A parsed request line, valid as long as the catalog does not change."""

    __slots__ = ("info", "resource", "seconds_max", "short")

    def __init__(self, info: RequestInfo, deadlines: Deadlines) -> None:
        self.info = info
        self.seconds_max = seconds_of(info, deadlines)
        self.resource: Resource | None = None
        """Set once the path, the verb and the parameters have been validated."""
        self.short: ShortGet | None = None
        """Set after a get took the slow path, if the fast path is possible."""


def _is_transient(info: RequestInfo) -> bool:
    """Whether a request line is unlikely to be repeated, since it contains a resource version or a
    continue token. Caching it would evict lines that are repeated often."""
    if not info.query:
        return False
    if info.verb == "watch" or info.parameter("continue"):
        return True
    return info.parameter("resourceVersion") not in _NO_MOMENT


class Routes:
    """The cached routes of one server."""

    def __init__(self, deadlines: Deadlines = DEADLINES) -> None:
        self._deadlines = deadlines
        self._routes: dict[tuple[str, str, str], Route] = {}
        self._siblings: dict[tuple[str, str, str], Route] = {}
        """The first of many similar paths, by method, path without the last segment, and query."""

    def forget(self) -> None:
        """Discard all routes: after a catalog change a path may mean another resource."""
        for route in self._routes.values():
            if route.short is not None:
                route.short.is_stale = True
        self._routes.clear()
        self._siblings.clear()

    def short(self, line: RequestLine) -> ShortGet | None:
        """The fast path of a request line that was seen before, if it has one."""
        route = self._routes.get((line.method, line.path, line.query))
        return None if route is None else route.short

    def of(self, request: HttpRequest) -> Route:
        key = (request.method, request.path, request.query)
        route = self._routes.get(key)
        if route is None and request.method in _WRITING_METHODS:
            route = self._sibling(request)
        if route is None:
            query = f"?{request.query}" if request.query else ""
            info = parse_request(request.method, request.path + query)
            route = Route(info, self._deadlines)
            if len(request.path) + len(query) > ROUTE_LENGTH_MAX or _is_transient(info):
                return route
            if len(self._routes) >= ROUTES_MAX:
                self.forget()
            self._routes[key] = route
        return route

    def _sibling(self, request: HttpRequest) -> Route | None:
        """Derive the route of a write to an object from that of a similar path; None: parse it.

        There are many objects and each is rarely written, so their routes are not cached.
        """
        folder, _, name = request.path.rpartition("/")
        key = (request.method, folder, request.query)
        known = self._siblings.get(key)
        if known is not None:
            info = sibling(known.info, request.path, name)
            if info is None:
                return None
            route = Route(info, self._deadlines)
            route.resource = known.resource
            return route
        query = f"?{request.query}" if request.query else ""
        if len(request.path) + len(query) > ROUTE_LENGTH_MAX:
            return None
        route = Route(parse_request(request.method, request.path + query), self._deadlines)
        if has_siblings(route.info, name):
            if len(self._siblings) >= ROUTES_MAX:
                self._siblings.clear()
            self._siblings[key] = route
        return route
