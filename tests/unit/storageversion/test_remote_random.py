"""Servers with their own store in random histories: each write is checked when it commits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import pytest

from restow.apimachinery.status_error import StatusError
from restow.storage.errors import StorageError
from tests.unit.storageversion.remote_world import MainConnection, RemoteWorld, open_remote_world
from tests.unit.storageversion.world import Server

STEPS = 30
SERVERS_MAX = 5


class Walk:
    """One random history."""

    def __init__(self, world: RemoteWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.running: list[tuple[Server, MainConnection]] = []
        self.tasks: list[asyncio.Future[object]] = []

    async def step(self) -> None:
        choices = ["write"] * 4 + ["advance"] * 3 + ["trouble", "mend", "pause", "wake", "kill"]
        choice = self.random.choice(choices)
        if not self.running or (choice == "mend" and len(self.world.own.servers) < SERVERS_MAX):
            release = self.random.choice(["x+1", "x+2"])
            self.running.append(self.world.aggregated(release))
            self._spawn(self.running[-1][0].start())
        server, connection = self.random.choice(self.running)
        match choice:
            case "write":
                self._spawn(server.write(f"w{self.random.randrange(3)}"))
            case "trouble":
                fault = self.random.choice(["is_down", "loses_replies", "delays_reports"])
                setattr(connection, fault, True)
            case "mend":
                connection.is_down = connection.loses_replies = connection.delays_reports = False
            case "pause":
                server.line.pause()
            case "wake":
                server.line.wake()
                await connection.deliver_delayed()
            case "kill" if len(self.running) > 1:
                self.running.remove((server, connection))
                await server.kill()
        await self.world.clock.advance(self.random.choice([0.0, 0.01, 1.0, 7.0, 16.0]))

    def _spawn(self, work: Awaitable[object]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def end(self) -> None:
        """Ends all faults, and lets the running servers report again."""
        for server, connection in self.running:
            connection.is_down = connection.loses_replies = connection.delays_reports = False
            server.line.wake()
            await connection.deliver_delayed()
        await self.world.clock.advance(120)
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, StatusError, StorageError):
                await task


@pytest.mark.parametrize("seed", range(3))
async def test_no_write_escapes_the_main_servers(tmp_path: Path, seed: int) -> None:
    """Servers start, pause and are killed, reports are lost, late and refused: every commit matches
    the
    entries at the main servers, which finally match the running servers."""
    async with open_remote_world(tmp_path, seed=seed) as world:
        walk = Walk(world, seed)
        for _ in range(STEPS):
            await walk.step()
        await walk.end()
        running_ids = {server.id for server, _ in walk.running}
        assert set(await world.encoding_versions()) == running_ids
        for server, _ in walk.running:
            await world.run(server.write("last"))
        assert world.storage.checked > 0
