"""Servers with the feature gate off write without reporting: effects on servers that report.

They may run alone, be killed, start and stop: the StorageState never lists fewer versions than are
stored, and there is no agreement while one of them writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import orjson
import pytest

from restow.apimachinery.names import GroupVersionKind
from restow.apimachinery.version_hash import storage_version_hash
from restow.storage.interface import Delete, Put, Refused, RevisionIs, Span, Transaction
from restow.storage.memory import MemoryStorage
from restow.storageversion.identity import Mode, ServerId, server_key
from restow.storageversion.object_codec import report_key, state_key
from restow.storageversion.records import (
    ENCODERS_PREFIX,
    UNREPORTED_KEY,
    encoder_key,
    epoch_key,
)
from restow.storageversion.rules import UNKNOWN_HASH
from tests.unit.storageversion.world import GROUP, Server, World, open_world

V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
NAME = f"{GROUP}.widgets"
End = Literal["stop", "kill"]
ENDS: tuple[End, ...] = ("stop", "kill")


async def narrow(world: World, version: str) -> None:
    """Makes the StorageState list one version only, as a verified migration does."""
    item = await world.storage.get(state_key(NAME))
    assert item is not None
    state = orjson.loads(item.value)
    state["status"]["persistedStorageVersionHashes"] = [
        storage_version_hash(GroupVersionKind.of(version, "Widget"))
    ]
    await world.storage.commit(
        Transaction((RevisionIs(item.key, item.revision),), (Put(item.key, orjson.dumps(state)),))
    )
    await world.clock.advance(1)


async def end(world: World, server: Server, how: End) -> None:
    if how == "stop":
        await world.run(server.stop())
    else:
        await server.kill()


async def run_off(world: World, how: End, release: str = "x+2", name: str = "b") -> None:
    """Runs a server with the gate off that writes one object and ends."""
    off = await world.started(release, mode="off", may_change_mode=True)
    await world.run(off.write(name))
    await end(world, off, how)


@pytest.mark.parametrize("mode", ["report", "strict", "loose"])
@pytest.mark.parametrize("off_ends", ENDS)
@pytest.mark.parametrize("first_ends", ENDS)
async def test_a_server_that_reports_again_finds_unknown(
    tmp_path: Path, first_ends: End, off_ends: End, mode: Mode
) -> None:
    """Gate on, off and on again, with one server at a time: a release that cannot decode the
    objects
    written meanwhile does not become ready."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        first = await world.started("x+1", mode=mode)
        await world.run(first.write("a"))
        await narrow(world, V1)
        await end(world, first, first_ends)
        await run_off(world, off_ends)
        assert await world.stored("b") == "v2"
        last = world.server("x", mode=mode, may_change_mode=True)
        with pytest.raises(TimeoutError):
            await world.run(last.start(), seconds_max=40)
        assert UNKNOWN_HASH in (await world.state()).persisted
        assert not last.coordinator.completed


@pytest.mark.parametrize("first_ends", ENDS)
async def test_there_is_no_agreement_while_it_writes(tmp_path: Path, first_ends: End) -> None:
    """Before its first write no StorageVersion has a common version, whatever entries earlier
    servers have
    left; after their lease has expired, their entries are removed too."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        first = await world.started("x+1")
        await world.run(first.write("a"))
        await narrow(world, V1)
        before = (await world.epoch()).epoch
        await end(world, first, first_ends)
        off = await world.started("x+2", mode="off", may_change_mode=True)
        assert UNKNOWN_HASH in (await world.state()).persisted
        assert await world.common() is None
        assert (await world.epoch()).version is None
        assert (await world.epoch()).epoch > before
        await world.run(off.write("b"))
        await world.clock.advance(20)
        assert await world.storage.get(report_key(NAME)) is None
        encoders = await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))
        assert not encoders.items


async def test_a_state_narrowed_while_it_ran_is_unknown_again(tmp_path: Path) -> None:
    """A controller by discovery observes one server only. A narrowing while a server writes without
    reporting does not persist beyond that time."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        await end(world, await world.started("x+1"), "stop")
        off = await world.started("x+2", mode="off")
        other = await world.started("x+1", mode="off")
        await world.run(off.write("b"))
        await narrow(world, V2)
        assert (await world.state()).persisted == (
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )
        await world.clock.advance(60)  # the server marks the state only once
        assert (await world.state()).persisted == (
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )
        await end(world, off, "kill")
        await end(world, other, "stop")
        await world.started("x+2", may_change_mode=True)
        await world.clock.advance(20)
        assert (await world.state()).persisted == (
            UNKNOWN_HASH,
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )


