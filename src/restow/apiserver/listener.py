"""Starts the listener of one server on its handler chain; it is the last part that is built."""

from __future__ import annotations

from dataclasses import fields

from restow.aio import Runtime
from restow.apiserver.assembly import Assembly
from restow.apiserver.limits import listener_limits, raise_file_limit
from restow.apiserver.options import ServeOptions
from restow.httpserver import Listener, TlsMaterial
from restow.request.metrics import Metrics
from restow.request.responses import error_body


async def listen(
    assembly: Assembly, options: ServeOptions, runtime: Runtime, material: TlsMaterial
) -> Listener:
    """Accept requests from now on."""
    app = assembly.app
    return await Listener.start(
        app,
        bind=options.bind,
        port=options.port,
        runtime=runtime,
        tls=material,
        limits=listener_limits(options.limits, raise_file_limit()),
        gate=app.gate,
        given_up=app.given_up,
        refused=app.refused,
        quick=app.quick,
        error_body=error_body,
        counters=assembly.counters,
    )


def publish_listener(metrics: Metrics, listener: Listener) -> None:
    """Export the listener's counters."""
    for field in fields(listener.counters):
        grows = field.metadata["grows"]
        name = f"restow_listener_{field.name.removesuffix('_total')}"
        add = metrics.counter if grows else metrics.gauge
        add(
            f"{name}_total" if grows else name,
            field.metadata["about"],
            (),
            lambda name=field.name: [((), getattr(listener.counters, name))],  # type: ignore[misc]
        )
