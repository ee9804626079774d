"""Expired events are removed, recent ones stay, regardless of timestamps of clients."""

from datetime import timedelta
from typing import Any

import pytest

from restow.aio import SimulatedClock
from restow.controllers import events_expiry
from restow.controllers.events_expiry import EventExpiry
from restow.registry.strategy import timestamp
from restow.storage.memory import MemoryStorage
from tests.unit.controllers.world import InterruptedStorage, World, open_world

TTL = 3600.0


async def event(world: World, name: str, **fields: Any) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    await world.create("Event", name, "default", involvedObject=about, **fields)


def expiry_of(world: World) -> EventExpiry:
    return EventExpiry(world.store, world.catalog, world.runtime, ttl_seconds=TTL)


async def run_for(world: World, expiry: EventExpiry, seconds: float) -> None:
    end = world.clock.monotonic() + seconds
    while world.clock.monotonic() < end:
        await world.clock.advance(await expiry.step())
    await expiry.step()


async def test_an_event_goes_when_it_was_not_written_for_so_long() -> None:
    """An event is removed by an ordinary delete after its TTL, and not before."""
    async with open_world() as world:
        expiry = expiry_of(world)
        await expiry.step()
        await event(world, "e")
        await run_for(world, expiry, TTL - 120)
        assert await world.has("Event", "default/e")
        await run_for(world, expiry, 300)
        assert not await world.has("Event", "default/e")


async def test_a_write_gives_an_event_new_time() -> None:
    """The TTL counts from the last write, as in Kubernetes."""
    async with open_world() as world:
        expiry = expiry_of(world)
        await event(world, "e")
        await run_for(world, expiry, TTL - 600)
        await world.edit("Event", "default/e", lambda obj: obj.update(count=2))
        await run_for(world, expiry, TTL - 600)
        assert await world.has("Event", "default/e")
        await run_for(world, expiry, 900)
        assert not await world.has("Event", "default/e")


async def test_client_timestamps_do_not_change_the_expiry_of_observed_events() -> None:
    """Timestamps in the far past or future do not change the expiry of an observed event."""
    async with open_world() as world:
        expiry = expiry_of(world)
        await expiry.step()
        await event(world, "past", lastTimestamp="1999-01-01T00:00:00Z")
        await event(world, "future", lastTimestamp="2999-01-01T00:00:00Z")
        await run_for(world, expiry, 600)
        assert await world.has("Event", "default/past")
        await run_for(world, expiry, TTL)
        assert not await world.has("Event", "default/future")


async def test_after_a_change_of_servers_the_events_own_times_count() -> None:
    """A new leader removes events with expired timestamps, and keeps those with a recent one."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with open_world(storage, clock) as world:
        created = world.clock.wall()
        recent = timestamp(created + timedelta(seconds=TTL))
        await event(world, "old")
        await event(world, "future", lastTimestamp="2999-01-01T00:00:00Z")
        await event(world, "seen", lastTimestamp=recent)
        await event(world, "series", series={"count": 3, "lastObservedTime": recent})
        await event(world, "odd", lastTimestamp="2024-01-01", eventTime=None)
        await clock.advance(TTL + 60)
        await event(world, "new")
        expiry = expiry_of(world)
        await expiry.step()
        page = (await world.store.read(world.kind("Event"))).select()
        assert page.keys == ["default/new", "default/seen", "default/series"]
        await run_for(world, expiry, TTL + 120)
        assert not (await world.store.read(world.kind("Event"))).select().keys


async def test_a_slow_clock_removes_no_event_early() -> None:
    """An event that a server with a fast clock created in our future is recent."""
    clock, storage = SimulatedClock(), MemoryStorage()
    async with open_world(storage, clock.skewed(30)) as ahead:
        await event(ahead, "e")
    async with open_world(storage, clock) as world:
        await expiry_of(world).step()
        assert await world.has("Event", "default/e")


async def test_a_step_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events above the limit of a step are left to the next one, which comes soon."""
    monkeypatch.setattr(events_expiry, "REMOVED_MAX", 5)
    monkeypatch.setattr(events_expiry, "_SLICE", 2)
    async with open_world() as world:
        for number in range(12):
            await event(world, f"e{number:02}")
        await world.clock.advance(TTL + 1)
        expiry = expiry_of(world)
        assert await expiry.step() == events_expiry.BACKLOG_SECONDS
        assert len(await world.store.read(world.kind("Event"))) == 7
        await expiry.step()
        assert await expiry.step() > events_expiry.BACKLOG_SECONDS
        assert len(await world.store.read(world.kind("Event"))) == 0


async def test_an_event_that_is_written_in_the_last_moment_stays() -> None:
    """The delete has the resource version of the expired event as a precondition."""
    storage = InterruptedStorage()
    async with open_world(storage) as world:
        await event(world, "e")
        await world.clock.advance(TTL + 1)

        async def write() -> None:
            await world.edit("Event", "default/e", lambda obj: obj.update(count=2))

        storage.interruptions[world.kind("Event").key_of("default/e")] = write
        await expiry_of(world).step()
        assert not storage.interruptions, "the delete was attempted"
        assert await world.has("Event", "default/e")