async def test_a_state_narrowed_while_it_ran_is_scanned(tmp_path: Path) -> None:
    """A release that decodes the narrowed version, but not all stored objects, does not
    register."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        await end(world, await world.started("x+1"), "stop")
        await run_off(world, "stop", "x+2", "b")
        await run_off(world, "kill", "x+1", "c")
        item = await world.storage.get(state_key(NAME))
        assert item is not None
        state = orjson.loads(item.value)
        state["status"]["persistedStorageVersionHashes"] = [
            storage_version_hash(GroupVersionKind.of(V1, "Widget"))
        ]
        # Without the audit: a controller by discovery would conclude this.
        claim = Transaction((), (Put(item.key, orjson.dumps(state)),))
        await MemoryStorage.commit(world.storage, claim)
        with pytest.raises(TimeoutError):
            await world.run(world.server("x", may_change_mode=True).start(), seconds_max=40)


async def test_several_unreporting_servers(tmp_path: Path) -> None:
    """The mark of the last one covers all earlier ones."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        await end(world, await world.started("x+1"), "stop")
        for number, how in enumerate(("stop", "kill", "kill", "stop")):
            await run_off(world, "stop" if how == "stop" else "kill", name=f"b{number}")
        reporting = await world.started("x+2", may_change_mode=True)
        await world.clock.advance(20)
        assert UNKNOWN_HASH in (await world.state()).persisted
        await narrow(world, V2)
        await world.clock.advance(60)
        assert (await world.state()).persisted == (
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )
        await end(world, reporting, "stop")
        await world.started("x+2")
        assert (await world.state()).persisted == (
            storage_version_hash(GroupVersionKind.of(V2, "Widget")),
        )


async def test_its_mark_is_written_with_its_membership_record(tmp_path: Path) -> None:
    """In one transaction: it may never write without a mark."""
    async with open_world(tmp_path) as world:
        off = await world.started("x+2", mode="off")
        mark = await world.storage.get(UNREPORTED_KEY)
        member = await world.storage.get(server_key(ServerId(off.id)))
        assert mark is not None
        assert member is not None
        assert (mark.value.decode(), mark.revision) == (off.id, member.created)


async def test_a_state_that_is_unknown_already_is_written_nevertheless(tmp_path: Path) -> None:
    """So a controller that read it before cannot narrow it afterwards."""
    async with open_world(tmp_path) as world:
        await end(world, await world.started("x+1"), "stop")
        seen = await world.storage.get(state_key(NAME))
        assert seen is not None
        assert UNKNOWN_HASH in (await world.state()).persisted
        await world.started("x+2", mode="off")
        late = Transaction((RevisionIs(seen.key, seen.revision),), (Put(seen.key, seen.value),))
        assert isinstance(await MemoryStorage.commit(world.storage, late), Refused)


async def test_an_agreement_without_a_storage_version_is_revoked(tmp_path: Path) -> None:
    """An administrator may delete a stale StorageVersion: the epoch changes nevertheless."""
    async with open_world(tmp_path) as world:
        world.storage.is_fenced = False
        first = await world.started("x+1")
        before = (await world.epoch()).epoch
        await first.kill()
        encoder = encoder_key(ServerId(first.id), NAME)
        deleted = (Delete(report_key(NAME)), Delete(encoder))
        await MemoryStorage.commit(world.storage, Transaction((), deleted))
        assert (await world.storage.get(epoch_key(NAME))) is not None
        await world.started("x+2", mode="off", may_change_mode=True)
        assert (await world.epoch()).version is None
        assert (await world.epoch()).epoch > before
