"""Serving until told to stop: what `restow serve` and library users call."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from restow.apiserver.options import ServeOptions
from restow.resources.definition import Resource
from restow.runtime import Runtime, end_process

if TYPE_CHECKING:
    from restow.serving.admission import Admission

COLLECTOR_THRESHOLDS: Final = (20_000, 50, 100)


async def serve(
    options: ServeOptions,
    *,
    kinds: Sequence[Resource] = (),
    admission: Sequence[Admission] = (),
) -> None:
    """Run a server until SIGINT or SIGTERM. Prints a line that begins with `ready`."""
    from restow.apiserver.server import ApiServer  # noqa: PLC0415 - so that --help stays fast

    stop, server = asyncio.Event(), None
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        stop.set()
        if server is None:
            task.cancel()  # It may wait long for its turn to write, and must not hold anybody up.

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        server = await ApiServer.start(
            options, Runtime.system(fatal=end_process), kinds=kinds, admission=admission
        )
    except asyncio.CancelledError:
        if stop.is_set():
            return
        raise
    _spare_the_collector()
    front = "" if server.front_url is None else f" front {server.front_url}"
    print(  # noqa: T201 - the line that scripts wait for
        f"ready: https://{options.bind}:{server.port} kubeconfig {server.kubeconfig}{front}",
        flush=True,
    )
    await stop.wait()
    await server.stop()


def _spare_the_collector() -> None:
    """Let Python's garbage collector look less often, and not at what was made at the start.

    What requests make has no cycles and goes away by itself; what caches hold is bytes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
