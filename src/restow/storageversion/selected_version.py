"""Follows the vote: when another version is selected, this server switches to it.

In strict mode, the fence rejects writes in the previous version; following the watch only saves a
failed attempt. In loose mode there is no fence: a server that cannot confirm that it is up to date
stops writing, and it changes its own entry only when no earlier write can commit any more.
"""

from __future__ import annotations

import logging
from typing import Final

from restow.aio import Backoff, Runtime, Tasks, retry
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.storage.errors import StorageError
from restow.storage.interface import Item, Key, Revision, Storage
from restow.storageversion.encoding_table import EncodingTable
from restow.storageversion.errors import CoordinationError, VersionUnsupported
from restow.storageversion.mirror import Mirror
from restow.storageversion.records import SELECTED_PREFIX, name_of, resource_of_name, selected_key
from restow.storageversion.registrar import Registrar
from restow.storageversion.registration_planner import VotePlanner

REPORT_BACKOFF: Final = Backoff(initial_seconds=1, factor=1, max_seconds=1, jitter=0)

logger = logging.getLogger(__name__)


class SelectionFollower:
    """Switches the encodings of one server to the selected versions."""

    def __init__(
        self,
        storage: Storage,
        mirror: Mirror,
        catalog: Catalog,
        *,
        planner: VotePlanner,
        registrar: Registrar,
        table: EncodingTable,
        runtime: Runtime,
        tasks: Tasks,
    ) -> None:
        self._storage = storage
        self._mirror = mirror
        self._planner = planner
        self._registrar = registrar
        self._table = table
        self._runtime = runtime
        self._tasks = tasks
        self._catalog = catalog
        self._reporting: dict[str, Resource] = {}
        """By root: resources whose entry changes when earlier writes have ended."""
        mirror.changed.subscribe(self.note)

    def note(self, key: Key, item: Item | None) -> None:
        """Switch when the selected version of a resource has changed or was removed."""
        if not key.startswith(SELECTED_PREFIX):
            return
        named = resource_of_name(key.removeprefix(SELECTED_PREFIX))
        resource = self._catalog.named(named.group, named.resource)
        if resource is None:
            return
        if item is not None:
            # KEP-1201 0.21: a watch delivers the selected version
            self._switch(resource, item.value.decode(errors="replace"))
        if self._table.find(resource) is None:
            self._table.notify_switch()

    def selected(self, resource: Resource) -> str | None:
        """Return the selected version of a resource in the mirror."""
        item = self._mirror.get(selected_key(name_of(resource.kind.group_resource)))
        return None if item is None else item.value.decode(errors="replace")

    def catch_up(self, resource: Resource, revision: Revision) -> None:
        """Switch if another version was selected after the revision of a resource's
        registration."""
        item = self._mirror.get(selected_key(name_of(resource.kind.group_resource)))
        if item is not None and item.revision > revision:
            self._switch(resource, item.value.decode(errors="replace"))
        self._report_when_settled(resource)

    async def refresh(self, resource: Resource) -> bool:
        """Switch to the selected version after a failed fence; False: that does not repair it."""
        # KEP-1201 0.20: read the selected version from the store
        item = await self._storage.get(selected_key(name_of(resource.kind.group_resource)))
        encoding = self._table.find(resource)
        if item is None or encoding is None or resource.kind.pinned:
            return False
        self._switch(resource, item.value.decode(errors="replace"))
        switched = self._table.find(resource)
        return switched is not None and await self._registrar.still_holds(switched)

    def _switch(self, resource: Resource, selected: str) -> None:
        encoding = self._table.find(resource)
        if encoding is None or encoding.api_version == selected:
            return  # A closed resource is opened with the version that is selected then.
        try:
            new = self._planner.encoding_of(resource, selected, encoding.key_id)
        except VersionUnsupported as error:
            self._table.close(resource, error=str(error))
            logger.error("%s", error)  # noqa: TRY400 - the message suffices
            return
        logger.info("%s is now written in %s", resource.kind.group_resource, selected)
        self._table.open(resource, new)
        self._report_when_settled(resource)

    def _report_when_settled(self, resource: Resource) -> None:
        """Without a fence: register again when no write in another version is in flight."""
        root = resource.root
        if self._table.settles_in_seconds(resource) <= 0 or self._reporting.get(root) is resource:
            return
        self._reporting[root] = resource
        name = f"report {resource.kind.group_resource} {self._runtime.ids.nonce(4)}"
        self._tasks.spawn(name, self._report_later(resource))

    async def _report_later(self, resource: Resource) -> None:
        """Register with one written version, once no write in another one is in flight."""
        name = resource.kind.group_resource

        async def report() -> None:
            while self._table.find(resource) is not None:
                if resource.origin is not None and resource.origin.is_replaced:
                    return  # `custom_resources` registers the replacement.
                await self._runtime.clock.sleep(self._table.settles_in_seconds(resource))
                await self._registrar.register(resource)
                if self._table.settles_in_seconds(resource) <= 0:
                    return

        try:
            await retry(
                report,
                retry_on=(CoordinationError, StorageError),
                attempts_max=None,
                backoff=REPORT_BACKOFF,
                clock=self._runtime.clock,
                randomness=self._runtime.randomness,
                on_retry=lambda error, _: logger.warning("cannot register %s yet: %s", name, error),
            )
        finally:
            if self._reporting.get(resource.root) is resource:
                del self._reporting[resource.root]
