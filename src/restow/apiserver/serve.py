"""Runs a server until a signal arrives: called by `restow serve` and library users."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from restow.aio import Runtime, end_process
from restow.apiserver.aggregated_options import AggregatedOptions
from restow.apiserver.options import ServeOptions
from restow.registry.resource import Resource

if TYPE_CHECKING:
    from restow.admission import Admission

COLLECTOR_THRESHOLDS: Final = (20_000, 50, 100)


async def serve(
    options: ServeOptions,
    *,
    kinds: Sequence[Resource] = (),
    admission: Sequence[Admission] = (),
) -> None:
    """Run a server until SIGINT or SIGTERM. Prints a line that starts with `ready`."""
    from restow.apiserver.server import ApiServer  # noqa: PLC0415 - not imported for --help

    def ready(server: ApiServer) -> str:
        front = "" if server.front_url is None else f" front {server.front_url}"
        return f"https://{options.bind}:{server.port} kubeconfig {server.kubeconfig}{front}"

    await _run(
        lambda runtime: ApiServer.start(options, runtime, kinds=kinds, admission=admission), ready
    )


async def serve_aggregated(
    options: AggregatedOptions,
    *,
    kinds: Sequence[Resource],
    admission: Sequence[Admission] = (),
) -> None:
    """Run an aggregated server of these kinds until SIGINT or SIGTERM. Prints a line that starts
    with `ready`."""
    from restow.apiserver.aggregated import AggregatedServer  # noqa: PLC0415 - as above

    def ready(server: AggregatedServer) -> str:
        return f"https://{options.serve.bind}:{server.port} component {server.component}"

    await _run(
        lambda runtime: AggregatedServer.start(options, runtime, kinds=kinds, admission=admission),
        ready,
    )


def load_kinds(path: Path) -> list[Resource]:
    """Read kinds from CustomResourceDefinitions in a file or a directory of files.

    Raises a ValueError that names the file and the problem.
    """
    from restow.apiserver import aggregated_kinds  # noqa: PLC0415 - as above

    return aggregated_kinds.load_kinds(path)


class _Server(Protocol):
    async def stop(self) -> None: ...


T = TypeVar("T", bound=_Server)


async def _run(start: Callable[[Runtime], Awaitable[T]], ready: Callable[[T], str]) -> None:
    """Start a server, print its readiness, and stop it on a signal."""
    stop = asyncio.Event()
    server: T | None = None
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        stop.set()
        if server is None:
            task.cancel()  # It may wait long for leadership, and must not delay the shutdown.

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        runtime = Runtime.system(fatal=end_process)
        runtime.steps.measure_tasks(loop)
        server = await start(runtime)
    except asyncio.CancelledError:
        if stop.is_set():
            return
        raise
    _tune_garbage_collector()
    print(f"ready: {ready(server)}", flush=True)  # noqa: T201 - the line that scripts wait for
    await stop.wait()
    await server.stop()


def _tune_garbage_collector() -> None:
    """Make Python's garbage collector run less often, and ignore the objects of the start.

    Objects of requests have no cycles and are freed by reference counting; caches hold bytes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
