"""Follows the namespaces of the main servers for an aggregated server.

Creates in a missing or terminating namespace are rejected, and the remaining objects of a deleted
namespace are deleted. The watch may lag, so the main servers are queried before a request is
rejected or an object deleted because its namespace is not in the local cache.

Not here: deleting a namespace, and the other objects in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from restow.admission import Attributes, WriteOf
from restow.aio import Runtime
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.client import ApiClient, ClientError, Informer, ObjectKey, metadata_of
from restow.client.informer import ObjectChange
from restow.controllers.object_keys import read_metadata, stored_version
from restow.registry import strategy
from restow.registry.catalog import Catalog
from restow.registry.resource import Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.watch_cache import Entry
from restow.storage.errors import StorageError

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
NAMESPACE_RESOURCE: Final = GroupResource("", "namespaces")
RESYNC_SECONDS: Final = 60.0
"""Interval of searches for objects in deleted namespaces while no change is reported."""
PAUSE_SECONDS: Final = 0.1
ASK_SECONDS_MAX: Final = 10.0
DELETES_MAX: Final = 500
"""Deletions per namespace and resource in one search."""

logger = logging.getLogger(__name__)


class MainNamespaces:
    """Watches the namespaces of the main servers. Implements `Admission`."""

    def __init__(self, client: ApiClient, runtime: Runtime) -> None:
        self._client = client
        self._clock = runtime.clock
        self._informer = Informer(client, NAMESPACES)
        self._informer.on_change(self._note)
        self._changed = asyncio.Event()

    def concerns(self, _write: WriteOf) -> bool:
        return True

    def review(self, attributes: Attributes) -> Awaitable[None] | None:
        """Reject a create in a namespace that is missing or terminating."""
        if attributes.operation != "CREATE" or not attributes.resource.kind.namespaced:
            return None
        found = self._informer.get(ObjectKey("", attributes.namespace))
        if found is None:
            return self._review_unknown(attributes)
        if metadata_of(found).get("deletionTimestamp"):
            raise _terminating(attributes)
        return None

    async def _review_unknown(self, attributes: Attributes) -> None:
        try:
            found = await self._ask(attributes.namespace)
        except (StatusError, ClientError, TimeoutError) as error:
            raise status.unavailable(
                f"cannot look up namespace {attributes.namespace} at the main servers: {error}",
                retry_after_seconds=status.RETRY_AFTER_SECONDS,
            ) from error
        if found is None:
            raise status.not_found(NAMESPACE_RESOURCE, attributes.namespace)
        if metadata_of(found).get("deletionTimestamp"):
            raise _terminating(attributes)

    async def run(self, store: ResourceStore, catalog: Catalog) -> None:
        """Follow the namespaces and delete the objects of deleted ones, forever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name="main-namespaces/informer")
            await self._informer.wait_synced()
            while True:
                try:
                    await self.clear(store, catalog)
                except (StatusError, ClientError, StorageError, TimeoutError) as error:
                    logger.warning("cannot delete the objects of deleted namespaces: %s", error)
                try:
                    async with self._clock.timeout(RESYNC_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                self._changed.clear()
                await self._clock.sleep(PAUSE_SECONDS)

    def _note(self, change: ObjectChange) -> None:
        if change.new is None or metadata_of(change.new).get("deletionTimestamp"):
            self._changed.set()

    async def clear(self, store: ResourceStore, catalog: Catalog) -> None:
        """Delete the objects of deleted namespaces. Raises when the namespaces cannot be read."""
        for resource in catalog.persisted():
            if not resource.kind.namespaced:
                continue
            cache = await store.read(resource)
            all_of_it = cache.select()
            places: dict[str, list[tuple[str, Entry]]] = {}
            for path, entry in zip(all_of_it.keys, all_of_it.entries, strict=True):
                places.setdefault(path.partition("/")[0], []).append((path, entry))
            for namespace, found in places.items():
                if await self._is_gone(namespace):
                    await self._delete(store, resource, found)

    async def _is_gone(self, namespace: str) -> bool:
        known = self._informer.get(ObjectKey("", namespace))
        if known is None:
            known = await self._ask(namespace)
        return known is None or bool(metadata_of(known).get("deletionTimestamp"))

    async def _ask(self, namespace: str) -> dict[str, object] | None:
        """Read the current namespace from the main servers; None if there is none."""
        try:
            async with self._clock.timeout(ASK_SECONDS_MAX):
                return await self._client.get(NAMESPACES, namespace)
        except NotFound as error:
            # A proxy may return a 404 as well: require a Status of this namespace.
            if error.details is None or error.details.name != namespace:
                raise
            return None

    async def _delete(
        self, store: ResourceStore, resource: Resource, found: list[tuple[str, Entry]]
    ) -> None:
        count = 0
        for path, entry in found:
            metadata = read_metadata(entry[2])
            if metadata is None or (
                # Dependents need not be waited for: they are deleted as well.
                metadata.deletion_timestamp
                and strategy.FOREGROUND not in (metadata.finalizers or ())
            ):
                continue
            if count == DELETES_MAX:
                break
            count += 1
            try:
                # Preconditioned on the uid: namespace and name may have been created again.
                options = DeleteOptions(policy="Background", uid=metadata.uid)
                await store.delete(resource, stored_version(resource, entry[1]), path, options)
            except (NotFound, Conflict):
                continue
        if count:
            logger.info("deleted %d %s of deleted namespaces", count, resource.kind.group_resource)


def _terminating(attributes: Attributes) -> StatusError:
    return status.namespace_terminating(
        attributes.resource.kind.group_resource,
        attributes.name,
        namespace=attributes.namespace,
    )
