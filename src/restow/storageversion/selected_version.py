"""Following the vote: when another version is selected, this server writes that one from then on.

Strictly, the fence keeps a server that has not heard of it yet from writing; hearing of it by the
watch only spares a failed try. Loosely, the watch is all there is: a server that cannot prove that
it is up to date stops writing, and it changes its own report only when its older writes have ended.
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
    """Switches the encodings of one server to what is selected."""

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
        """By root: what is to be reported again when earlier writes have ended."""
        mirror.listeners.append(self.note)

    def note(self, key: Key, item: Item | None) -> None:
        """The selected version of a resource has changed, or was removed."""
        if not key.startswith(SELECTED_PREFIX):
            return
        named = resource_of_name(key.removeprefix(SELECTED_PREFIX))
        resource = self._catalog.named(named.group, named.resource)
        if resource is None:
            return
        if item is not None:
            self._switch(resource, item.value.decode(errors="replace"))
        if self._table.find(resource) is None:
            self._table.notify_switch()

    def selected(self, resource: Resource) -> str | None:
        """What is selected for a resource, as far as this server has heard."""
        item = self._mirror.get(selected_key(name_of(resource.kind.group_resource)))
        return None if item is None else item.value.decode(errors="replace")

    def catch_up(self, resource: Resource, revision: Revision) -> None:
        """A resource was opened as was right at a revision: what was selected since counts."""
        item = self._mirror.get(selected_key(name_of(resource.kind.group_resource)))
        if item is not None and item.revision > revision:
            self._switch(resource, item.value.decode(errors="replace"))
        self._report_when_settled(resource)

    async def look_again(self, resource: Resource) -> bool:
        """After a failed fence: switch to what is selected; False: that is not the reason."""
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
            return  # It is not open yet, and will be opened with what is selected then.
        try:
            new = self._planner.encoding_of(resource, selected, encoding.key_id)
        except VersionUnsupported as error:
            self._table.close(resource, error=str(error))
            logger.error("%s", error)  # noqa: TRY400 - the text says it all
            return
        logger.info("%s is written in %s from now on", resource.kind.group_resource, selected)
        self._table.open(resource, new)
        self._report_when_settled(resource)

    def _report_when_settled(self, resource: Resource) -> None:
        """Without a fence: report again when no write in another version is on its way."""
        root = resource.root
        if self._table.settles_in_seconds(resource) <= 0 or self._reporting.get(root) is resource:
            return
        self._reporting[root] = resource
        name = f"report {resource.kind.group_resource} {self._runtime.ids.nonce(4)}"
        self._tasks.spawn(name, self._report_later(resource))

    async def _report_later(self, resource: Resource) -> None:
        """Register one version as written, once no write in another one is in flight."""
        name = resource.kind.group_resource

        async def report() -> None:
            while self._table.find(resource) is not None:
                if resource.origin is not None and resource.origin.is_replaced:
                    return  # the resource in its place is registered by `custom_resources`
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
                on_retry=lambda error, _: logger.warning("the report of %s waits: %s", name, error),
            )
        finally:
            if self._reporting.get(resource.root) is resource:
                del self._reporting[resource.root]
