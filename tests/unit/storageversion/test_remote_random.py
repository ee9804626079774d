"""Servers with a store of their own in random worlds: each write is judged when it commits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path

import pytest

from restow.apimachinery.status_error import StatusError
from restow.storage.errors import StorageError
from tests.unit.storageversion.remote_world import RemoteWorld, Way, open_remote_world
from tests.unit.storageversion.world import Server

STEPS = 30
SERVERS_MAX = 5


class Walk:
    """One way through a world."""

    def __init__(self, world: RemoteWorld, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.running: list[tuple[Server, Way]] = []
        self.tasks: list[asyncio.Future[object]] = []

    async def step(self) -> None:
        choices = ["write"] * 4 + ["advance"] * 3 + ["trouble", "mend", "pause", "wake", "kill"]
        choice = self.random.choice(choices)
        if not self.running or (choice == "mend" and len(self.world.own.servers) < SERVERS_MAX):
            release = self.random.choice(["x+1", "x+2"])
            self.running.append(self.world.aggregated(release))
            self._spawn(self.running[-1][0].start())
        server, way = self.random.choice(self.running)
        match choice:
            case "write":
                self._spawn(server.write(f"w{self.random.randrange(3)}"))
            case "trouble":
                trouble = self.random.choice(["is_down", "loses_answers", "keeps"])
                setattr(way, trouble, True)
            case "mend":
                way.is_down = way.loses_answers = way.keeps = False
            case "pause":
                server.line.pause()
            case "wake":
                server.line.wake()
                await way.deliver_late()
            case "kill" if len(self.running) > 1:
                self.running.remove((server, way))
                await server.kill()
        await self.world.clock.advance(self.random.choice([0.0, 0.01, 1.0, 7.0, 16.0]))

    def _spawn(self, work: Awaitable[object]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def end(self) -> None:
        """Mend everything, and have those that run agree on what they say."""
        for server, way in self.running:
            way.is_down = way.loses_answers = way.keeps = False
            server.line.wake()
            await way.deliver_late()
        await self.world.clock.advance(120)
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, StatusError, StorageError):
                await task


@pytest.mark.parametrize("seed", range(3))
async def test_no_write_escapes_the_main_servers(tmp_path: Path, seed: int) -> None:
    """Servers come, are paused and die, reports are lost, late and refused: whatever commits is
    what the main servers say, and in the end they say what the living servers do."""
    async with open_remote_world(tmp_path, seed=seed) as world:
        walk = Walk(world, seed)
        for _ in range(STEPS):
            await walk.step()
        await walk.end()
        living = {server.id for server, _ in walk.running}
        assert set(await world.said()) == living
        for server, _ in walk.running:
            await world.run(server.write("last"))
        assert world.storage.judged > 0
