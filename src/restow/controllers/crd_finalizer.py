"""Finalizer of CRDs: deletes the custom resources of a CRD that is being deleted, then the CRD.

First all servers must reject creates of the resource; then the instances are deleted in pages. An
instance with finalizers is only marked, and the CRD waits for it. The progress is written into the
condition Terminating. A CRD whose names were never accepted has no instances.

Not here: the rejection of creates, which every server does itself, and names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from restow.aio import Backoff, Runtime, WorkQueue
from restow.apimachinery import status
from restow.apimachinery.names import GroupResource
from restow.apimachinery.status_error import StatusError
from restow.controllers import crd_conditions as conditions
from restow.controllers.crd_names import group_of, resource_named
from restow.controllers.object_keys import read_metadata, stored_version
from restow.controllers.object_updates import update_if_present
from restow.kinds.defaults.crds import CLEANUP_FINALIZER
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import (
    TERMINATING,
    CustomResourceDefinition,
    definition_key,
    read_definition,
)
from restow.registry.reconcile_loops import for_each
from restow.registry.resource import Object, Resource
from restow.registry.store import DeleteOptions, ResourceStore
from restow.registry.strategy import timestamp, uid_conflict
from restow.registry.watch_cache import Entry
from restow.storage.checks import OBJECTS_PREFIX, resource_of
from restow.storage.interface import Span

WAITING: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=30, jitter=0.3)
"""When to check a waiting CRD again if no change is reported."""
CHANGE_DELAY_SECONDS: Final = 0.1
"""Delay after a reported change, because many instances may be removed together."""
UNCONFIRMED_SECONDS: Final = 60.0
"""How long the finalizers of instances may delay the deletion before the condition reports it."""
FAILURES_SHOWN_MAX: Final = 5
_PAGE: Final = 500

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wait:
    """State of a CRD that is being deleted, in this leader term."""

    uid: str
    checks: int = 0
    """Number of checks without progress."""
    marked_at: float | None = None
    """When all instances were deleted or marked; no instances are created after that."""


class CrdFinalizer:
    """Deletes instances and CRDs that are being deleted. A new one is created for each leader
    term."""

    def __init__(
        self,
        store: ResourceStore,
        catalog: Catalog,
        runtime: Runtime,
        *,
        definitions: Resource,
        closed_by_all: Callable[[str, str, str], bool],
        hosted_otherwise: Callable[[str, str], bool],
    ) -> None:
        self._store = store
        self._storage = store.storage
        self._catalog = catalog
        self._clock = runtime.clock
        self._randomness = runtime.randomness
        self._definitions = definitions
        self._closed_by_all = closed_by_all
        self._hosted_otherwise = hosted_otherwise
        self._waits: dict[str, _Wait] = {}
        self._unhosted: set[str] = set()  # CRDs that wait until this server hosts their resource
        self.queue: WorkQueue[str] = runtime.work_queue("definition cleanup")

    # Events.

    def on_removal(self, key: str) -> None:
        """Handle the removal of an object that a CRD may wait for."""
        if not self._waits:
            return
        group, slash, plural = (resource_of(key) or "").partition("/")
        name = f"{plural}.{group}"
        wait = self._waits.get(name) if slash else None
        if wait is not None and wait.marked_at is not None:
            self.queue.add_after(name, CHANGE_DELAY_SECONDS)

    def wake(self, name: str) -> None:
        """Handle a new report of the servers about the resource of a CRD."""
        if name in self._waits:
            self.queue.add(name)

    def hosting_changed(self, group: str) -> None:
        """Handle a change of the resources that this server hosts in a group."""
        for name in self._unhosted:
            if group_of(name) == group:
                self.queue.add(name)

    # Reconciliation.

    async def reconcile(self, name: str) -> float | None:
        """Continue the deletion of one CRD; return the seconds after which to check again."""
        self._unhosted.discard(name)
        item = await self._storage.get(definition_key(name))
        definition = None if item is None else read_definition(item)
        if (
            definition is None
            or not definition.is_closing
            or CLEANUP_FINALIZER not in definition.finalizers
        ):
            self._waits.pop(name, None)
            return None
        wait = self._waits.get(name)
        if wait is None or wait.uid != definition.uid:
            wait = self._waits[name] = _Wait(definition.uid)
        end = await self._empty(definition, wait)
        if end is None:
            wait.checks += 1
            return WAITING.delay_seconds(wait.checks - 1, self._randomness)
        await self._finish(definition, end)
        self._waits.pop(name, None)
        return None

    async def _empty(
        self, definition: CustomResourceDefinition, wait: _Wait
    ) -> conditions.Condition | None:
        """Delete the instances; return the final condition, or None if the CRD must wait."""
        group, plural = resource_named(definition.name)
        root = f"{OBJECTS_PREFIX}{group}/{plural}/"
        if self._is_builtin(group, plural, root) or self._hosted_otherwise(group, plural):
            return conditions.OVERLAPPING
        # A CRD whose names were never accepted is not served.
        is_served = definition.is_hostable
        if is_served and not self._closed_by_all(group, plural, definition.uid):
            await self._write_condition(definition, conditions.DELETION_PENDING)
            return None
        remaining = await self._storage.count(Span.of_prefix(root))
        if remaining:
            resource = self._catalog.named(group, plural)
            is_hosted = resource is not None and _is_made_of(resource, definition)
            if not is_hosted and not definition.is_hostable:
                return conditions.NEVER_ESTABLISHED
            if resource is None or not is_hosted:
                self._unhosted.add(definition.name)
                await self._write_condition(
                    definition, conditions.not_listed(_unhosted(group, plural))
                )
                return None
            remaining = await self._delete_all(definition, resource, wait)
        if remaining:
            return None
        is_known = definition.established or wait.marked_at is not None
        return conditions.DELETION_COMPLETED if is_known else conditions.NEVER_ESTABLISHED

    def _is_builtin(self, group: str, plural: str, root: str) -> bool:
        """Whether a built-in kind stores its objects under this prefix."""
        resource = self._catalog.named(group, plural)
        return resource is not None and resource.origin is None and resource.root == root

    async def _delete_all(
        self, definition: CustomResourceDefinition, resource: Resource, wait: _Wait
    ) -> int:
        """Delete all instances once; return the number of remaining ones."""
        if wait.marked_at is None:
            current = definition.condition(TERMINATING)
            if current is None or current.reason == conditions.DELETION_PENDING["reason"]:
                await self._write_condition(definition, conditions.DELETION_IN_PROGRESS)
            failures = await delete_instances(self._store, resource)
            if failures:
                await self._write_condition(definition, conditions.not_deleted(failures))
            else:
                wait.marked_at, wait.checks = self._clock.monotonic(), 0
        elif self._clock.monotonic() - wait.marked_at >= UNCONFIRMED_SECONDS:
            await self._write_condition(definition, conditions.DELETION_UNCONFIRMED)
        return await self._storage.count(Span.of_prefix(resource.root))

    # Writing.

    async def _write_condition(
        self, definition: CustomResourceDefinition, wanted: conditions.Condition
    ) -> None:
        """Write the condition Terminating, unless it is set already."""
        current = definition.condition(TERMINATING)
        if current is not None and (current.reason, current.message) == (
            wanted["reason"],
            wanted["message"],
        ):
            return

        def change(obj: Object) -> Object:
            return self._with_condition(obj, definition, wanted)

        await self._update(definition.name, change)

    async def _finish(
        self, definition: CustomResourceDefinition, end: conditions.Condition
    ) -> None:
        """Remove our finalizer; the CRD is removed unless it has other finalizers."""

        def change(obj: Object) -> Object:
            metadata = obj["metadata"]
            finalizers = metadata.get("finalizers") or []
            metadata["finalizers"] = [each for each in finalizers if each != CLEANUP_FINALIZER]
            return self._with_condition(obj, definition, end)

        await self._update(definition.name, change)

    def _with_condition(
        self, obj: Object, definition: CustomResourceDefinition, wanted: conditions.Condition
    ) -> Object:
        found = obj["metadata"].get("uid") or ""
        if found != definition.uid:
            raise uid_conflict(
                self._definitions, definition.name, asked=definition.uid, found=found
            )
        state = obj.get("status") or {}
        now = timestamp(self._clock.wall())
        old = state.get("conditions") or []
        state["conditions"] = conditions.set_conditions(old, [wanted], now=now)
        obj["status"] = state
        return obj

    async def _update(self, name: str, change: Callable[[Object], Object]) -> None:
        await update_if_present(self._store, self._definitions, name, change, subresource="status")


async def delete_instances(store: ResourceStore, resource: Resource) -> list[str]:
    """Delete all objects of a resource, or mark the ones that have finalizers.

    Return why some could not be deleted. Admission is not called: they are deleted with their kind.
    """
    failures: list[str] = []

    async def delete(found: tuple[str, Entry]) -> None:
        path, entry = found
        metadata = read_metadata(entry[2])
        if metadata is None or metadata.deletion_timestamp:
            return
        try:
            version = stored_version(resource, entry[1])
            await store.delete(resource, version, path, DeleteOptions(uid=metadata.uid))
        except (status.NotFound, status.Conflict):
            return  # removed already
        except StatusError as error:
            failures.append(str(error))

    cache = await store.read(resource)
    start = ""
    while len(failures) < FAILURES_SHOWN_MAX:
        page = cache.select(start=start, limit=_PAGE)
        if not page.keys:
            break
        await for_each(zip(page.keys, page.entries, strict=True), delete)
        start = page.keys[-1] + "\0"
    failures += [f"{path} cannot be read: {why}" for path, why in cache.damaged.items()]
    return sorted(failures)[:FAILURES_SHOWN_MAX]


def _is_made_of(resource: Resource, definition: CustomResourceDefinition) -> bool:
    return resource.origin is not None and resource.origin.uid == definition.uid


def _unhosted(group: str, plural: str) -> str:
    name = GroupResource(group, plural)
    return f"unable to find a custom resource client for {name}: it is not served here yet"
