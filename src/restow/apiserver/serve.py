"""Serving until told to stop: what `restow serve` and library users call."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from restow.apiserver.options import ServeOptions
from restow.resources.definition import Resource
from restow.runtime import Runtime, end_process


async def serve(options: ServeOptions, *, kinds: Sequence[Resource] = ()) -> None:
    """Run a server until SIGINT or SIGTERM. Prints a line that begins with `ready`."""
    from restow.apiserver.server import ApiServer  # noqa: PLC0415 - so that --help stays fast

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await ApiServer.start(options, Runtime.system(fatal=end_process), kinds=kinds)
    print(  # noqa: T201 - the line that scripts wait for
        f"ready: https://{options.bind}:{server.port} kubeconfig {server.kubeconfig}", flush=True
    )
    await stop.wait()
    await server.stop()
