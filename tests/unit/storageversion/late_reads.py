"""Shared helpers for tests of custom resources: queries, and faults that delay a server. No
tests."""

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
"""The time within which all servers follow a CRD if there is no fault."""
STEPS = 300
"""Iterations of the event loop within which a CRD is followed if nothing is slow."""
OLDER_WRITES_SECONDS = 35.0
"""The time after which a server without a fence has also reported what it writes."""


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
    """Returns the version in which a server writes gadgets, or None."""
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
    """Returns the revisions of the last writes of entry, encoder key and state."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    items = [
        await world.storage.get(report_key(GADGETS)),
        await world.storage.get(state_key(GADGETS)),
    ]
    return [item.revision for item in (*found, *items) if item is not None]


def is_stored(world: World, key: Key) -> bool:
    """Returns whether a key was ever written."""
    return any(event.key == key for entry in world.storage._log for event in entry.events)


def check_understanding(world: World) -> None:
    """Checks that no entry ever encoded a version that another entry could not decode."""
    for logged in world.storage._log:
        for event in logged.events:
            if event.key != report_key(GADGETS) or event.value is None:
                continue
            item = Item(event.key, event.value, event.revision, event.created)
            found = decode_report(item).report.entries
            for entry in found:
                for other in found:
                    assert entry.encoding_version in other.decodable_versions, found


def states_by_server(servers: list[Server], uid: str) -> dict[str, list[bool]]:
    """Returns what each server knows about the state of all servers."""
    registrations = [server.coordinator.custom_registration for server in servers]
    return {
        "served": [each.served_by_all(GROUP, PLURAL, uid) for each in registrations],
        "closed": [each.closed_by_all(GROUP, PLURAL, uid) for each in registrations],
    }


async def end(world: World, gadgets: Gadgets) -> None:
    """Deletes the CRD, without instances, as its finalizer would permit."""
    await gadgets.delete()
    await world.clock.advance(SOON_SECONDS)
    await gadgets.remove()
    await world.clock.advance(SOON_SECONDS)


async def lose_identity(world: World, server: Server) -> None:
    """Removes a server's membership record; returns after it has noticed and joined again."""
    lost = server.id
    await world.storage.commit(Transaction((), (Delete(server_key(ServerId(lost))),)))
    is_loose = server.coordinator.membership.options.mode == "loose"
    await world.clock.advance(LEASE_SECONDS + (OLDER_WRITES_SECONDS if is_loose else 0))
    assert server.id != lost


class WrappedStorage(Line):
    """A server's connection to the store with a wrapper in between."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.line._storage)
        server.line._storage = self


class DelayedCommits(WrappedStorage):
    """Delays a server's commits under a prefix until `go` is called."""

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


class FailingCommits(WrappedStorage):
    """Fails a server's commits of one key until `is_over` is set."""

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
    """Returns the values of the encoder keys of gadgets."""
    found = (await world.storage.range(Span.of_prefix(ENCODERS_PREFIX))).items
    return [orjson.loads(item.value) for item in found if item.key.endswith(f"/{GADGETS}")]
