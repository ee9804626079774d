"""Reconciles the main servers' entries of this store's servers with the store.

    expired   an entry whose server has neither its membership key nor an encoder key in the
              store is removed: neither is created again. They are read in that order, since a
              server with a membership key may write the encoder key
    own       an entry for a resource that this server has closed is removed, up to the
              revision at which its encoder key was absent; a resource that it writes without an
              entry is registered again, which closes it first

Each server reconciles its own entries; the server that collects first reconciles those of expired
servers, and the others do so at an interval. Work that fails because the main servers are
unreachable is repeated: until then they list too many versions, never too few. Not here: how an
entry is reported.
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

RECONCILE_SECONDS: Final = 30.0
"""Interval between passes, whatever the watches deliver."""
PAUSE_SECONDS: Final = 0.05
"""Pause after a change, so that one pass handles all changes of one transaction."""

logger = logging.getLogger(__name__)

Reported = Mapping[str, tuple[StorageVersionEntry, ...]]


class RemoteReconciler:
    """Keeps the main servers' entries of this store's servers correct."""

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
        """`on_lost` is called when a resource has to be registered again, and is closed."""
        self._storage = storage
        self._membership = membership
        self._catalog = catalog
        self._runtime = runtime
        self._remote = remote
        self._registrar = registrar
        self._table = table
        self._collects_first = collects_first
        self._reconciled_at = -RECONCILE_SECONDS
        self._changed = asyncio.Event()
        self._on_lost = on_lost
        self.entries_removed = 0
        mirror.changed.subscribe(self._note)

    def _note(self, key: Key, item: Item | None) -> None:
        """Start a pass when a deleted key may make an entry garbage."""
        if item is None and key.startswith((SERVERS_PREFIX, ENCODERS_PREFIX)):
            self._changed.set()

    async def run(self) -> None:
        """Reconcile until cancelled: at the start, after each deletion of a key, and at an
        interval."""
        await repeat("the reports to the main servers", self._step, self._runtime)

    async def _step(self) -> float:
        clock = self._runtime.clock
        self._changed.clear()
        try:
            await self.reconcile()
        except CoordinationError as error:
            logger.warning("cannot compare the entries on the main servers: %s", error)
        try:
            async with clock.timeout(RECONCILE_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return 0.0
        return PAUSE_SECONDS

    async def reconcile(self) -> None:
        """Reconcile all entries once. Raises `NotReported` or a StorageError."""
        reported = await self._remote.main.entries()
        now = self._runtime.clock.monotonic()
        if self._collects_first() or now - self._reconciled_at >= RECONCILE_SECONDS:
            self._reconciled_at = now
            await self._remove_expired(reported)
        await self._check_own(reported)

    async def remove_expired(self) -> None:
        """Remove the entries of expired servers. Raises the same errors as `reconcile`."""
        await self._remove_expired(await self._remote.main.entries())

    async def _remove_expired(self, reported: Reported) -> None:
        found = [(name, entry) for name, entry in _entries(reported) if self._is_here(entry)]
        if not found:
            return
        page = await self._storage.range(Span.of_prefix(SERVERS_PREFIX))
        members = {server_of(item.key) for item in page.items}

        async def remove(found: tuple[str, StorageVersionEntry]) -> None:
            name, entry = found
            # While the encoder key exists, writes may match it; the collector deletes it soon.
            if await self._storage.get(encoder_key(entry.server_id, name)) is None:
                await self._withdraw(name, entry, FOR_GOOD)

        await for_each([each for each in found if each[1].server_id not in members], remove)

    async def _check_own(self, reported: Reported) -> None:
        """Compare the reported entries of this server with the resources that it writes."""
        own = self._membership.id
        hosted = {
            name_of(resource.kind.group_resource): resource
            for resource in self._catalog.persisted()
            if self._remote.is_reported(resource)
        }
        for name, resource in hosted.items():
            if not self._is_reported(resource, reported.get(name, ())):
                await self._register_again(name, resource)
            elif self._is_left_closed(resource):
                self._on_lost()
        for name, entry in _entries(reported):
            if entry.server_id == own and self._is_here(entry):
                await self._withdraw_closed(name, hosted.get(name))

    async def _register_again(self, name: str, resource: Resource) -> None:
        """Close a resource whose entry the main servers lack, unless they have it by now."""
        async with self._registrar.lock(resource):
            if self._is_reported(resource, await self._remote.main.entries_of(name)):
                return
            if self._table.find(resource) is not None:
                logger.error("the main servers have no current entry for %s: closed it", name)
                self._table.close(resource, error="the main servers have lost this server's entry")
        self._on_lost()

    async def _withdraw_closed(self, name: str, resource: Resource | None) -> None:
        """Withdraw this server's entry for a resource that it no longer writes."""
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
        logger.info("removed the entry of %s for %s from the main servers", entry.server_id, name)

    def _is_reported(self, resource: Resource, entries: Iterable[StorageVersionEntry]) -> bool:
        """Return whether an entry matches how this server writes; a closed resource needs none."""
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
        """Return whether a built-in resource is closed; `CustomResources` opens custom ones."""
        is_closed = resource.origin is None and self._table.find(resource) is None
        return is_closed and not self._registrar.lock(resource).locked()

    def _is_here(self, entry: StorageVersionEntry) -> bool:
        return entry.store == self._remote.store


def _entries(reported: Reported) -> Iterable[tuple[str, StorageVersionEntry]]:
    return [(name, entry) for name, entries in reported.items() for entry in entries]
