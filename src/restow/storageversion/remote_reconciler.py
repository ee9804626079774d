"""What the main servers say of the servers of a store, compared with that store again and again.

    the dead     an entry whose server has neither its key nor an encoder key in the store is taken
                 out: both are gone for good. In that order they are read, since a server that has
                 its key may make the other
    what is own  an entry for what this server has closed is taken out, up to the revision at which
                 its encoder key was not there; what it writes and they do not say is registered
                 anew, which closes it first

Each server looks after its own entries; those of the dead are the leader's work, and everybody's
now and then. Whatever is not done because the main servers cannot be reached is done later: until
then they say too much, never too little. Not here: how something is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from restow.aio import Runtime
from restow.registry.catalog import Catalog
from restow.registry.reconcile_loops import for_each, repeat
from restow.registry.resource import Resource
from restow.storage.interface import Item, Key, Span, Storage
from restow.storageversion.encoding_table import EncodingTable
from restow.storageversion.errors import CoordinationError
from restow.storageversion.identity import SERVERS_PREFIX, server_of
from restow.storageversion.membership import Membership
from restow.storageversion.mirror import Mirror
from restow.storageversion.records import ENCODERS_PREFIX, encoder_key, name_of
from restow.storageversion.remote_registration import FOR_GOOD, Remote, RemoteRegistrar
from restow.storageversion.rules import Agreement, StorageVersionEntry

LOOK_SECONDS: Final = 30.0
"""Between looks, whatever the watches have told."""
PAUSE_SECONDS: Final = 0.05
"""After a change, so that all that goes with it is seen together."""

logger = logging.getLogger(__name__)

Said = Mapping[str, tuple[StorageVersionEntry, ...]]


class RemoteReconciler:
    """Keeps the main servers' reports of this store's servers true."""

    def __init__(
        self,
        storage: Storage,
        mirror: Mirror,
        membership: Membership,
        catalog: Catalog,
        runtime: Runtime,
        *,
        remote: Remote,
        registrar: RemoteRegistrar,
        table: EncodingTable,
        collects_first: Callable[[], bool],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_lost` is called when something has to be registered anew, and is closed."""
        self._storage = storage
        self._membership = membership
        self._catalog = catalog
        self._runtime = runtime
        self._remote = remote
        self._registrar = registrar
        self._table = table
        self._leads = collects_first
        self._looked_at = -LOOK_SECONDS
        self._changed = asyncio.Event()
        self._on_lost = on_lost
        self.entries_removed = 0
        mirror.listeners.append(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        """A key that is gone may be the last that an entry stood on."""
        if item is None and key.startswith((SERVERS_PREFIX, ENCODERS_PREFIX)):
            self._changed.set()

    async def run(self) -> None:
        """Look for ever: at the start, after each key that goes, and now and then."""
        await repeat("the reports to the main servers", self._step, self._runtime)

    async def _step(self) -> float:
        clock = self._runtime.clock
        self._changed.clear()
        try:
            await self.look()
        except CoordinationError as error:
            logger.warning("what the main servers say is not compared: %s", error)
        try:
            async with clock.timeout(LOOK_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return 0.0
        return PAUSE_SECONDS

    async def look(self) -> None:
        """One look at everything. Raises `NotReported` or a StorageError."""
        said = await self._remote.main.entries()
        now = self._runtime.clock.monotonic()
        if self._leads() or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            await self._remove_expired(said)
        await self._check_own(said)

    async def remove_expired(self) -> None:
        """Take out the entries of servers that are gone. Raises as `look` does."""
        await self._remove_expired(await self._remote.main.entries())

    async def _remove_expired(self, said: Said) -> None:
        found = [(name, entry) for name, entry in _entries(said) if self._is_here(entry)]
        if not found:
            return
        page = await self._storage.range(Span.of_prefix(SERVERS_PREFIX))
        living = {server_of(item.key) for item in page.items}

        async def take_out(said: tuple[str, StorageVersionEntry]) -> None:
            name, entry = said
            # Its writes may still match the encoder key: the collector removes it soon.
            if await self._storage.get(encoder_key(entry.server_id, name)) is None:
                await self._withdraw(name, entry, FOR_GOOD)

        await for_each([each for each in found if each[1].server_id not in living], take_out)

    async def _check_own(self, said: Said) -> None:
        """What this server has said, against what it does."""
        own = self._membership.id
        hosted = {
            name_of(resource.kind.group_resource): resource
            for resource in self._catalog.persisted()
            if self._remote.is_reported(resource)
        }
        for name, resource in hosted.items():
            if not self._is_said(resource, said.get(name, ())):
                await self._register_again(name, resource)
            elif self._is_left_closed(resource):
                self._on_lost()
        for name, entry in _entries(said):
            if entry.server_id == own and self._is_here(entry):
                await self._take_back(name, hosted.get(name))

    async def _register_again(self, name: str, resource: Resource) -> None:
        """Close what the main servers do not say, unless they do by now."""
        async with self._registrar.lock(resource):
            if self._is_said(resource, await self._remote.main.entries_of(name)):
                return
            if self._table.find(resource) is not None:
                logger.error("the main servers do not say how %s is written: it is closed", name)
                self._table.close(resource, error="the main servers have lost what was reported")
        self._on_lost()

    async def _take_back(self, name: str, resource: Resource | None) -> None:
        """Take out what this server has said of something that it does not write any more."""
        if resource is not None and self._table.find(resource) is not None:
            return
        own = self._membership.id
        lock = asyncio.Lock() if resource is None else self._registrar.lock(resource)
        async with lock:
            page = await self._storage.range(Span.of_key(encoder_key(own, name)))
            if page.items:
                return
            for entry in await self._remote.main.entries_of(name):
                if entry.server_id == own and self._is_here(entry):
                    await self._withdraw(name, entry, page.revision)

    async def _withdraw(self, name: str, entry: StorageVersionEntry, sequence: int) -> None:
        await self._remote.main.withdraw(
            name, server_id=entry.server_id, store=entry.store, sequence=sequence
        )
        self.entries_removed += 1
        logger.info("what %s has said of %s is taken out", entry.server_id, name)

    def _is_said(self, resource: Resource, entries: Iterable[StorageVersionEntry]) -> bool:
        """Whether the main servers say what this one does; one that does nothing says enough."""
        encoding = self._table.find(resource)
        if encoding is None:
            return True
        own = self._membership.id
        return Agreement(encoding.api_version, encoding.key_id) in [
            Agreement(e.encoding_version, e.key_id)
            for e in entries
            if e.server_id == own and self._is_here(e)
        ]

    def _is_left_closed(self, resource: Resource) -> bool:
        """Custom resources are opened by those who follow definitions."""
        is_closed = resource.origin is None and self._table.find(resource) is None
        return is_closed and not self._registrar.lock(resource).locked()

    def _is_here(self, entry: StorageVersionEntry) -> bool:
        return entry.store == self._remote.store


def _entries(said: Said) -> Iterable[tuple[str, StorageVersionEntry]]:
    return [(name, entry) for name, entries in said.items() for entry in entries]
