"""Watches one migration while it runs: whether it still exists, and whether it is paused.

A migration that is deleted, or recreated under the same name, aborts its run at once. The engine
watches it itself, so that it does not depend on its caller.

Not here: writing to it (`status_writer`).
"""

from __future__ import annotations

import asyncio
import logging

from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.client import (
    ApiClient,
    ConnectionFailed,
    EventType,
    ListOptions,
    Object,
    key_of,
    uid_of,
    version_of,
)
from restow.migration.migration_objects import is_being_deleted, is_paused
from restow.migration.migrator.options import EngineOptions

logger = logging.getLogger(__name__)


class MigrationDeleted(Exception):
    """The migration is deleted or being deleted. Its run stops."""


class Followed:
    """One migration object, by name and uid."""

    def __init__(
        self,
        client: ApiClient,
        resource: GroupVersionResource,
        migration: Object,
        *,
        options: EngineOptions,
    ) -> None:
        self.resource = resource
        self.name = key_of(migration).name
        self.uid = uid_of(migration)
        self.latest = migration
        self._client = client
        self._options = options
        self._released = asyncio.Event()
        self.see(migration)

    @property
    def is_paused(self) -> bool:
        return not self._released.is_set()

    async def wait_released(self) -> None:
        """Return when it is not paused."""
        await self._released.wait()

    def see(self, migration: Object) -> None:
        """Record a state of the migration. Raises `MigrationDeleted`."""
        if uid_of(migration) != self.uid:
            raise MigrationDeleted(f"{self.name} was recreated with another uid")
        if is_being_deleted(migration):
            raise MigrationDeleted(f"{self.name} is being deleted")
        self.latest = migration
        if is_paused(migration):
            self._released.clear()
        else:
            self._released.set()

    async def read(self) -> Object:
        """Read the current state. Raises `MigrationDeleted`."""
        try:
            found = await self._client.get(self.resource, self.name)
        except NotFound as error:
            raise MigrationDeleted(f"{self.name} was deleted") from error
        self.see(found)
        return found

    async def follow(self) -> None:
        """Watch the migration until cancelled. Raises `MigrationDeleted`."""
        runtime, failures = self._client.runtime, 0
        while True:
            try:
                async with self._client.watch(
                    self.resource, resource_version=await self._list(), options=self._only()
                ) as events:
                    async for event in events:
                        failures = 0
                        self._take(event.type, event.object)
            except (StatusError, ConnectionFailed) as error:
                # A gap is harmless: the list shows whether the migration exists.
                logger.info("the watch on the migration %s is opened again: %s", self.name, error)
            backoff = self._options.retry_backoff
            await runtime.clock.sleep(backoff.delay_seconds(failures, runtime.randomness))
            failures += 1

    async def _list(self) -> str:
        """Record the current state; return the resource version of the list."""
        page = await self._client.list_page(self.resource, options=self._only())
        found = [each for each in page.items if key_of(each).name == self.name]
        if not found:
            raise MigrationDeleted(f"{self.name} was deleted")
        self.see(found[0])
        return page.resource_version or version_of(found[0])

    def _take(self, kind: EventType, migration: Object) -> None:
        if kind is EventType.BOOKMARK or key_of(migration).name != self.name:
            return
        if kind is EventType.DELETED:
            raise MigrationDeleted(f"{self.name} was deleted")
        self.see(migration)

    def _only(self) -> ListOptions:
        return ListOptions(field_selector=f"metadata.name={self.name}", limit=0)
