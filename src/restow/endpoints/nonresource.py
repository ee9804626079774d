"""Paths that are not resources: discovery, OpenAPI, health, metrics, version.

`/apis/G/V` of a remote API is proxied to its server, so that its unaggregated discovery document
comes unchanged, with the hashes of storage versions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Final

import orjson

from restow.aggregator.interface import Directory, RemoteApi
from restow.apimachinery import status
from restow.endpoints.discovery import Discovery
from restow.endpoints.health import HealthChecks, Probe
from restow.endpoints.openapi_paths import OpenApi
from restow.httpserver.response import NOSNIFF_LINE, Answer, HttpResponse, header_block
from restow.kinds.builtin import has_group
from restow.request.context import Context
from restow.request.metrics import CONTENT_TYPE, HealthMetrics, Metrics
from restow.request.responses import respond_object, respond_text

_PROBES: Final[dict[str, Probe]] = {
    "healthz": "healthz",
    "livez": "livez",
    "readyz": "readyz",
}
_METRICS_HEADERS: Final = header_block([("Content-Type", CONTENT_TYPE), NOSNIFF_LINE])


Pages = Callable[[Context], Awaitable[Answer]]
"""Handles everything below one first path segment, with any method."""
Forward = Callable[[Context, RemoteApi], Awaitable[Answer]]
"""Proxies a request to the server of a remote API."""


class NonResources:
    """Handles requests that are not for resources."""

    def __init__(
        self,
        *,
        discovery: Discovery,
        openapi: OpenApi,
        health: HealthChecks,
        metrics: Metrics,
        version: dict[str, str],
        pages: Mapping[str, Pages] | None = None,
        page_paths: Sequence[str] = (),
        directory: Directory | None = None,
        forward: Forward | None = None,
    ) -> None:
        self._discovery = discovery
        self._openapi = openapi
        self._health = health
        self._metrics = metrics
        self._health_metrics = HealthMetrics(states=health.states, counts=health.counts)
        self._version = version
        self._pages = pages or {}
        self._page_paths = tuple(page_paths)
        """Those of these paths that are listed at `/`."""
        self._directory = directory
        self._forward = forward

    async def answer(self, context: Context) -> Answer:
        """The response to a request whose path names no resource."""
        path = context.info.path
        first, _, rest = path[1:].partition("/")
        if first in self._pages:
            return await self._pages[first](context)
        if first == "apis" and self._forward is not None:
            remote = self._remote(rest)
            if remote is not None:
                return await self._forward(context, remote)
        if first in ("api", "apis") and rest and "/" not in rest.partition("/")[2]:
            self._check_version(first, rest)
        if context.info.method not in ("GET", "HEAD"):
            return respond_text(405, "405 method not allowed\n")
        if first in _PROBES:
            return self._health.answer(context, _PROBES[first], rest)
        if path == "/version":
            return respond_object(context, 200, self._version)
        if path == "/metrics":
            return HttpResponse(200, self._metrics.document(), _METRICS_HEADERS)
        if path == "/metrics/slis":
            return HttpResponse(200, self._health_metrics.document(), _METRICS_HEADERS)
        if first in ("api", "apis"):
            return self._discovery.answer(context, path) or not_found_text()
        if first == "openapi":
            return await self._openapi.answer(context, path) or not_found_text()
        if path == "/":
            return respond_object(context, 200, {"paths": self._paths()})
        return not_found_text()

    def _check_version(self, first: str, rest: str) -> None:
        """Check that a built-in group has this version. Raises 404."""
        group, _, version = rest.partition("/") if first == "apis" else ("", "", rest)
        if not version or not has_group(group):
            return
        is_hosted = not group or self._discovery.plain(f"/apis/{group}") is not None
        if is_hosted and self._discovery.plain(f"/{first}/{rest}") is None:
            raise status.resource_not_found()

    def _remote(self, rest: str) -> RemoteApi | None:
        """The remote API whose own discovery document is at this path below `/apis/`."""
        group, _, version = rest.partition("/")
        # KEP-35 1.8: documents of remote APIs pass through with their own hashes
        if self._directory is None or not version or "/" in version:
            return None
        return self._directory.find(group, version)

    def _paths(self) -> list[str]:
        known = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"]
        groups = orjson.loads(self._discovery.plain("/apis") or b"{}").get("groups", [])
        known += ["/api/v1", "/metrics/slis", "/readyz", "/version", *self._page_paths]
        for group in groups:
            known.append(f"/apis/{group['name']}")
            known += [f"/apis/{each['groupVersion']}" for each in group["versions"]]
        return sorted(known)


def no_such_version(groups: Container[str], group: str) -> HttpResponse:
    """The response for objects in a version that is not served. For a built-in group that is served
    it is a Status. Raises 404."""
    if group in groups and has_group(group):
        raise status.resource_not_found()
    return not_found_text()


def not_found_text() -> HttpResponse:
    return respond_text(404, "404 page not found\n")
