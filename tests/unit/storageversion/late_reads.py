"""What tests of custom resources look at, and how they hold a server up. No tests here."""

from __future__ import annotations

import asyncio

import orjson

from restow.registry.resource import Resource
from restow.storage.errors import Unavailable
from restow.storage.interface import (
    Delete,
    Item,
    Key,
    Outcome,
    Revision,
    Span,
    Transaction,
)
from restow.storageversion.identity import ServerId, server_key
from restow.storageversion.object_codec import decode_report, report_key, state_key
from restow.storageversion.records import ENCODERS_PREFIX
from restow.storageversion.rules import StorageVersionEntry
from tests.scenarios.crds import (
    GADGETS,
    GADGETS_ROOT,
    KIND,
    PLURAL,
    Gadgets,
)
from tests.unit.storageversion.world import GROUP, Line, Server, World

MODES = ["report", "strict", "loose"]
LEASE_SECONDS = 15.0
SOON_SECONDS = 2.0
"""Within so long a definition is followed everywhere, when nothing is wrong."""
STEPS = 300
"""Of the loop, within which a definition is followed when nothing is slow."""
OLDER_WRITES_SECONDS = 35.0
"""After so long also a server without a fence has said what it writes."""


async def one(world: World, mode: str = "report") -> Server:
    world.storage.is_fenced = mode not in ("loose", "off")
    server = await world.started("x+1", mode=mode, custom=True)
    assert isinstance(server, Server)
    return server


async def two(world: World, mode: str = "report") -> list[Server]:
    return [await one(world, mode) for _ in range(2)]


def hosted(server: Server) -> Resource | None:
    return server.catalog.named(GROUP, PLURAL)


def gadget(server: Server) -> Resource:
    found = hosted(server)
    assert found is not None, f"{server.name} does not host it"
    return found


def written(server: Server) -> str | None:
    """The version in which a server writes gadgets; None: it does not."""
    found = server.coordinator.table.find(gadget(server))
    return None if found is None else found.api_version.rpartition("/")[2]


async def entries(world: World) -> tuple[StorageVersionEntry, ...]:
    report = await world.report(KIND)
    return () if report is None else report.entries


async def versions(world: World) -> list[str]:
    return [entry.encoding_version.rpartition("/")[2] for entry in await entries(world)]


async def own_entry(world: World, server: Server) -> StorageVersionEntry:
    (found,) = [entry for entry in await entries(world) if entry.server_id == server.id]
    return found


async def revisions(world: World) -> list[Revision]:
    """When entry, encoder key and state were written last."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    items = [
        await world.storage.get(report_key(GADGETS)),
        await world.storage.get(state_key(GADGETS)),
    ]
    return [item.revision for item in (*found, *items) if item is not None]


def is_stored(world: World, key: Key) -> bool:
    """Whether a key was ever written."""
    return any(event.key == key for entry in world.storage._log for event in entry.events)


def check_understanding(world: World) -> None:
    """No entry has ever encoded what another entry could not decode."""
    for logged in world.storage._log:
        for event in logged.events:
            if event.key != report_key(GADGETS) or event.value is None:
                continue
            item = Item(event.key, event.value, event.revision, event.created)
            found = decode_report(item).report.entries
            for entry in found:
                for other in found:
                    assert entry.encoding_version in other.decodable_versions, found


def answers(servers: list[Server], uid: str) -> dict[str, list[bool]]:
    """What each server says of all."""
    asked = [server.coordinator.custom_registration for server in servers]
    return {
        "served": [each.served_by_all(GROUP, PLURAL, uid) for each in asked],
        "closed": [each.closed_by_all(GROUP, PLURAL, uid) for each in asked],
    }


async def end(world: World, gadgets: Gadgets) -> None:
    """Delete the definition, whose instances are gone, as its finalizer would let it go."""
    await gadgets.delete()
    await world.clock.advance(SOON_SECONDS)
    await gadgets.remove()
    await world.clock.advance(SOON_SECONDS)


async def lose_identity(world: World, server: Server) -> None:
    """Have somebody take a server for dead; returns when it has noticed and joined anew."""
    lost = server.id
    await world.storage.commit(Transaction((), (Delete(server_key(ServerId(lost))),)))
    is_loose = server.coordinator.membership.options.mode == "loose"
    await world.clock.advance(LEASE_SECONDS + (OLDER_WRITES_SECONDS if is_loose else 0))
    assert server.id != lost


class Wrapped(Line):
    """The way of a server to the store, with something in between."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.line._storage)
        server.line._storage = self


class Late(Wrapped):
    """Holds the commits of a server that write under a prefix, until they are let go."""

    def __init__(self, server: Server, *, to: str = GADGETS_ROOT) -> None:
        super().__init__(server)
        self._to = to
        self._going = asyncio.Event()
        self.held = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        if not self._going.is_set() and _writes(transaction, self._to):
            self.held += 1
            await self._going.wait()
        return await self._storage.commit(transaction)

    def go(self) -> None:
        self._going.set()


class Failing(Wrapped):
    """Fails the commits of a server that write one key, until it is over."""

    def __init__(self, server: Server, key: str) -> None:
        super().__init__(server)
        self._key = key
        self.is_over = False
        self.failed = 0

    async def commit(self, transaction: Transaction) -> Outcome:
        if not self.is_over and _writes(transaction, self._key):
            self.failed += 1
            raise Unavailable("no answer")
        return await self._storage.commit(transaction)


def _writes(transaction: Transaction, prefix: str) -> bool:
    return any(write.key.startswith(prefix) for write in transaction.writes)


async def encoders(world: World) -> list[dict[str, object]]:
    """What the encoder keys of gadgets say."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    return [orjson.loads(item.value) for item in found if item.key.endswith(f"/{GADGETS}")]
