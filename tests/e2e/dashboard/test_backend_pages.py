"""HTML of an aggregated API server in a browser that has a session of the dashboard."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.e2e.aggregated.stage import until
from tests.e2e.dashboard.browser import Browser
from tests.e2e.dashboard.conftest import NewCluster, open_page
from tests.support.aggregated_backend import JSON, AggregatedBackend, Asked, BackendConnection
from tests.support.server_process import ServerProcess

GROUP: Final = "pages.example.com"
SERVICE: Final = "pages"
ROOT: Final = f"/apis/{GROUP}/v1"
SCRIPT: Final = f"""
  document.documentElement.dataset.ran = self.origin;
  fetch("/api/v1/secrets").then((a) => fetch("{ROOT}/things/stolen?status=" + a.status));
"""
PAGE: Final = f"""<!doctype html><title>A thing</title><h1>A thing</h1>
<script>{SCRIPT}</script><script src="{ROOT}/things/script"></script>
<img src="{ROOT}/things/image" onerror="document.documentElement.dataset.ran = 'handler'">
<iframe srcdoc="<script>parent.document.documentElement.dataset.ran = 'frame'</script>"></iframe>
"""
HTML: Final = ("Content-Type", "text/html; charset=utf-8")
OWN_POLICY: Final = ("Content-Security-Policy", "script-src 'unsafe-inline' 'self'")


async def answer(asked: Asked, line: BackendConnection) -> None:
    """An API whose things are HTML, in one piece or in chunks."""
    path = urlsplit(asked.target).path
    if path == f"{ROOT}/things/whole":
        await line.answer(PAGE.encode(), headers=[HTML, OWN_POLICY])
    elif path == f"{ROOT}/things/streamed":
        lines = f"Content-Type: text/html\r\n{': '.join(OWN_POLICY)}\r\n"
        head = f"HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n"
        await line.write(head.encode())
        await line.chunk(PAGE.encode())
        await line.chunk(b"")
    elif path == f"{ROOT}/things/script":
        await line.answer(SCRIPT.encode(), headers=[("Content-Type", "text/javascript")])
    else:
        thing = {"name": "things", "namespaced": False, "kind": "Thing", "verbs": ["get"]}
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1"}
        await line.answer(json.dumps({**body, "resources": [thing]}).encode(), headers=[JSON])


@pytest.fixture(scope="module")
def server(new_cluster: NewCluster) -> ServerProcess:
    return new_cluster().start("x")[0]


@pytest.fixture
def backend(tmp_path: Path, server: ServerProcess) -> Iterator[AggregatedBackend]:
    """A registered backend, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    starting = AggregatedBackend.start(
        tmp_path / "backend",
        host_names=[f"{SERVICE}.default.svc"],
        client_ca_file=server.pki_dir / "front-proxy-ca.crt",
    )
    made = asyncio.run_coroutine_threadsafe(starting, loop).result()
    made.script = answer
    _register(server, made)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _register(server: ServerProcess, backend: AggregatedBackend) -> None:
    place = "/api/v1/namespaces/default"
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443}]}}
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": backend.port}]}
    spec = {
        "group": GROUP,
        "version": "v1",
        "service": {"namespace": "default", "name": SERVICE},
        "groupPriorityMinimum": 1000,
        "versionPriority": 10,
        "caBundle": base64.b64encode(backend.ca_pem.encode()).decode(),
    }
    for path, body in (
        (f"{place}/services", service),
        (f"{place}/endpoints", {"metadata": {"name": SERVICE}, "subsets": [subset]}),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            {"metadata": {"name": f"v1.{GROUP}"}, "spec": spec},
        ),
    ):
        code, text = server.request("POST", path, body)
        assert code == 201, text
    until(lambda: server.request("GET", f"{ROOT}/things/whole")[0] == 200)


def test_a_page_of_a_backend_runs_no_script(
    browser: Browser, server: ServerProcess, backend: AggregatedBackend
) -> None:
    """A signed-in browser displays the page of a backend in an origin of its own and runs none of
    its scripts, whatever policy the backend sends; so the session stays unused."""
    page = browser.page()
    open_page(page, server)
    for name in ("whole", "streamed"):
        backend.asked.clear()
        page.goto(f"{server.url}{ROOT}/things/{name}")
        page.wait(
            "document.readyState === 'complete' && document.title === 'A thing'", "it is shown"
        )
        assert page.evaluate("document.documentElement.dataset.ran ?? null") is None
        assert page.evaluate("self.origin") == "null"
        # The server itself reads the documents of the backend from time to time.
        asked = [each for each in backend.asked if each.target.startswith(f"{ROOT}/things")]
        assert [each.target for each in asked] == [f"{ROOT}/things/{name}"]
        assert asked[0].all("x-remote-user") == ["restow-admin"]
