"""An informer: a cache of the objects of a resource, kept up to date by a list and a watch.

    informer = Informer(client, leases)
    informer.on_change(lambda change: queue.add(change.key))
    tasks.spawn("informer", informer.run())
    await informer.wait_synced()

The cache shows a recent state of the server, and never an older one than before: each list is at
the newest version. When a watch cannot continue, the resource is listed again and the handlers get
the differences. Intermediate events can be missed; to get every event, use a watch.

Not here: processing of objects. A handler should only enqueue a key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from restow.aio import Backoff
from restow.apimachinery.names import GroupVersionResource
from restow.apimachinery.status import Expired
from restow.apimachinery.status_error import StatusError
from restow.client.client import ApiClient
from restow.client.errors import CacheFull, ConnectionFailed
from restow.client.objects import Object, ObjectKey, key_of, version_of
from restow.client.paths import ListOptions
from restow.client.watcher import EventType, WatchEvent, WatchPolicy

OBJECTS_MAX_DEFAULT: Final = 200_000
RELIST_BACKOFF: Final = Backoff(initial_seconds=0.8, factor=2, max_seconds=30, jitter=0.5)
# After a watch of this duration, the next failure counts as the first one.
_HEALTHY_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after; None: it does not exist."""

    key: ObjectKey
    old: Object | None
    new: Object | None


Handler = Callable[[ObjectChange], None]
"""Must be fast, and must not raise: an error of a handler ends the informer."""


class Informer:
    """A cache of the objects of one resource. Its objects are shared: do not modify them."""

    def __init__(
        self,
        client: ApiClient,
        resource: GroupVersionResource,
        *,
        namespace: str = "",
        options: ListOptions | None = None,
        metadata_only: bool = False,
        objects_max: int = OBJECTS_MAX_DEFAULT,
        backoff: Backoff = RELIST_BACKOFF,
        watch_policy: WatchPolicy | None = None,
    ) -> None:
        self.resource = resource
        self.objects_max = objects_max
        self.last_error: Exception | None = None
        """Why the cache is not up to date now; None if it is."""
        self._client = client
        self._namespace = namespace
        # Any version but the newest could be older than the cache.
        self._options = replace(
            options or ListOptions(), resource_version="", resource_version_match=""
        )
        self._metadata_only = metadata_only
        self._backoff = backoff
        self._watch_policy = watch_policy
        self._handlers: list[Handler] = []
        self._objects: dict[ObjectKey, Object] = {}
        self._version = ""
        self._synced = asyncio.Event()
        self._failures = 0
        self._lists_at_once = False

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def get(self, key: ObjectKey) -> Object | None:
        return self._objects.get(key)

    def keys(self) -> list[ObjectKey]:
        return list(self._objects)

    def objects(self) -> list[Object]:
        return list(self._objects.values())

    @property
    def resource_version(self) -> str:
        """The cache contains all changes up to this version; empty before the first list."""
        return self._version

    @property
    def is_synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def on_change(self, handler: Handler) -> None:
        """Call the handler for each change, first for each object in the cache."""
        self._handlers.append(handler)
        for key, value in list(self._objects.items()):
            handler(ObjectChange(key, None, value))

    async def run(self) -> None:
        """Keep the cache up to date until cancelled; CacheFull if there are too many objects."""
        clock = self._client.runtime.clock
        while True:
            began: float | None = None
            wait_seconds = 0.0
            try:
                await self._list()
                began = clock.monotonic()
                await self._watch()
            except (StatusError, ConnectionFailed) as error:
                self.last_error = error
                self._lists_at_once = began is None and isinstance(error, Expired)
                if began is not None and clock.monotonic() - began >= _HEALTHY_SECONDS:
                    self._failures = 0
                wait_seconds = self._backoff.delay_seconds(
                    self._failures, self._client.runtime.randomness
                )
                self._failures += 1
                logger.info(
                    "listing %s again in %.1f s: %s", self.resource, wait_seconds, self.last_error
                )
            await clock.sleep(wait_seconds)

    async def _list(self) -> None:
        # A paged list can take longer than compaction allows; then list it in one request.
        options = replace(self._options, limit=0) if self._lists_at_once else self._options
        found: dict[ObjectKey, Object] = {}
        version = ""
        async for page in self._client.pages(
            self.resource,
            namespace=self._namespace,
            options=options,
            metadata_only=self._metadata_only,
        ):
            for value in page.items:
                found[key_of(value)] = value
            self._check_size(len(found))
            version = page.resource_version
        self._replace(found, version)

    def _replace(self, found: dict[ObjectKey, Object], version: str) -> None:
        before, self._objects, self._version = self._objects, found, version
        self.last_error = None
        for key, old in before.items():
            if key not in found:
                self._notify(ObjectChange(key, old, None))
        for key, new in found.items():
            known = before.get(key)
            if known is None or version_of(known) != version_of(new):
                self._notify(ObjectChange(key, known, new))
        self._synced.set()

    async def _watch(self) -> None:
        async with self._client.watch(
            self.resource,
            resource_version=self._version,
            namespace=self._namespace,
            options=self._options,
            metadata_only=self._metadata_only,
            policy=self._watch_policy,
        ) as events:
            async for event in events:
                self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        self._version = event.resource_version or self._version
        if event.type is EventType.BOOKMARK:
            return
        key = event.key
        old = self._objects.get(key)
        if event.type is EventType.DELETED:
            if self._objects.pop(key, None) is not None:
                self._notify(ObjectChange(key, old, None))
            return
        self._objects[key] = event.object
        self._check_size(len(self._objects))
        self._notify(ObjectChange(key, old, event.object))

    def _check_size(self, count: int) -> None:
        if count > self.objects_max:
            raise CacheFull(
                f"more than {self.objects_max} objects of {self.resource}: raise objects_max, or "
                "select fewer with a selector"
            )

    def _notify(self, change: ObjectChange) -> None:
        for handler in self._handlers:
            handler(change)
