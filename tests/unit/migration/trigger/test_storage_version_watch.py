"""The watch of StorageVersions: the states that a reading covers, and readings that are too
early."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from restow.apimachinery.names import GroupResource
from restow.apis.names import EPOCH_ANNOTATION
from restow.migration.trigger import storage_version_watch as module
from restow.migration.trigger.observations import UnreadableObject
from restow.migration.trigger.storage_version_watch import Behind, StorageVersionWatch
from restow.migration.trigger.values import StorageVersionReading
from tests.unit.migration.trigger.fake_kubernetes import (
    STORAGE_VERSION,
    WIDGETS,
    Kubernetes,
    hash_of,
)

NAME = WIDGETS.group_resource


class Watching:
    """A watch on a server, and the resources that it has triggered."""

    def __init__(self) -> None:
        self.world = Kubernetes(storage_versions=True)
        self.world.server("s1", "v1")
        self.woken: list[GroupResource] = []
        self.following = StorageVersionWatch(self.world.client("s1"), on_change=self.woken.append)

    async def read(self) -> StorageVersionReading:
        return await self.world.clock.run_until_done(self.following.read(NAME, "Widget"))

    async def settle(self, seconds: float = 0.0) -> None:
        await self.world.clock.advance(seconds)


@asynccontextmanager
async def watching(*versions: str) -> AsyncIterator[Watching]:
    found = Watching()
    if versions:
        found.world.report(*versions)
    task = asyncio.create_task(found.following.run(), name="following")
    try:
        await found.settle()
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def hashes(*versions: str) -> frozenset[str]:
    return frozenset(map(hash_of, versions))


async def test_the_first_reading_has_no_history() -> None:
    """It has the current state, without a claim about earlier ones."""
    async with watching("v1", "v1") as at:
        reading = await at.read()
        assert (reading.common, reading.written) == (hash_of("v1"), hashes("v1"))
        assert not reading.follows
        assert at.woken == [NAME]
        assert at.following.has(NAME)
        assert not at.following.has(GroupResource("", "pods"))


async def test_a_reading_covers_every_intermediate_state() -> None:
    """Includes states that were replaced, each only once."""
    async with watching("v1") as at:
        await at.read()
        for version in ("v3", "v2"):
            at.world.report(version)
        reading = await at.read()
        assert reading.follows
        assert reading.written == hashes("v3", "v2")
        again = await at.read()
        assert (again.follows, again.written) == (True, hashes("v2"))


async def test_a_stream_that_breaks_and_resumes_misses_nothing() -> None:
    """It resumes at the last resource version."""
    async with watching("v1") as at:
        await at.read()
        at.world.cut()
        at.world.report("v3")
        at.world.report("v1")
        await at.settle(5)
        reading = await at.read()
        assert reading.follows
        assert reading.written == hashes("v3", "v1")


async def test_an_expired_resource_version_is_a_gap_once() -> None:
    """Changes before the new list are missed; later readings are complete again."""
    async with watching("v1") as at:
        await at.read()
        at.world.report("v3")
        at.world.report("v1")
        at.world.compact()
        at.world.cut()
        await at.settle(120)
        reading = await at.read()
        assert not reading.follows
        at.world.report("v2")
        reading = await at.read()
        assert (reading.follows, reading.written) == (True, hashes("v2"))


async def test_a_deletion_and_a_recreation_are_covered() -> None:
    """The versions of the deleted object were written too."""
    async with watching("v1") as at:
        await at.read()
        at.world.report("v3")
        at.world.remove(STORAGE_VERSION)
        gone = await at.read()
        assert (gone.uid, gone.follows, gone.written) == ("", True, hashes("v3"))
        assert at.following.has(NAME)
        at.world.report("v2")
        back = await at.read()
        assert (back.follows, back.written) == (True, hashes("v2"))


async def test_a_reading_ahead_of_the_watch_is_repeated() -> None:
    """A reading that the watch has not reached is rejected: it must be repeated."""
    async with watching("v1") as at:
        await at.read()
        world = at.world
        at.following._apply = lambda event: None  # type: ignore[method-assign]  # noqa: ARG005
        world.report("v2")
        with pytest.raises(Behind, match=r"example.org.widgets"):
            await at.read()


async def test_with_an_epoch_the_watch_is_not_used() -> None:
    """A late event must not add versions that were narrowed away since."""
    async with watching("v1") as at:
        at.world.report("v2")
        value = copy.deepcopy(at.world.objects[STORAGE_VERSION])
        value["metadata"]["annotations"] = {EPOCH_ANNOTATION: "9"}
        at.world.put(STORAGE_VERSION, value)
        reading = await at.read()
        assert (reading.epoch, reading.written) == ("9", hashes("v2"))
        await at.settle()
        assert at.following.keeps_epochs


async def test_too_many_states_count_as_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The history is bounded, and beyond the bound the reading is incomplete."""
    monkeypatch.setattr(module, "PASSED_MAX", 3)
    async with watching("v1") as at:
        await at.read()
        for _ in range(5):
            at.world.report("v1")
            await at.settle()
        assert not (await at.read()).follows
        assert (await at.read()).follows


async def test_a_malformed_object_fails_its_reading() -> None:
    """The watch continues; the reading names the error; then there is a gap."""
    async with watching("v1") as at:
        await at.read()
        at.world.put(STORAGE_VERSION, {"metadata": {"uid": "u"}, "status": "good"})
        with pytest.raises(UnreadableObject):
            await at.read()
        at.world.report("v1")
        assert not (await at.read()).follows
