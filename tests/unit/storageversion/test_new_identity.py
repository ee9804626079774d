"""A server that has lost its identity and cannot report every resource under the new one.

In simulated time, without processes: a server that decodes only v1 expired, and meanwhile another
one has started to write v2.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from restow.apimachinery.status_error import StatusError
from restow.storage.interface import Delete, Transaction
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.object_codec import state_key
from tests.e2e.storageversion.clusters import WIDGETS_NAME
from tests.unit.storageversion.world import Server, World, open_world

LEASE_SECONDS: Final = 15.0


@pytest.mark.parametrize("finder", ["a write", "the renewal"])
async def test_lost_identity(tmp_path: Path, finder: str) -> None:
    """It keeps its new identity although one resource cannot be reported, and reports that one as
    soon
    as possible, whether a write or the renewal detected the loss."""
    async with open_world(tmp_path) as world:
        old = await world.started("x")
        identity = old.id
        old.line.pause()
        await world.clock.advance(3 * LEASE_SECONDS)
        new = await world.started("x+2")
        assert await world.storage.get(server_key(ServerId(identity))) is None
        old.line.wake()
        if finder == "a write":
            with suppress(StatusError):
                await world.run(old.write("late"))
        await world.clock.advance(LEASE_SECONDS)
        assert old.id != identity
        identity = old.id
        assert not has_reported_all(old)

        await world.clock.advance(5 * LEASE_SECONDS)
        assert old.id == identity
        assert await world.storage.get(server_key(ServerId(identity))) is not None

        await remove_the_obstacle(world, new)
        await world.clock.advance(2 * LEASE_SECONDS)
        assert has_reported_all(old)
        await world.run(old.write("at-last"))
        assert await world.stored("at-last") == "v1"


def has_reported_all(server: Server) -> bool:
    return server.coordinator.completed


async def remove_the_obstacle(world: World, new: Server) -> None:
    """Stops the other server and deletes its StorageState, as it has written nothing."""
    await world.run(new.stop())
    await world.storage.commit(Transaction((), (Delete(state_key(WIDGETS_NAME)),)))
