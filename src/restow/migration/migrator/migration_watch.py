"""A request while it is worked off: whether it is still there, and whether it is held.

A request that is deleted, or made anew under the same name, ends its migration at once. It is
followed by a watch of its own, so that nobody has to tell the engine.

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
from restow.migration.migration_objects import is_going, is_paused
from restow.migration.migrator.options import EngineOptions

logger = logging.getLogger(__name__)


class RequestGone(Exception):
    """The request is deleted, or to be deleted. Nothing more is done for it."""


class Followed:
    """One request, by name and uid."""

    def __init__(
        self,
        client: ApiClient,
        resource: GroupVersionResource,
        request: Object,
        *,
        options: EngineOptions,
    ) -> None:
        self.resource = resource
        self.name = key_of(request).name
        self.uid = uid_of(request)
        self.latest = request
        self._client = client
        self._options = options
        self._released = asyncio.Event()
        self.see(request)

    @property
    def is_paused(self) -> bool:
        return not self._released.is_set()

    async def wait_released(self) -> None:
        """Return when it is not paused."""
        await self._released.wait()

    def see(self, request: Object) -> None:
        """Take a state of it. Raises `RequestGone`."""
        if uid_of(request) != self.uid:
            raise RequestGone(f"{self.name} is another one now")
        if is_going(request):
            raise RequestGone(f"{self.name} is being deleted")
        self.latest = request
        if is_paused(request):
            self._released.clear()
        else:
            self._released.set()

    async def read(self) -> Object:
        """As it is now. Raises `RequestGone`."""
        try:
            found = await self._client.get(self.resource, self.name)
        except NotFound as error:
            raise RequestGone(f"{self.name} was deleted") from error
        self.see(found)
        return found

    async def follow(self) -> None:
        """Runs until it is cancelled. Raises `RequestGone`."""
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
                # Nothing is lost by a gap: the list shows whether it is there.
                logger.info("the watch on the request %s is begun anew: %s", self.name, error)
            backoff = self._options.retry_backoff
            await runtime.clock.sleep(backoff.delay_seconds(failures, runtime.randomness))
            failures += 1

    async def _list(self) -> str:
        """See it as it is now; the version at which it was seen."""
        page = await self._client.list_page(self.resource, options=self._only())
        found = [each for each in page.items if key_of(each).name == self.name]
        if not found:
            raise RequestGone(f"{self.name} was deleted")
        self.see(found[0])
        return page.resource_version or version_of(found[0])

    def _take(self, kind: EventType, request: Object) -> None:
        if kind is EventType.BOOKMARK or key_of(request).name != self.name:
            return
        if kind is EventType.DELETED:
            raise RequestGone(f"{self.name} was deleted")
        self.see(request)

    def _only(self) -> ListOptions:
        return ListOptions(field_selector=f"metadata.name={self.name}", limit=0)
