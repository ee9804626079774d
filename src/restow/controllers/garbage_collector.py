"""The garbage collector: dependents follow their owners.

Background: an object all of whose owners are gone is deleted. Foreground: an owner with the
finalizer `foregroundDeletion` waits until the dependents that block it are gone. Orphan: the
dependents of an owner with the finalizer `orphan` lose their reference to it first.

An observer keeps a graph of the objects that have owners; a queue of keys says at what to look.
Each look reads the object and its owners from the store, and each delete is on condition that the
object is still the one that was read. Kinds come and go: what cannot be judged because a kind is
not hosted here waits until it is. A pod has the time to end that it says itself. Not here: who may
name an owner.
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
"""How many owners are remembered whose dependents were all queued once; the oldest go first."""
BEHIND_SECONDS: Final = 0.2
"""When to try again what the graph cannot answer yet."""
_PAGE: Final = 200
_FINALIZERS: Final = (b'"%b"' % FOREGROUND.encode(), b'"%b"' % ORPHAN.encode())

logger = logging.getLogger(__name__)


class _Found(NamedTuple):
    """An object as it was just read from the store."""

    place: ObjectLocation
    item: Item
    metadata: Metadata


class GarbageCollector:
    """Deletes, holds and frees dependents. An observer of all objects; made anew for each turn."""

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
        self._parking = DeferredKeys()
        self.graph = OwnerGraph()
        self.queue: WorkQueue[str] = runtime.work_queue("dependents", keys_max=KEYS_MAX)
        self._position = 0  # the graph knows all changes up to this revision
        self._foreground: dict[str, str] = {}  # uid → key of owners that wait for dependents
        self._spread: dict[str, GroupKind | None] = {}  # uids of owners gone, with kind if seen

    # Noticing.

    async def look(self, revision: Revision) -> None:
        """Read all objects once: build the graph, and queue what may need work.

        Of the dependents of one owner only one is queued. If it finds the owner gone, the others
        follow; so a look costs one read for each owner and not for each dependent.
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
        self._parking.clear()  # all that waits is wanted again
        self._position = revision
        self._queue_all(wanted)

    def _note(self, item: Item, named: set[tuple[str, ...]]) -> bool:
        """Put an object into the graph; whether it must be looked at."""
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

    def see(self, batch: Batch) -> None:
        """Follow the changes with the graph."""
        for event in batch.events:
            value = event.value
            if value is None:
                self._see_removal(event)
                continue
            if value.startswith(SEALED_PREFIX):
                # It cannot be opened just now. Whom it belonged to, it belongs to still: were the
                # tie forgotten, an owner that is orphaned would take it along.
                continue
            if OWNED in value and not event.key.startswith(self._unowned):
                self._see_owned(event.key, value)
            elif event.key in self.graph:
                self._wake_owners(self.graph.drop(event.key))
            if _has_work(value):
                self.queue.add(event.key)
        self._position = batch.revision

    def _see_owned(self, key: str, value: bytes) -> None:
        metadata = read_metadata(value)
        if metadata is None or not metadata.owners:
            self._wake_owners(self.graph.drop(key))
            return
        ties = Ties.of(metadata.owners, own_uid=metadata.uid)
        before = self.graph.tie(key, ties)
        if before != ties:
            self._wake_owners(before)
            self.queue.add(key)

    def _see_removal(self, event: Event) -> None:
        self._wake_owners(self.graph.drop(event.key))
        if event.key.startswith(DEFINITIONS_ROOT):
            self.queue.add(event.key)  # nothing of that kind is of interest any more
        if event.previous is None or not (len(self.graph) or self._foreground):
            return
        metadata = read_metadata(event.previous.value)
        if metadata is not None:
            self._foreground.pop(metadata.uid, None)
            if self.graph.dependents_of(metadata.uid):
                self._spread_from([metadata.uid], kind=read_kind(event.previous.value))

    def hosting_changed(self, group: str) -> None:
        """This server hosts something else in a group."""
        self._queue_all(self._parking.take(group, self._is_hosted))

    def _is_hosted(self, lacking: MissingKind) -> bool:
        if lacking.segment:
            return self._places.resource_at(lacking.segment) is not None
        return self._owners.is_hosted(lacking.api_version, lacking.kind)

    def _was_removed(self, uid: str, kind: GroupKind) -> bool:
        return self._spread.get(uid) == kind

    def _wake_owners(self, ties: Ties | None) -> None:
        """Owners that wait for an object may go on when it does not block them any more."""
        if ties is not None and self._foreground:
            waiting = (self._foreground.get(uid) for uid in ties.blocking)
            self._queue_all(key for key in waiting if key is not None)

    def _queue_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.queue.add(key)

    # Acting.

    async def reconcile(self, key: str) -> float | None:
        """Do what one object needs, as an owner that is being deleted or as a dependent."""
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
            self._parking.park(key, MissingKind(segment=resource_of(key) or ""))
            return None
        found = _Found(place, item, metadata)
        if not metadata.deletion_timestamp:
            if metadata.owners:
                await self._judge(found)
        elif item.revision > self._position:
            return BEHIND_SECONDS  # the graph may miss dependents of it
        elif metadata.has_finalizer(ORPHAN):
            await self._orphan(found)
        elif metadata.has_finalizer(FOREGROUND):
            await self._hold(found)
        return None

    async def _forget_kind(self, key: str) -> None:
        """If a definition is gone, nobody can delete what may be left of its kind.

        So no owner waits for that. Nearly always there is nothing: instances go first.
        """
        if not key.startswith(DEFINITIONS_ROOT):
            return
        group, plural = resource_named(key[len(DEFINITIONS_ROOT) :])
        root = f"{OBJECTS_PREFIX}{group}/{plural}/"
        if await self._storage.count(Span.of_prefix(root)):
            for each in self.graph.under(root):
                self._wake_owners(self.graph.drop(each))

    async def _judge(self, found: _Found) -> None:
        """Delete an object whose owners are gone, or cut its ties to those that are."""
        verdict = await self._owners.judge(found.place, found.metadata)
        if verdict is None or verdict.gone:
            await self._record_misplaced(found)
        if verdict is None:
            return
        for each in verdict.unknown:
            lacking = MissingKind(api_version=each.api_version, kind=each.kind)
            self._parking.park(found.item.key, lacking)
        if verdict.unknown:
            return
        self._spread_from(verdict.gone)
        if verdict.alive:
            if verdict.gone or verdict.waiting:
                await self._cut(found.place, found.metadata.uid, verdict.gone + verdict.waiting)
            return
        if verdict.waiting and self._closes_circle(found):
            await self._unblock(found)
            return  # which is a change, and brings us here again
        await self._delete(found, self._policy_for(found, verdict))

    async def _record_misplaced(self, found: _Found) -> None:
        """Tell of owners that are elsewhere. Those that were seen to go are not."""
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
        """Owners are gone: look at all their dependents, once. `kind` if they were seen to go."""
        for uid in gone:
            if uid in self._spread:
                self._spread[uid] = self._spread[uid] or kind
                continue
            if len(self._spread) >= SPREAD_MAX:
                del self._spread[next(iter(self._spread))]
            self._spread[uid] = kind
            self._queue_all(self.graph.dependents_of(uid))

    def _closes_circle(self, found: _Found) -> bool:
        """Whether a dependent of this object waits, as an owner, for this very object."""
        if not any(each.block_owner_deletion for each in found.metadata.owners):
            return False
        waiting = set(self._foreground.values())
        return not waiting.isdisjoint(self.graph.dependents_of(found.metadata.uid))

    def _policy_for(self, found: _Found, verdict: OwnersByState) -> str:
        if verdict.waiting and self.graph.dependents_of(found.metadata.uid):
            return "Foreground"  # the owner waits for these too
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
            logger.info("its owners are gone, but it stays: %s", error)
            return
        logger.info("deleted %s %s: its owners are gone", resource.kind.group_resource, path)

    async def _hold(self, found: _Found) -> None:
        """Foreground: delete the dependents, and let the owner go when none blocks it."""
        uid = found.metadata.uid
        if uid not in self._foreground:
            self._foreground[uid] = found.item.key
            self._queue_all(self.graph.dependents_of(uid))
        if not self.graph.is_blocked(uid):
            await self._let_go(found, FOREGROUND)
            self._foreground.pop(uid, None)

    async def _orphan(self, found: _Found) -> None:
        """Orphan: cut the ties of all dependents, then let the owner go."""
        uid = found.metadata.uid

        is_done = True

        async def cut(key: str) -> None:
            nonlocal is_done
            place = self._places.find(key)
            if place is not None:
                await self._cut(place, None, [uid])
            else:
                # Were the owner let go now, its dependent would be deleted when it is hosted.
                self._parking.park(found.item.key, MissingKind(segment=resource_of(key) or ""))
                is_done = False

        await for_each(list(self.graph.dependents_of(uid)), cut)
        if is_done:
            await self._let_go(found, ORPHAN)

    async def _cut(self, place: ObjectLocation, uid: str | None, owners: Collection[str]) -> None:
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

    async def _let_go(self, found: _Found, finalizer: str) -> None:
        def change(obj: Object) -> Object:
            finalizers = obj["metadata"].get("finalizers") or []
            obj["metadata"]["finalizers"] = [each for each in finalizers if each != finalizer]
            return obj

        await self._update(found.place, found.metadata.uid, change)

    async def _update(
        self, place: ObjectLocation, uid: str | None, change: Callable[[Object], Object]
    ) -> None:
        """Change an object, if it still has this uid; nothing to do when it is gone.

        Nor when only servers may change it: trying again would help nobody. A change by those
        servers brings us here again.
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
            logger.info("left as it is: %s", error)


def _has_work(value: bytes) -> bool:
    """Whether an object is an owner that waits for us. A quick test that may say yes too often."""
    return DELETING in value and any(each in value for each in _FINALIZERS)
