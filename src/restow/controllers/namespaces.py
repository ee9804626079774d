"""The life of namespaces: the first ones are made, and those being deleted are emptied and go.

A namespace that is being deleted keeps the finalizer `kubernetes` in its spec until nothing is
left in it. What is in it is counted in the store, kind by kind and only for kinds of which there
are objects at all, so that those which nobody uses cost nothing. Pods go first, the rest when no
pod is left. An object that finalizers hold is only marked, and so is a pod while it has time to
end, which whoever runs it may shorten; the namespace says so in its conditions
and waits for it, as it does for objects of kinds that are not hosted here, or not yet. What other
servers serve through this one is theirs to delete; they are asked to (`RemoteContents`).

Not here: refusing new objects in such a namespace, which is the business of create.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from restow.aio import Runtime, WorkQueue
from restow.apimachinery import status
from restow.apimachinery.status_error import StatusError
from restow.controllers.namespace_conditions import (
    Condition,
    Leftovers,
    conditions_of,
    merge_conditions,
)
from restow.controllers.object_keys import (
    DELETING,
    ObjectLocations,
    read_metadata,
    stored_version,
    working_version,
)
from restow.controllers.object_updates import update_if_present
from restow.registry import strategy
from restow.registry.catalog import Catalog, OnChange
from restow.registry.reconcile_loops import for_each
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.stored_bytes import check_opened, load
from restow.registry.watch_cache import Entry
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.interface import Batch, Revision, Span
from restow.storage.pages import items_below

FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
FINALIZER: Final = "kubernetes"
LOOK_SECONDS: Final = 60.0
WAITING_SECONDS: Final = 15.0
"""When to look again at a namespace that waits, should no change announce itself."""
HURRY_SECONDS: Final = 0.5
"""The same when some of it was being written during the pass."""
LEFTOVER_SECONDS: Final = (2.0, 30.0)
"""When to look once more into a namespace that is gone, for what came in the last moment."""
_PAGE: Final = 200

logger = logging.getLogger(__name__)


class RemoteContents(Protocol):
    """What servers behind this one have in namespaces."""

    @property
    def listeners(self) -> list[OnChange]:
        """Told of a group of which something else is known than before."""

    async def empty(self, namespace: str, left: Leftovers) -> None:
        """Delete what is in a namespace, and note what is left of it. Raises nothing for what
        such a server does wrong."""


async def ensure_namespaces(store: ResourceStore, catalog: Catalog) -> None:
    """Make the namespaces that every cluster has. Several servers may do so at once."""
    resource = catalog.of_kind("", "Namespace")
    if resource is None:
        return
    for name in FIRST_NAMESPACES:
        if await store.storage.get(resource.key_of(name)) is not None:
            continue
        try:
            obj = {"metadata": {"name": name}}
            await store.create(resource, working_version(resource), obj, namespace="")
        except status.AlreadyExists:
            continue  # another server was faster


class NamespaceController:
    """Empties namespaces that are being deleted. An observer of all objects."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        remote: RemoteContents | None = None,
    ) -> None:
        self._store = store
        self._remote = remote
        self._storage = store.storage
        self._catalog = catalog
        self._clock = runtime.clock
        self._places = ObjectLocations(catalog)
        namespaces = catalog.of_kind("", "Namespace")
        assert namespaces is not None, "every release hosts namespaces"
        self._namespaces = namespaces
        self.queue: WorkQueue[str] = runtime.work_queue("namespace")
        self._waiting: set[str] = set()
        self._told: dict[str, tuple[str, list[Condition]]] = {}
        self._lacking: set[str] = set()  # those with objects of kinds nobody can be asked for now
        self._removed: dict[str, int] = {}  # namespaces gone, and how often looked at since

    # Noticing.

    async def look(self, revision: Revision) -> None:
        """Find all namespaces that are being deleted."""
        async for item in items_below(self._storage, self._namespaces.root):
            if DELETING in item.value:
                self.queue.add(item.key[len(self._namespaces.root) :])

    def see(self, batch: Batch) -> None:
        """Notice deletions of namespaces, and of what namespaces wait for."""
        root = self._namespaces.root
        for event in batch.events:
            if event.key.startswith(root):
                if event.value is not None and DELETING in event.value:
                    self.queue.add(event.key[len(root) :])
            elif self._waiting and event.value is None:
                place = self._places.find(event.key)
                if place is not None and place.namespace in self._waiting:
                    self.queue.add(place.namespace)

    def hosting_changed(self, _group: str) -> None:
        """This server hosts something else: what it did not know it may know now."""
        for name in self._lacking:
            self.queue.add_after(name, HURRY_SECONDS)

    async def look_again(self) -> float:
        """The periodic look: the first namespaces are there, and none is forgotten."""
        await ensure_namespaces(self._store, self._catalog)
        await self.look(Revision(0))
        return LOOK_SECONDS

    # Acting.

    async def reconcile(self, name: str) -> float | None:
        """Bring the deletion of one namespace forward; after how long to look again, if so."""
        obj, revision = await self._read(name)
        if obj is None:
            return await self._sweep_removed(name, revision)
        self._removed.pop(name, None)
        if not obj["metadata"].get("deletionTimestamp"):
            self._wait_no_more(name)
            return None
        if FINALIZER not in ((obj.get("spec") or {}).get("finalizers") or ()):
            self._wait_no_more(name)
            return None  # others hold it
        self._waiting.add(name)  # before counting, so that no later deletion goes unnoticed
        left = await self._empty(name, revision, remote=self._remote)
        uid = obj["metadata"].get("uid") or ""
        if left:
            await self._write_conditions(name, uid, left)
            return HURRY_SECONDS if left.is_busy else WAITING_SECONDS
        self._wait_no_more(name)
        await self._finish(name, uid)
        self._removed[name] = 0
        return LEFTOVER_SECONDS[0]

    def _wait_no_more(self, name: str) -> None:
        self._waiting.discard(name)
        self._lacking.discard(name)
        self._told.pop(name, None)

    async def _read(self, name: str) -> tuple[Object | None, Revision]:
        """A namespace, and the revision at which it was so. Raises `CannotOpen`."""
        page = await self._storage.range(Span.of_key(self._namespaces.key_of(name)))
        if not page.items:
            return None, page.revision
        value = page.items[0].value
        check_opened(value)
        obj: Object = load(value)
        return obj, page.revision

    async def _sweep_removed(self, name: str, revision: Revision) -> float | None:
        """Remove what a writer that does not guard its creates has left in a namespace now gone."""
        self._wait_no_more(name)
        looks = self._removed.get(name)
        if looks is None:
            return None
        left = await self._empty(name, revision)
        if left and not left.is_busy:  # else it may just have been made again
            logger.warning("objects were left in the removed namespace %s: %s", name, left.counts)
        if looks + 1 == len(LEFTOVER_SECONDS):
            del self._removed[name]
            return None
        self._removed[name] = looks + 1
        return LEFTOVER_SECONDS[looks + 1]

    async def _empty(
        self, name: str, revision: Revision, *, remote: RemoteContents | None = None
    ) -> Leftovers:
        """Delete what was in a namespace at a revision; what is left after that.

        What was written later may belong to a new namespace of the same name. Of what is `remote`
        that is not known, so nobody is asked to delete it once the namespace is gone.
        """
        left = Leftovers()
        # Nothing new comes into a namespace that is being deleted, so what is there now is all.
        roots = await self._stored_roots()
        # What is hosted may change during the pass: all of it goes by what is hosted now.
        known = {resource.root for resource in self._catalog}
        pods, others = _in_order(self._catalog)
        for group in (pods, others):
            for resource in group:
                if resource.root in roots and await self._count(resource.root, name):
                    await self._delete_all(resource, name, left, revision)
            if left and group is pods:
                return left  # all else waits for these
        if remote is not None:
            await remote.empty(name, left)
        if not left:
            await self._note_unknown(name, left, [root for root in roots if root not in known])
        # What failed at another server may soon be known to be so, or go well again.
        if left.unknown or left.undiscovered or (remote is not None and left.failures):
            self._lacking.add(name)
        else:
            self._lacking.discard(name)
        return left

    async def _note_unknown(self, name: str, left: Leftovers, roots: list[str]) -> None:
        """Look for objects of kinds that are not hosted here, or not yet.

        They are not for this server to delete, but the namespace may not go before them.
        """
        for root in roots:
            count = await self._count(root, name)
            if count:
                title = root[len(OBJECTS_PREFIX) : -1]
                left.counts[title] = count
                left.unknown.append(title)

    async def _stored_roots(self) -> dict[str, None]:
        """How the keys of kinds begin of which there are objects, in order."""
        found: dict[str, None] = {}
        span = Span.of_prefix(OBJECTS_PREFIX)
        while True:
            page = await self._storage.range(span, limit=1)
            if not page.items:
                return found
            root = f"{OBJECTS_PREFIX}{resource_of(page.items[0].key)}/"
            found[root] = None
            behind = Span.of_prefix(root).end
            assert behind is not None, "a root is not the last text there is"
            span = span.starting_at(behind)

    async def _count(self, root: str, name: str) -> int:
        return await self._storage.count(Span.of_prefix(f"{root}{name}/"))

    async def _delete_all(
        self, resource: Resource, name: str, left: Leftovers, revision: Revision
    ) -> None:
        cache = await self._store.read(resource)
        page = cache.select(f"{name}/")
        title = str(resource.kind.group_resource)
        for path, why in cache.damaged.items():
            if path.startswith(f"{name}/"):
                left.failures.append(f"{title} {path} cannot be read: {why}")

        async def delete(found: tuple[str, Entry]) -> None:
            path, entry = found
            metadata = read_metadata(entry[2])
            if entry[0] > revision:
                left.note_busy()
            elif metadata is not None and (
                # One that waits for its dependents need not wait here: they go as well.
                not metadata.deletion_timestamp
                or strategy.FOREGROUND in (metadata.finalizers or ())
            ):
                try:
                    # The uid, because in the meantime the name may have been given away again.
                    options = DeleteOptions(
                        policy="Background", uid=metadata.uid, grace_seconds=None
                    )
                    version = stored_version(resource, entry[1])
                    await self._store.delete(resource, version, path, options)
                except (status.NotFound, status.Conflict):
                    return
                except StatusError as error:
                    left.failures.append(f"{title} {path}: {error}")

        await for_each(zip(page.keys, page.entries, strict=True), delete)
        await self._note_left(resource, name, left)

    async def _note_left(self, resource: Resource, name: str, left: Leftovers) -> None:
        count = await self._count(resource.root, name)
        if not count:
            return
        left.counts[f"{resource.plural}.{resource.group}"] = count
        cache = await self._store.read(resource)
        for entry in cache.select(f"{name}/").entries:
            metadata = read_metadata(entry[2])
            for finalizer in (metadata.finalizers or ()) if metadata is not None else ():
                left.finalizers[finalizer] = left.finalizers.get(finalizer, 0) + 1

    async def _write_conditions(self, name: str, uid: str, left: Leftovers) -> None:
        """Say in the namespace's conditions what it waits for, once as long as that is so.

        A controller manager beside this server empties namespaces too, and puts the same state in
        other words. Whoever insisted would be answered, without end.
        """
        conditions = conditions_of(left)
        if self._told.get(name) == (uid, conditions):
            return
        now = strategy.timestamp(self._clock.wall())

        def change(obj: Object) -> Object:
            _check_uid(self._namespaces, obj, name, uid)
            state: dict[str, Any] = obj.get("status") or {}
            merged = merge_conditions(state.get("conditions") or [], conditions, now)
            obj["status"] = {**state, "phase": "Terminating", "conditions": merged}
            return obj

        await self._update(name, change, subresource="status")
        self._told[name] = (uid, conditions)

    async def _finish(self, name: str, uid: str) -> None:
        """Take away our finalizer; the namespace goes unless others have theirs."""

        def change(obj: Object) -> Object:
            _check_uid(self._namespaces, obj, name, uid)
            spec: dict[str, Any] = dict(obj.get("spec") or {})
            finalizers = [each for each in spec.pop("finalizers", None) or () if each != FINALIZER]
            obj["spec"] = {**spec, "finalizers": finalizers} if finalizers else spec
            return obj

        await self._update(name, change, subresource="finalize")

    async def _update(self, name: str, change: Any, *, subresource: str) -> None:
        await update_if_present(
            self._store, self._namespaces, name, change, subresource=subresource
        )


def _in_order(catalog: Catalog) -> tuple[list[Resource], list[Resource]]:
    """The kinds to empty: pods, and all others."""
    namespaced = [each for each in catalog.persisted() if each.kind.namespaced]
    first = [each for each in namespaced if not each.group and each.plural == "pods"]
    return first, [each for each in namespaced if each not in first]


def _check_uid(resource: Resource, obj: Object, name: str, uid: str) -> None:
    found = obj["metadata"].get("uid") or ""
    if found != uid:
        raise strategy.uid_conflict(resource, name, asked=uid, found=found)
