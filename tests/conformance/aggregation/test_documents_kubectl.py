"""kubectl and the merged documents: it treats a remote kind like a local one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from restow.aio import Runtime
from restow.client.transport import InProcessResponse
from restow.httpserver import Listener
from restow.httpserver.request import HttpRequest
from restow.registry.catalog import Catalog
from restow.request.context import Context
from restow.request.request_info import parse_request
from tests.conformance.aggregation.documents_world import (
    GROUP,
    Site,
    World,
    api,
    running_world,
)
from tests.unit.endpoints.custom_kinds import gadgets

OLD = "old.example.com"
SECONDS_MAX = 60.0


class Kubectl:
    """The binary on PATH, against a server that serves only documents."""

    def __init__(self, port: int, home: Path) -> None:
        self._words = [
            shutil.which("kubectl") or "kubectl",
            f"--server=http://127.0.0.1:{port}",
            f"--cache-dir={home}",
        ]
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": ""}

    async def __call__(self, *words: str, stdin: str = "") -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *self._words,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
        )
        async with asyncio.timeout(SECONDS_MAX):
            out, _ = await process.communicate(stdin.encode())
        return process.returncode, out.decode()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running_world() as made:
        # The second backend is old: plain discovery, and OpenAPI v2 only.
        made.backends.sites["old"] = Site(Catalog([gadgets(OLD)]))
        for target in ("/apis", "/openapi/v3"):
            made.backends.scripts["old", target] = InProcessResponse(404)
        made.directory.put(api(), api(OLD, service="old"), api("gone.example.com", service="gone"))
        await made.until(lambda: made.is_current(f"v1.{GROUP}"))
        old = made.documents
        await made.until(lambda: (v := old.version(OLD, "v1")) is not None and v.v2 is not None)
        yield made


@pytest.fixture
async def kubectl(world: World, tmp_path: Path) -> AsyncIterator[Kubectl]:
    def app(request: HttpRequest) -> Any:
        target = f"{request.path}?{request.query}" if request.query else request.path
        info = parse_request(request.method, target)
        return world.site.parts.answer(Context(request, info))

    listener = await Listener.start(app, bind="127.0.0.1", port=0, runtime=Runtime.system())
    yield Kubectl(listener.port, tmp_path)
    await listener.stop(grace_seconds=1)


async def test_kubectl_knows_remote_kinds(kubectl: Kubectl) -> None:
    """It lists, explains and validates remote kinds, also of an old backend and a stopped one."""
    _, out = await kubectl("api-resources", "--no-headers")
    lines = [line.split() for line in out.splitlines()]
    assert ["gadgets", "gd", f"{GROUP}/v1", "true", "Gadget"] in lines
    assert ["gadgets", "gd", f"{OLD}/v1", "true", "Gadget"] in lines
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in lines
    for group in (GROUP, OLD):
        code, out = await kubectl("explain", "gadgets.spec.color", f"--api-version={group}/v1")
        assert (code, "How it looks." in out) == (0, True), out
    words = ("create", "--dry-run=client", "--validate=strict", "-f", "-", "-o", "name")
    for group in (GROUP, OLD):
        thing = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
        code, out = await kubectl(*words, stdin=json.dumps(thing))
        assert (code, out.strip()) == (0, f"gadget.{group}/a")
