"""Paths that are not resources: discovery without hashes, and the two metrics endpoints."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from restow.aio import run_eagerly
from restow.endpoints.discovery import Discovery, no_version_hash
from restow.endpoints.health import HealthChecks
from restow.endpoints.nonresource import NonResources
from restow.endpoints.openapi_paths import OpenApi
from restow.httpserver import HttpResponse
from restow.httpserver.request import Headers, HttpRequest, Peer
from restow.openapi import ApiInfo
from restow.registry.catalog import builtin_catalog, version_hash_of
from restow.registry.resource import Resource
from restow.request.context import Context
from restow.request.metrics import Metrics
from restow.request.request_info import parse_request

CATALOG = builtin_catalog()


def _preferred_hash(resource: Resource) -> str:
    return version_hash_of(resource, resource.storage_api_version)


def ask(parts: NonResources, path: str) -> tuple[int, bytes]:
    request = HttpRequest("GET", path, "", Headers([]), b"", Peer(1), 0.0)
    answer = run_eagerly(parts.answer(Context(request, parse_request("GET", path))))
    assert isinstance(answer, HttpResponse)
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body


@pytest.fixture
def parts() -> NonResources:
    health = HealthChecks()
    health.add("ping", lambda: None)
    return NonResources(
        discovery=Discovery(CATALOG, no_version_hash, address=""),
        openapi=OpenApi(CATALOG, ApiInfo(version="v0", server_side_apply=False)),
        health=health,
        metrics=Metrics(),
        version={},
    )


def test_metrics_of_health_stand_apart(parts: NonResources) -> None:
    """/metrics/slis has the health checks and nothing else; /metrics has everything else."""
    code, slis = ask(parts, "/metrics/slis")
    assert code == 200
    assert b'kubernetes_healthcheck{name="ping",type="readyz"} 1.0\n' in slis
    assert b"apiserver_request" not in slis
    code, metrics = ask(parts, "/metrics")
    assert code == 200
    assert b"apiserver_request" in metrics
    assert b"kubernetes_healthcheck" not in metrics
    assert ask(parts, "/metrics/other")[0] == 404
    assert "/metrics/slis" in orjson.loads(ask(parts, "/")[1])["paths"]


def _resources(discovery: Discovery) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for group, versions in CATALOG.groups.items():
        for version in versions:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            body = discovery.plain(path)
            assert body is not None
            found += orjson.loads(body)["resources"]
    return found


def test_hashes_can_be_left_out() -> None:
    """Without hashes the field is missing, and everything else is equal."""
    with_hashes = _resources(Discovery(CATALOG, _preferred_hash, address=""))
    without = _resources(Discovery(CATALOG, no_version_hash, address=""))
    assert any("storageVersionHash" in each for each in with_hashes)
    for each in with_hashes:
        each.pop("storageVersionHash", None)
    assert without == with_hashes
