"""Controller of namespaces: creates the initial ones, and empties those that are being deleted.

A namespace that is being deleted keeps the finalizer `kubernetes` in its spec until it is empty.
Its objects are counted in the store, kind by kind and only for kinds that have objects at all, so
that unused kinds cost nothing. Pods are deleted first, the rest when no pod is left. An object with
finalizers is only marked, and so is a pod in its grace period, which the kubelet may shorten. The
namespace reports such objects in its conditions and waits for them, as it does for objects of kinds
that are not hosted here. Objects on aggregated servers are deleted through those servers
(`RemoteContents`).

Not here: rejecting new objects in such a namespace, which is a part of create.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from restow.aio import Runtime, WorkQueue
from restow.aio.events import EventChannel
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
from restow.registry.catalog import Catalog
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
RESYNC_SECONDS: Final = 60.0
WAITING_SECONDS: Final = 15.0
"""When to check a waiting namespace again if no change is reported."""
BUSY_SECONDS: Final = 0.5
"""When to check it again if an object was written during the pass."""
LEFTOVER_SECONDS: Final = (2.0, 30.0)
"""When to check a removed namespace for objects that were created at the last moment."""
_PAGE: Final = 200

logger = logging.getLogger(__name__)


class RemoteContents(Protocol):
    """The contents of namespaces on aggregated servers."""

    @property
    def changed(self) -> EventChannel[[str]]:
        """Called with an API group whose availability has changed."""

    async def empty(self, namespace: str, left: Leftovers) -> None:
        """Delete the contents of a namespace and add the remaining ones to `left`. Errors of
        aggregated servers are recorded, not raised."""


async def ensure_namespaces(store: ResourceStore, catalog: Catalog) -> None:
    """Create the namespaces of every cluster. Several servers may do so concurrently."""
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
            continue  # created by another server


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
        namespaces = catalog.required("", "Namespace")
        self._namespaces = namespaces
        self.queue: WorkQueue[str] = runtime.work_queue("namespace")
        self._waiting: set[str] = set()
        self._written_conditions: dict[str, tuple[str, list[Condition]]] = {}
        self._unavailable: set[str] = set()  # namespaces with objects of kinds not available now
        self._removed: dict[str, int] = {}  # removed namespaces, with the number of checks

    # Events.

    async def list_objects(self, revision: Revision) -> None:
        """Queue all namespaces that are being deleted."""
        async for item in items_below(self._storage, self._namespaces.root):
            if DELETING in item.value:
                self.queue.add(item.key[len(self._namespaces.root) :])

    def on_batch(self, batch: Batch) -> None:
        """Handle deletions of namespaces, and of objects that namespaces wait for."""
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
        """Handle a change of the resources that this server hosts."""
        for name in self._unavailable:
            self.queue.add_after(name, BUSY_SECONDS)

    async def resync(self) -> float:
        """Periodically create missing initial namespaces, and queue namespaces in deletion."""
        await ensure_namespaces(self._store, self._catalog)
        await self.list_objects(Revision(0))
        return RESYNC_SECONDS

    # Reconciliation.

    async def reconcile(self, name: str) -> float | None:
        """Continue the deletion of one namespace; return the seconds after which to check again."""
        obj, revision = await self._read(name)
        if obj is None:
            return await self._check_removed(name, revision)
        self._removed.pop(name, None)
        if not obj["metadata"].get("deletionTimestamp"):
            self._stop_waiting(name)
            return None
        if FINALIZER not in ((obj.get("spec") or {}).get("finalizers") or ()):
            self._stop_waiting(name)
            return None  # it waits for finalizers of others
        self._waiting.add(name)  # before counting, so that no later deletion is missed
        left = await self._empty(name, revision, remote=self._remote)
        uid = obj["metadata"].get("uid") or ""
        if left:
            await self._write_conditions(name, uid, left)
            return BUSY_SECONDS if left.is_busy else WAITING_SECONDS
        self._stop_waiting(name)
        await self._finish(name, uid)
        self._removed[name] = 0
        return LEFTOVER_SECONDS[0]

    def _stop_waiting(self, name: str) -> None:
        self._waiting.discard(name)
        self._unavailable.discard(name)
        self._written_conditions.pop(name, None)

    async def _read(self, name: str) -> tuple[Object | None, Revision]:
        """Return a namespace and the revision of the read. Raises `CannotOpen`."""
        page = await self._storage.range(Span.of_key(self._namespaces.key_of(name)))
        if not page.items:
            return None, page.revision
        value = page.items[0].value
        check_opened(value)
        obj: Object = load(value)
        return obj, page.revision

    async def _check_removed(self, name: str, revision: Revision) -> float | None:
        """Delete objects in a removed namespace, which a writer without a guard may have
        created."""
        self._stop_waiting(name)
        checks = self._removed.get(name)
        if checks is None:
            return None
        left = await self._empty(name, revision)
        if left and not left.is_busy:  # otherwise it may have been created again
            logger.warning("objects remain in the removed namespace %s: %s", name, left.counts)
        if checks + 1 == len(LEFTOVER_SECONDS):
            del self._removed[name]
            return None
        self._removed[name] = checks + 1
        return LEFTOVER_SECONDS[checks + 1]

    async def _empty(
        self, name: str, revision: Revision, *, remote: RemoteContents | None = None
    ) -> Leftovers:
        """Delete the contents of a namespace as of a revision; return the remaining ones.

        Objects that were written later may belong to a new namespace of the same name. Aggregated
        servers do not show revisions, so they are not called once the namespace is removed.
        """
        left = Leftovers()
        # No object can be created in a namespace that is being deleted: this list is complete.
        roots = await self._stored_roots()
        # The hosted resources may change during the pass: use one state for all of it.
        known = {resource.root for resource in self._catalog}
        pods, others = _in_order(self._catalog)
        for group in (pods, others):
            for resource in group:
                if resource.root in roots and await self._count(resource.root, name):
                    await self._delete_all(resource, name, left, revision)
            if left and group is pods:
                return left  # all other kinds are deleted after the pods
        if remote is not None:
            await remote.empty(name, left)
        if not left:
            await self._note_unknown(name, left, [root for root in roots if root not in known])
        # An aggregated server that failed may become available again.
        if left.unknown or left.undiscovered or (remote is not None and left.failures):
            self._unavailable.add(name)
        else:
            self._unavailable.discard(name)
        return left

    async def _note_unknown(self, name: str, left: Leftovers, roots: list[str]) -> None:
        """Record objects of kinds that this server does not host.

        This server cannot delete them, and the namespace must not be removed before them.
        """
        for root in roots:
            count = await self._count(root, name)
            if count:
                title = root[len(OBJECTS_PREFIX) : -1]
                left.counts[title] = count
                left.unknown.append(title)

    async def _stored_roots(self) -> dict[str, None]:
        """Return the key prefixes of all kinds that have objects, in order."""
        found: dict[str, None] = {}
        span = Span.of_prefix(OBJECTS_PREFIX)
        while True:
            page = await self._storage.range(span, limit=1)
            if not page.items:
                return found
            root = f"{OBJECTS_PREFIX}{resource_of(page.items[0].key)}/"
            found[root] = None
            behind = Span.of_prefix(root).end
            assert behind is not None, "every key prefix has an end"
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
                # One in foreground deletion need not wait: its dependents are deleted as well.
                not metadata.deletion_timestamp
                or strategy.FOREGROUND in (metadata.finalizers or ())
            ):
                try:
                    # The UID, because an object of the same name may have been created meanwhile.
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
        """Write the conditions of a namespace, once for each state.

        A separate controller manager may write different messages for the same state.
        Repeated writes would cause endless updates by both.
        """
        conditions = conditions_of(left)
        if self._written_conditions.get(name) == (uid, conditions):
            return
        now = strategy.timestamp(self._clock.wall())

        def change(obj: Object) -> Object:
            _check_uid(self._namespaces, obj, name, uid)
            state: dict[str, Any] = obj.get("status") or {}
            merged = merge_conditions(state.get("conditions") or [], conditions, now)
            obj["status"] = {**state, "phase": "Terminating", "conditions": merged}
            return obj

        await self._update(name, change, subresource="status")
        self._written_conditions[name] = (uid, conditions)

    async def _finish(self, name: str, uid: str) -> None:
        """Remove our finalizer; the namespace is removed unless it has other finalizers."""

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
    """Return the kinds to delete: pods, and all others."""
    namespaced = [each for each in catalog.persisted() if each.kind.namespaced]
    first = [each for each in namespaced if not each.group and each.plural == "pods"]
    return first, [each for each in namespaced if each not in first]


def _check_uid(resource: Resource, obj: Object, name: str, uid: str) -> None:
    found = obj["metadata"].get("uid") or ""
    if found != uid:
        raise strategy.uid_conflict(resource, name, asked=uid, found=found)
