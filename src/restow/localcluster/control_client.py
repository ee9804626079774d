"""The client of the control socket: requests to the supervisor of a data directory.

    supervisor = ControlClient(Path(".restow"))
    overview = await supervisor.ask(ControlRequest(verb="list"))

Not here: the use of the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from restow.localcluster.control import socket_address
from restow.localcluster.errors import ControlRefused, NoClusterRuns
from restow.localcluster.messages import (
    LINE_BYTES_MAX,
    ControlReply,
    ControlRequest,
    ProcessOverview,
)


class ControlClient:
    """Sends one request at a time, each on its own connection."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    async def ask(
        self, request: ControlRequest, *, on_progress: Callable[[str], None] | None = None
    ) -> ProcessOverview:
        """Send a request; return the overview after it. Raises ControlRefused with the error.

        Raises NoClusterRuns if no supervisor responds, or it ends during the request.
        """
        reader, writer = await self._connect()
        try:
            writer.write(msgspec.json.encode(request) + b"\n")
            while line := await reader.readline():
                answer = msgspec.json.decode(line, type=ControlReply)
                if answer.error:
                    raise ControlRefused(answer.error)
                if answer.progress and on_progress is not None:
                    on_progress(answer.progress)
                if answer.overview is not None:
                    return answer.overview
        except (ConnectionError, ValueError, msgspec.MsgspecError) as error:
            raise NoClusterRuns(
                f"the connection to the cluster in {self.data_dir} broke: {error}"
            ) from error
        finally:
            writer.close()
        raise NoClusterRuns(f"the cluster in {self.data_dir} ended before it replied")

    async def overview(self) -> ProcessOverview:
        return await self.ask(ControlRequest(verb="list"))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            with socket_address(self.data_dir) as address:
                return await asyncio.open_unix_connection(address, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise NoClusterRuns(
                f"no cluster runs in {self.data_dir}: start one with restow up --data-dir"
                f" {self.data_dir}"
            ) from error
