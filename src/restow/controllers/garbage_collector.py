"""The garbage collector: deletes dependents of owners that were deleted.

Background: an object is deleted when none of its owners exists. Foreground: an owner with the
finalizer `foregroundDeletion` waits until the dependents that block it are removed. Orphan: the
dependents of an owner with the finalizer `orphan` lose their owner reference first.

An observer keeps a graph of the objects that have owners, and queues keys. Reconciliation reads the
object and its owners from the store, and each delete has the UID and resource version that were
read as preconditions. Kinds are added and removed: objects of a kind that is not hosted here wait
until it is. A pod is deleted with its own grace period. Not here: the permission to set owner
references.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.apimachinery.names import GroupKind
from restow.controllers.crd_names import resource_named
from restow.controllers.deferred_keys import DeferredKeys, MissingKind
from restow.controllers.misplaced_owners import MisplacedOwners
from restow.controllers.object_keys import (
    DELETING,
    OWNED,
    Metadata,
    ObjectLocation,
    ObjectLocations,
    read_api_version,
    read_kind,
    read_metadata,
    stored_version,
    working_version,
)
from restow.controllers.owner_graph import OwnerGraph, Ties
from restow.controllers.owners import Owners, OwnersByState
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import ROOT as DEFINITIONS_ROOT
from restow.registry.reconcile_loops import for_each
from restow.registry.resource import Object
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.strategy import FOREGROUND, ORPHAN, uid_conflict
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.interface import SEALED_PREFIX, Batch, Event, Item, Key, Revision, Span
from restow.storage.pages import pages

KEYS_MAX: Final = 2_000_000
SPREAD_MAX: Final = 10_000
"""Limit of the remembered owners whose dependents were queued; the oldest are dropped first."""
BEHIND_SECONDS: Final = 0.2
"""When to retry while the graph is not up to date."""
_PAGE: Final = 200
_FINALIZERS: Final = (b'"%b"' % FOREGROUND.encode(), b'"%b"' % ORPHAN.encode())

logger = logging.getLogger(__name__)


class _Found(NamedTuple):
    """An object as read from the store."""

    place: ObjectLocation
    item: Item
    metadata: Metadata


class GarbageCollector:
    """Deletes, blocks and orphans dependents. An observer of all objects, created for each leader
    term."""

    def __init__(self, store: ResourceStore, catalog: Catalog, runtime: Runtime) -> None:
        self._store = store
        self._storage = store.storage
        self._clock = runtime.clock
        self._places = ObjectLocations(catalog)
        self._owners = Owners(store.storage, catalog, was_removed=self._was_removed)
        self._misplaced = MisplacedOwners(store, catalog, runtime)
        self._unowned = tuple(
            each.root for each in catalog.persisted() if not each.kind.follows_owners
        )
        self._deferred = DeferredKeys()
        self.graph = OwnerGraph()
        self.queue: WorkQueue[str] = runtime.work_queue("dependents", keys_max=KEYS_MAX)
        self._position = 0  # the graph contains all changes up to this revision
        self._foreground: dict[str, str] = {}  # UID → key of owners that wait for dependents
        self._spread: dict[str, GroupKind | None] = {}  # UIDs of deleted owners

    # Events.

    async def list_objects(self, revision: Revision) -> None:
        """Read all objects once: build the graph, and queue keys that may need work.

        Only one of the dependents of an owner is queued. If that owner does not exist, the others
        are queued then; so a full read costs one read per owner, not per dependent.
        """
        self._position = 0
        self.graph.clear()
        self._foreground.clear()
        named: set[tuple[str, ...]] = set()
        wanted: list[str] = []
        async for page in pages(self._storage, Span.of_prefix(OBJECTS_PREFIX), limit=_PAGE):
            wanted += [item.key for item in page.items if self._note(item, named)]
            await self._clock.sleep(0)
        self._spread.clear()
        self._deferred.clear()  # deferred keys are queued again
        self._position = revision
        self._queue_all(wanted)

    def _note(self, item: Item, named: set[tuple[str, ...]]) -> bool:
        """Add an object to the graph; return whether it must be queued."""
        is_owned = OWNED in item.value and not item.key.startswith(self._unowned)
        metadata = read_metadata(item.value) if is_owned else None
        is_first = False
        if metadata is not None and metadata.owners:
            self.graph.tie(item.key, Ties.of(metadata.owners, own_uid=metadata.uid))
            place = self._places.find(item.key)
            namespace = "" if place is None else place.namespace
            references = {
                (namespace, each.api_version, each.kind, each.name, each.uid)
                for each in metadata.owners
            }
            is_first = not references <= named
            named |= references
        return is_first or _has_work(item.value)

    def on_batch(self, batch: Batch) -> None:
        """Update the graph and queue keys for some changes."""
        for event in batch.events:
            value = event.value
            if value is None:
                self._on_removal(event)
                continue
            if value.startswith(SEALED_PREFIX):
                # It cannot be decrypted now. Keep its owners in the graph: otherwise orphaning the
                # owner would not update this object, and it would be deleted.
                continue
            if OWNED in value and not event.key.startswith(self._unowned):
                self._on_owned_change(event.key, value)
            elif event.key in self.graph:
                self._queue_owners(self.graph.drop(event.key))
            if _has_work(value):
                self.queue.add(event.key)
        self._position = batch.revision

    def _on_owned_change(self, key: str, value: bytes) -> None:
        metadata = read_metadata(value)
        if metadata is None or not metadata.owners:
            self._queue_owners(self.graph.drop(key))
            return
        ties = Ties.of(metadata.owners, own_uid=metadata.uid)
        before = self.graph.tie(key, ties)
        if before != ties:
            self._queue_owners(before)
            self.queue.add(key)

    def _on_removal(self, event: Event) -> None:
        self._queue_owners(self.graph.drop(event.key))
        if event.key.startswith(DEFINITIONS_ROOT):
            self.queue.add(event.key)  # its remaining instances block no owner any more
        if event.previous is None or not (len(self.graph) or self._foreground):
            return
        metadata = read_metadata(event.previous.value)
        if metadata is not None:
            self._foreground.pop(metadata.uid, None)
            if self.graph.dependents_of(metadata.uid):
                self._spread_from([metadata.uid], kind=read_kind(event.previous.value))

    def hosting_changed(self, group: str) -> None:
        """Handle a change of the resources that this server hosts in a group."""
        self._queue_all(self._deferred.take(group, self._is_hosted))

    def _is_hosted(self, lacking: MissingKind) -> bool:
        if lacking.segment:
            return self._places.resource_at(lacking.segment) is not None
        return self._owners.is_hosted(lacking.api_version, lacking.kind)

    def _was_removed(self, uid: str, kind: GroupKind) -> bool:
        return self._spread.get(uid) == kind

    def _queue_owners(self, ties: Ties | None) -> None:
        """Queue owners in foreground deletion that this object may have blocked."""
        if ties is not None and self._foreground:
            waiting = (self._foreground.get(uid) for uid in ties.blocking)
            self._queue_all(key for key in waiting if key is not None)

    def _queue_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.queue.add(key)

    # Reconciliation.

    async def reconcile(self, key: str) -> float | None:
        """Process one object, as an owner that is being deleted or as a dependent."""
        item = await self._storage.get(Key(key))
        if not self._position:
            return BEHIND_SECONDS  # the graph is being built
        if item is None:
            await self._forget_kind(key)
            return None
        metadata, place = read_metadata(item.value), self._places.find(key)
        if metadata is None:
            return None
        if place is None:
            self._deferred.defer(key, MissingKind(segment=resource_of(key) or ""))
            return None
        found = _Found(place, item, metadata)
        if not metadata.deletion_timestamp:
            if metadata.owners:
                await self._judge(found)
        elif item.revision > self._position:
            return BEHIND_SECONDS  # the graph may miss some of its dependents
        elif metadata.has_finalizer(ORPHAN):
            await self._process_orphan(found)
        elif metadata.has_finalizer(FOREGROUND):
            await self._process_foreground(found)
        return None

    async def _forget_kind(self, key: str) -> None:
        """Remove instances of a deleted CRD from the graph: no server can delete them.

        So no owner waits for them. Usually there are none: instances are deleted before the CRD.
        """
        if not key.startswith(DEFINITIONS_ROOT):
            return
        group, plural = resource_named(key[len(DEFINITIONS_ROOT) :])
        root = f"{OBJECTS_PREFIX}{group}/{plural}/"
        if await self._storage.count(Span.of_prefix(root)):
            for each in self.graph.under(root):
                self._queue_owners(self.graph.drop(each))

    async def _judge(self, found: _Found) -> None:
        """Delete an object without an existing owner, or else remove its references to owners that
        do not exist or wait for it in a foreground deletion."""
        verdict = await self._owners.judge(found.place, found.metadata)
        if verdict is None or verdict.gone:
            await self._record_misplaced(found)
        if verdict is None:
            return
        for each in verdict.unknown:
            lacking = MissingKind(api_version=each.api_version, kind=each.kind)
            self._deferred.defer(found.item.key, lacking)
        if verdict.unknown:
            return
        self._spread_from(verdict.gone)
        if verdict.alive:
            if verdict.gone or verdict.waiting:
                await self._remove_owners(
                    found.place, found.metadata.uid, verdict.gone + verdict.waiting
                )
            return
        if verdict.waiting and self._is_circular(found):
            await self._unblock(found)
            return  # the event of this write queues the object again
        await self._delete(found, self._policy_for(found, verdict))

    async def _record_misplaced(self, found: _Found) -> None:
        """Report owners in another namespace by events, except for owners that were seen
        deleted."""
        await self._misplaced.record(
            found.place,
            found.metadata,
            [
                (each, resource)
                for each in found.metadata.owners
                if (resource := self._owners.resource_of(each)) is not None
                and self._spread.get(each.uid) is None
            ],
        )

    def _spread_from(self, gone: Collection[str], *, kind: GroupKind | None = None) -> None:
        """Queue all dependents of deleted owners, once. `kind`: the owner's, if an event showed
        it."""
        for uid in gone:
            if uid in self._spread:
                self._spread[uid] = self._spread[uid] or kind
                continue
            if len(self._spread) >= SPREAD_MAX:
                del self._spread[next(iter(self._spread))]
            self._spread[uid] = kind
            self._queue_all(self.graph.dependents_of(uid))

    def _is_circular(self, found: _Found) -> bool:
        """Whether a dependent of this object is in foreground deletion and waits for this
        object."""
        if not any(each.block_owner_deletion for each in found.metadata.owners):
            return False
        waiting = set(self._foreground.values())
        return not waiting.isdisjoint(self.graph.dependents_of(found.metadata.uid))

    def _policy_for(self, found: _Found, verdict: OwnersByState) -> str:
        if verdict.waiting and self.graph.dependents_of(found.metadata.uid):
            return "Foreground"  # the owner must also wait for the dependents of this object
        if found.metadata.has_finalizer(ORPHAN):
            return "Orphan"
        return "Foreground" if found.metadata.has_finalizer(FOREGROUND) else "Background"

    async def _delete(self, found: _Found, policy: str) -> None:
        resource, path = found.place
        options = DeleteOptions(
            policy=policy,
            uid=found.metadata.uid,
            resource_version=str(found.item.revision),
            grace_seconds=None,
        )
        try:
            version = stored_version(resource, read_api_version(found.item.value))
            await self._store.delete(resource, version, path, options)
        except status.NotFound:
            return
        except status.Forbidden as error:
            logger.info("not deleted, although its owners do not exist: %s", error)
            return
        logger.info("deleted %s %s: its owners do not exist", resource.kind.group_resource, path)

    async def _process_foreground(self, found: _Found) -> None:
        """Foreground: delete the dependents; remove the finalizer when none blocks the owner."""
        uid = found.metadata.uid
        if uid not in self._foreground:
            self._foreground[uid] = found.item.key
            self._queue_all(self.graph.dependents_of(uid))
        if not self.graph.is_blocked(uid):
            await self._remove_finalizer(found, FOREGROUND)
            self._foreground.pop(uid, None)

    async def _process_orphan(self, found: _Found) -> None:
        """Orphan: remove the owner references of all dependents, then the finalizer."""
        uid = found.metadata.uid

        is_done = True

        async def remove_owner(key: str) -> None:
            nonlocal is_done
            place = self._places.find(key)
            if place is not None:
                await self._remove_owners(place, None, [uid])
            else:
                # Without the owner, its dependent would be deleted when its kind is hosted.
                self._deferred.defer(found.item.key, MissingKind(segment=resource_of(key) or ""))
                is_done = False

        await for_each(list(self.graph.dependents_of(uid)), remove_owner)
        if is_done:
            await self._remove_finalizer(found, ORPHAN)

    async def _remove_owners(
        self, place: ObjectLocation, uid: str | None, owners: Collection[str]
    ) -> None:
        def change(obj: Object) -> Object:
            metadata = obj["metadata"]
            references = metadata.get("ownerReferences") or []
            metadata["ownerReferences"] = [
                each for each in references if each.get("uid") not in owners
            ]
            if not metadata["ownerReferences"]:
                del metadata["ownerReferences"]
            return obj

        await self._update(place, uid, change)

    async def _unblock(self, found: _Found) -> None:
        def change(obj: Object) -> Object:
            for each in obj["metadata"].get("ownerReferences") or []:
                if each.get("blockOwnerDeletion"):
                    each["blockOwnerDeletion"] = False
            return obj

        await self._update(found.place, found.metadata.uid, change)

    async def _remove_finalizer(self, found: _Found, finalizer: str) -> None:
        def change(obj: Object) -> Object:
            finalizers = obj["metadata"].get("finalizers") or []
            obj["metadata"]["finalizers"] = [each for each in finalizers if each != finalizer]
            return obj

        await self._update(found.place, found.metadata.uid, change)

    async def _update(
        self, place: ObjectLocation, uid: str | None, change: Callable[[Object], Object]
    ) -> None:
        """Change an object if it still has this UID; do nothing if it was deleted.

        Also do nothing if only servers may change it: a retry would fail again. A change by a
        server queues the object again.
        """

        def checked(obj: Object) -> Object:
            if uid is not None and obj["metadata"].get("uid") != uid:
                name, now = place.path, obj["metadata"].get("uid") or ""
                raise uid_conflict(place.resource, name, asked=uid, found=now)
            return change(obj)

        version = working_version(place.resource)
        try:
            await self._store.update(place.resource, version, place.path, checked, is_patch=True)
        except status.NotFound:
            return
        except status.Forbidden as error:
            logger.info("not changed: %s", error)


def _has_work(value: bytes) -> bool:
    """Whether an object is an owner that waits for this controller. May have false positives."""
    return DELETING in value and any(each in value for each in _FINALIZERS)
