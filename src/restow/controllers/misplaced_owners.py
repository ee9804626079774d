"""Reports owner references to objects in another namespace, by events about the dependent.

An owner reference cannot cross namespaces. The dependent of such a reference is deleted, and an
event is the only explanation; its reason and message are those of Kubernetes. Best effort: an owner
is searched for by name and UID, in a limited number of namespaces and with a limited rate. Not
here: the deletion of the dependent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime
from typing import Final

from restow.aio import Runtime
from restow.apimachinery import status
from restow.controllers.object_keys import (
    Metadata,
    ObjectLocation,
    OwnerReference,
    read_metadata,
    working_version,
)
from restow.registry.catalog import Catalog
from restow.registry.resource import Object, Resource
from restow.registry.store import ResourceStore
from restow.registry.strategy import timestamp
from restow.storage.pages import items_below

REASON: Final = "OwnerRefInvalidNamespace"
COMPONENT: Final = "garbage-collector-controller"
NAMESPACES_MAX: Final = 1_000
SEARCHES_MAX: Final = 10
WINDOW_SECONDS: Final = 10.0
"""Interval to which the limit of searches applies."""
_NAME_MAX: Final = 236
_DEFAULT_NAMESPACE: Final = "default"

logger = logging.getLogger(__name__)


class MisplacedOwners:
    """Searches for owners in other namespaces and reports the ones it finds."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        self._store = store
        self._clock = runtime.clock
        self._namespaces = catalog.of_kind("", "Namespace")
        self._events = catalog.of_kind("", "Event")
        self._window_end = 0.0
        self._searches = 0

    async def record(
        self,
        place: ObjectLocation,
        metadata: Metadata,
        owners: Collection[tuple[OwnerReference, Resource]],
    ) -> None:
        """Report those owners of an object that are in another namespace."""
        for reference, resource in owners:
            if not (resource.kind.namespaced and reference.uid and self._may_search()):
                continue
            if await self._is_elsewhere(reference, resource, besides=place.namespace):
                await self._write(place, metadata, reference)

    def _may_search(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._window_end:
            self._window_end, self._searches = now + WINDOW_SECONDS, 0
        self._searches += 1
        return self._searches <= SEARCHES_MAX

    async def _is_elsewhere(
        self, reference: OwnerReference, resource: Resource, *, besides: str
    ) -> bool:
        if self._namespaces is None:
            return False
        storage, root, checked = self._store.storage, self._namespaces.root, 0
        async for item in items_below(storage, root):
            namespace = item.key[len(root) :]
            if checked == NAMESPACES_MAX:
                return False
            checked += 1
            if namespace == besides:
                continue
            found = await storage.get(resource.key_of(f"{namespace}/{reference.name}"))
            there = None if found is None else read_metadata(found.value)
            if there is not None and there.uid == reference.uid:
                return True
        return False

    async def _write(
        self, place: ObjectLocation, metadata: Metadata, reference: OwnerReference
    ) -> None:
        if self._events is None:
            return
        version = working_version(self._events)
        event = _event(place, metadata, reference, now=self._clock.wall())
        try:
            await self._store.create(
                self._events, version, event, namespace=place.namespace or _DEFAULT_NAMESPACE
            )
        except status.StatusError as error:
            logger.debug("could not create an event about %s: %s", place.path, error)


def _event(
    place: ObjectLocation, metadata: Metadata, reference: OwnerReference, *, now: datetime
) -> Object:
    """Return the Event about one owner reference."""
    resource, namespace = place.resource, place.namespace
    name, time = place.path.rpartition("/")[2], timestamp(now)
    about = {
        "kind": resource.kind.kind,
        "apiVersion": resource.storage_api_version,
        "namespace": namespace,
        "name": name,
        "uid": metadata.uid,
    }
    owner = (
        f"[{reference.api_version}/{reference.kind}, namespace: {namespace},"
        f" name: {reference.name}, uid: {reference.uid}]"
    )
    nanoseconds = int(now.timestamp() * 1_000_000) * 1_000
    return {
        "metadata": {"name": f"{name[:_NAME_MAX]}.{nanoseconds:x}"},
        "involvedObject": {field: value for field, value in about.items() if value},
        "type": "Warning",
        "reason": REASON,
        "message": f'ownerRef {owner} does not exist in namespace "{namespace}"',
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
