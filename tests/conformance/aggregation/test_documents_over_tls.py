"""Documents of a real backend, over TLS with this server's client certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from restow.aggregator.backends import ClientCertificate, RemoteBackends
from restow.aggregator.documents import RemoteDocuments
from restow.aggregator.services import ServiceEndpoint
from restow.aio import Runtime
from restow.registry.catalog import Catalog
from tests.conformance.aggregation.documents_world import GROUP, Directory, Site, World, api
from tests.conformance.aggregation.proxy.proxies import FixedServices
from tests.support.aggregated_backend import AggregatedBackend, Asked, BackendConnection
from tests.support.certificates import make_certificate
from tests.unit.endpoints.custom_kinds import gadgets


async def test_documents_are_fetched_over_tls(tmp_path: Path) -> None:
    """A backend is queried by the server itself; one with a wrong certificate is never queried."""
    site = Site(Catalog([gadgets(GROUP)]))
    proxy = make_certificate(tmp_path / "proxy", name="front-proxy-client")

    async def answer(asked: Asked, line: BackendConnection) -> None:
        found = await site.ask(asked.target, dict(asked.headers))
        assert isinstance(found.body, bytes)
        await line.answer(found.body, headers=list(found.headers.items()))

    backend = await AggregatedBackend.start(
        tmp_path / "backend",
        host_names=["gadgets.default.svc"],
        client_ca_file=proxy.ca_file,
    )
    backend.script = answer
    shown = ClientCertificate(proxy.cert_file.read_text(), proxy.key_file.read_text())
    runtime = Runtime.system()
    backends = RemoteBackends(
        FixedServices([ServiceEndpoint("127.0.0.1", backend.port)]),
        runtime,
        identity=lambda: shown,
        allows_loopback=True,
    )
    good = replace(api(), ca_pem=backend.ca_pem)
    bad = replace(api("bad.example.com"), ca_pem=proxy.ca_file.read_text())
    directory = Directory({each.name: each for each in (good, bad)})
    documents = RemoteDocuments(directory, backends, runtime)
    waiting = World()
    async with runtime.tasks("documents") as tasks:
        tasks.spawn("run", documents.run())

        def is_read() -> bool:
            known = documents.version(GROUP, "v1")
            return known is not None and known.is_fresh and None not in (known.v2, known.v3)

        await waiting.until(lambda: is_read() and bad.name in documents.problems())
    assert {each.user for each in backend.asked} == {"front-proxy-client"}
    assert {each.all("X-Remote-User")[0] for each in backend.asked} == {"system:kube-aggregator"}
    assert "certificate" in documents.problems()[bad.name]
    assert good.name not in documents.problems()
    await backends.close()
    await backend.stop()
