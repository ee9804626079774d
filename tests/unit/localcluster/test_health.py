"""The supervisor's health check of its servers, over real TLS."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from restow.aio import Runtime, SimulatedClock
from restow.apiserver.certificate_reload import make_material
from restow.apiserver.pki import PkiOptions, ensure_pki
from restow.apiserver.tls_options import TlsOptions
from restow.httpserver import HttpRequest, HttpResponse, Listener
from restow.localcluster.health import ServerProbe

HOST = "127.0.0.1"


def answer(_request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, b"ok")


async def test_new_keys_are_shown(tmp_path: Path) -> None:
    """A supervisor that runs longer than its first certificate uses the renewed one, also with
    servers that require a client certificate."""
    runtime, requested = Runtime.system(), PkiOptions(bind=HOST)
    long_ago = SimulatedClock(start=datetime.now(UTC) - timedelta(days=400))
    old = ensure_pki(tmp_path, replace(runtime, clock=long_ago), requested)
    new = ensure_pki(tmp_path, runtime, requested)
    listener = await Listener.start(
        answer,
        bind=HOST,
        port=0,
        runtime=runtime,
        tls=make_material(new.tls_files(), TlsOptions(client_auth="required")),
    )
    probe = ServerProbe(old, HOST, runtime)
    try:
        assert await probe.complaint(listener.port)
        probe.take(new)
        assert await probe.complaint(listener.port) == ""
    finally:
        await probe.close()
        await listener.stop(grace_seconds=0)
