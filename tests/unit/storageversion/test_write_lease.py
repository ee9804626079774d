"""A server that has not renewed its lease in time writes no objects until it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from restow.apimachinery import status
from restow.registry.write_options import ObjectWriteOptions
from restow.storage.interface import Revision
from restow.storageversion.identity import server_key
from restow.storageversion.write_lease import RENEW_DEADLINE
from tests.unit.storageversion.world import Server, World, open_world

LEASE_SECONDS: Final = 15.0
DEADLINE_SECONDS: Final = LEASE_SECONDS * RENEW_DEADLINE
MODES: Final = ("report", "strict", "loose", "off")


async def is_written(world: World, server: Server, name: str, **fields: Any) -> bool:
    """Returns whether a write succeeds; the only error may be the one of the lease."""
    try:
        await world.run(server.write(name, **fields), seconds_max=0.0)
    except status.ServiceUnavailable as error:
        if "lease" in str(error) and error.retry_after_seconds == 1:
            return False
        raise
    return True


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_with_a_blocked_loop_refuses_writes(tmp_path: Path, mode: str) -> None:
    """In every mode, a server whose loop was blocked until the deadline answers the next writes
    with 503 and stores nothing, before its renewal has run; and writes again after it has."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = mode not in ("loose", "off")
        server = await world.started("x+1", mode=mode)
        assert await is_written(world, server, "before")
        revision = await world.storage.revision()
        world.clock.stall(DEADLINE_SECONDS)
        assert not await is_written(world, server, "late")
        assert not await is_written(world, server, "before", spec={"color": "red"})
        assert await world.storage.revision() == revision
        assert server.coordinator.lease.refused == 2
        await world.clock.advance(0)
        assert await is_written(world, server, "late")


async def test_a_write_before_the_deadline_passes(tmp_path: Path) -> None:
    """The last moment before the deadline is still in time, and the deadline is before the end of
    the lease."""
    assert DEADLINE_SECONDS < LEASE_SECONDS
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        world.clock.stall(DEADLINE_SECONDS - 0.01 - server.coordinator.membership.age_seconds)
        assert await is_written(world, server, "in-time")


async def test_others_collect_a_server_only_after_it_refuses_writes(tmp_path: Path) -> None:
    """A server that cannot renew refuses writes at a time at which its membership record still
    exists, whatever the delay between its renewals and the collector's view of them."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        await world.started("x+1")
        await world.clock.advance(1.0)
        server.line.pause()
        refused_at = None
        for _ in range(int(3 * LEASE_SECONDS / 0.25)):
            await world.clock.advance(0.25)
            exists = await world.storage.get(server_key(server.coordinator.membership.id))
            if refused_at is None and server.coordinator.lease.error() is not None:
                refused_at = world.clock.monotonic()
                assert exists is not None
            if exists is None:
                break
        else:
            pytest.fail("it was never collected")
        assert refused_at is not None
        assert world.clock.monotonic() - refused_at >= LEASE_SECONDS - DEADLINE_SECONDS - 0.25


async def test_the_deadline_is_checked_when_a_write_commits(tmp_path: Path) -> None:
    """A loop that is blocked while a write is in progress, after it was planned, refuses the
    commit."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        assert await is_written(world, server, "old")
        revision = await world.storage.revision()
        resource = server.resource()

        async def review(*_: object, **__: object) -> None:
            world.clock.stall(DEADLINE_SECONDS)

        with pytest.raises(status.ServiceUnavailable, match="lease"):
            await world.run(
                server.store.update(
                    resource,
                    resource.served[0],
                    "ns/old",
                    lambda obj: {**obj, "spec": {"color": "red"}},
                    options=ObjectWriteOptions(review=review),
                    is_patch=True,
                ),
                seconds_max=0.0,
            )
        assert await world.storage.revision() == revision


async def test_reads_and_the_renewal_itself_go_on(tmp_path: Path) -> None:
    """Objects are read meanwhile, and the renewal and the registration of a server that was
    collected are not refused."""
    async with open_world(tmp_path) as world:
        server = await world.started("x+1")
        await world.started("x+1")
        assert await is_written(world, server, "kept")
        resource, old = server.resource(), server.id
        server.line.pause()
        await world.clock.advance(3 * LEASE_SECONDS)
        server.line.wake()
        assert not await is_written(world, server, "late")
        assert (await server.store.read(resource)).get("ns/kept") is not None
        assert server.store._policy.readable(resource).last > Revision(0)
        await world.clock.advance(LEASE_SECONDS)
        assert server.id != old
        assert await is_written(world, server, "late")
