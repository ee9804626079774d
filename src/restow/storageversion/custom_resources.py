"""Custom resources of one server: each is registered as its CRD defines it, then hosted.

All servers follow the CRDs. When a CRD is created or changed, a server builds a resource from it,
reports how it will write it, and hosts it in the same step in which it may be written: routes,
discovery and the hash follow. Until then the old resource is served; after that no write in the old
version can commit, because the fence compares the encoder key. While a CRD is being deleted, the
entry says that this server creates no new objects; when the CRD is deleted, the entry is removed.

A server that cannot confirm that it has the newest CRDs withdraws its entries of custom resources,
so that the others need not wait for it. Not here: the meaning of a CRD (`restow.registry.custom`),
how a registration is computed (`registration_planner`), and the controllers that set conditions and
delete the instances (`controllers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from restow.aio import Runtime, Tasks, WorkQueue
from restow.aio.events import EventChannel
from restow.apimachinery.errors import MachineryError
from restow.apimachinery.names import GroupResource
from restow.registry.catalog import Catalog
from restow.registry.custom.crds import (
    ROOT,
    CustomResourceDefinition,
    definition_key,
    read_definition,
)
from restow.registry.reconcile_loops import run_worker
from restow.registry.resource import Resource
from restow.storage.errors import StorageError
from restow.storage.interface import Item, Key, Revision, Storage
from restow.storageversion.errors import (
    CoordinationError,
    DefinitionMoved,
    NotSettled,
    VersionUnsupported,
)
from restow.storageversion.mirror import Mirror

WORKERS: Final = 8
"""Maximum number of concurrent registrations of custom resources."""
FIRST_SECONDS_MAX: Final = 15.0
"""How long a starting server waits for all custom resources."""
MOVED_SECONDS: Final = 0.05
REQUEUE_SECONDS: Final = 0.5
UNREADABLE_SECONDS: Final = 5.0
"""Interval between two scans of raw values that this server cannot read."""
STALE: Final = "this server cannot confirm that it has the newest CRD"

logger = logging.getLogger(__name__)

Making = Callable[[CustomResourceDefinition], Resource]
"""Builds a resource from a CRD."""


class CustomRegistrar(Protocol):
    """Registers custom resources with the other servers."""

    async def register(self, resource: Resource, *, opened: Callable[[], None]) -> bool:
        """Report a resource and open it, calling `opened` in the same step.

        Return whether it is written in the preferred version; if not, other servers do not support
        that version yet.
        """

    async def withdraw(self, resource: Resource, *, error: str = "", is_gone: bool = False) -> None:
        """Close a resource and withdraw its entry; `error` is the reason, for clients.

        `is_gone`: the CRD is deleted, and so are its objects.
        """

    def written(self, group: str, plural: str) -> Collection[str]:
        """Return the versions, without the group, that servers report as written."""


class Unregistered:
    """Registrar of a single server without coordination. Implements `CustomRegistrar`."""

    async def register(self, resource: Resource, *, opened: Callable[[], None]) -> bool:
        opened()
        return True

    async def withdraw(self, resource: Resource, *, error: str = "", is_gone: bool = False) -> None:
        return None

    def written(self, group: str, plural: str) -> Collection[str]:
        return ()


@dataclass(slots=True)
class _Hosted:
    """A custom resource that this server serves, and the CRD that it was built from."""

    definition: CustomResourceDefinition
    resource: Resource
    is_settled: bool


class CustomResources:
    """Keeps the catalog of one server in step with the CRDs."""

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        runtime: Runtime,
        *,
        registration: CustomRegistrar,
        make: Making,
    ) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._registration = registration
        self._make = make
        self.replaced: Final = EventChannel[[Resource]]()
        """Emitted for each resource that is no longer served, or is replaced by another one."""
        self.removed: Final = EventChannel[[str]]()
        """Emitted with the name of each deleted CRD."""
        self._mirror = Mirror(storage, runtime, (ROOT,))
        self._mirror.changed.subscribe(self._note)
        self._queue: WorkQueue[str] = runtime.work_queue("definition")
        self._hosted: dict[str, _Hosted] = {}
        """By the name of the CRD."""
        self._errors: dict[str, str] = {}
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        """Futures to resolve after the next reconciliation of a CRD, by its name."""
        self._unreconciled: set[str] = set()
        """CRDs that existed at the start and are not reconciled yet."""
        self._began = asyncio.Event()
        self._is_reloading = False
        """Whether the store was replaced and its CRDs are not loaded yet."""
        self._is_fresh = True
        self._confirmed_at = runtime.clock.monotonic()
        self._tasks: Tasks | None = None

    @property
    def has_begun(self) -> bool:
        """Whether all CRDs that existed at the start, or when the store was replaced, are
        reconciled: a resource that is unknown then does not exist."""
        return self._began.is_set()

    async def start(self) -> None:
        """Follow the CRDs; each custom resource is served once its own registration is complete.

        Call it when this server has joined. It does not wait for built-in resources: a server that
        cannot register one of them still serves custom resources (KEP-2339, exception 5 of the
        write barrier).
        """
        clock = self._runtime.clock
        self._tasks = tasks = self._runtime.tasks("custom-resources", on_failure=lambda _: None)
        # KEP-2339 3.30: custom resources do not wait for built-in ones
        await self._mirror.start(tasks)
        self._confirmed_at = clock.monotonic()
        self._note_begun()
        for number in range(WORKERS):
            tasks.spawn_loop(f"worker {number}", run_worker(self._queue, self._reconcile))

    async def wait_for_first(self) -> None:
        """Return when all CRDs that existed at the start are reconciled, or after a time limit."""
        try:
            async with self._runtime.clock.timeout(FIRST_SECONDS_MAX):
                await self._began.wait()
        except TimeoutError:
            logger.warning("%d custom resources are not served yet", len(self._unreconciled))

    def written(self, group: str, plural: str) -> Collection[str]:
        """Return the versions, without the group, that servers report as written."""
        return self._registration.written(group, plural)

    async def close(self) -> None:
        if self._tasks is not None:
            await self._tasks.close()

    # Freshness.

    async def confirm(self, revision: Revision, *, seconds: float, stale_seconds: float) -> None:
        """Wait until all CRDs up to a revision are loaded; withdraw the entries if that has not
        succeeded for `stale_seconds`."""
        if self._tasks is None:
            return  # nothing is served yet
        clock = self._runtime.clock
        asked_at = clock.monotonic()
        if await self._mirror.reach(revision, seconds=seconds):
            self._confirmed_at = asked_at
            if self._is_reloading:
                self._is_reloading = False
                self._unreconciled.update(self._known_names())
                self._note_begun()
                self._enqueue_all()
            if not self._is_fresh:
                self._is_fresh = True
                logger.info("the CRDs are up to date again; registering custom resources")
                self._enqueue_all()
        elif self._is_fresh and clock.monotonic() - self._confirmed_at > stale_seconds:
            self._is_fresh = False
            logger.error(
                "cannot confirm that the CRDs are up to date: custom resources are withdrawn"
            )
            self._enqueue_all()

    def store_replaced(self) -> None:
        """Reload after the store was replaced: its CRDs are unknown until `confirm` has reached one
        of its revisions."""
        if self._tasks is not None:
            self._is_reloading = True
            self._began.clear()

    def register_all_again(self) -> None:
        """Register all custom resources again after this server has joined under a new id."""
        for hosted in self._hosted.values():
            hosted.is_settled = False
        self._enqueue_all()

    async def register_again(self, resource: Resource) -> None:
        """Register a resource again after its entry was removed; returns after the attempt."""
        name = str(resource.kind.group_resource)
        if (hosted := self._hosted.get(name)) is not None:
            hosted.is_settled = False
            tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[name].append(tried)
            self._queue.add(name)
            await tried

    def report_changed(self, resource: GroupResource) -> None:
        """Reconcile a resource that may wait for another server's entry."""
        name = str(resource)
        hosted = self._hosted.get(name)
        if (hosted is not None and not hosted.is_settled) or name in self._errors:
            self._queue.add(name)

    def _enqueue_all(self) -> None:
        """Reconcile all hosted resources and all CRDs."""
        for name in self._known_names():
            self._queue.add(name)

    def _known_names(self) -> Collection[str]:
        defined = [item.key.removeprefix(ROOT) for item in self._mirror.under(ROOT)]
        return dict.fromkeys((*self._hosted, *defined))

    def _note_begun(self) -> None:
        if not self._unreconciled and not self._is_reloading:
            self._began.set()

    # CRDs.

    def _note(self, key: Key, _item: Item | None) -> None:
        name = key.removeprefix(ROOT)
        if not self._began.is_set():
            self._unreconciled.add(name)
        self._queue.add(name)

    async def _reconcile(self, name: str) -> float | None:
        """Serve a resource as its CRD defines it. Returns the delay until the next attempt, if
        any."""
        waiting = self._waiting.pop(name, [])
        try:
            again_seconds = await self._serve(name)
            self._errors.pop(name, None)
        except DefinitionMoved:
            again_seconds = MOVED_SECONDS  # The watch delivers the newer CRD.
        except (CoordinationError, StorageError, MachineryError) as error:
            if self._errors.get(name) != str(error):
                self._errors[name] = str(error)
                logger.warning("%s is not served as its CRD defines it: %s", name, error)
            is_unreadable = isinstance(error, VersionUnsupported)
            again_seconds = UNREADABLE_SECONDS if is_unreadable else REQUEUE_SECONDS
        finally:
            for tried in waiting:
                if not tried.done():
                    tried.set_result(None)
            self._unreconciled.discard(name)
            self._note_begun()
        return again_seconds

    async def _serve(self, name: str) -> float | None:
        item = self._mirror.get(definition_key(name))
        definition = None if item is None else read_definition(item)
        hosted = self._hosted.get(name)
        if definition is None or not definition.is_hostable:
            if hosted is not None:
                await self._end(name, hosted, is_gone=definition is None)
            return None
        if hosted is not None and hosted.definition.uid != definition.uid:
            await self._end(name, hosted, is_gone=True)
            hosted = None
        built_in = self._catalog.named(definition.group, definition.accepted_names.plural)
        if built_in is not None and built_in.origin is None:
            raise NotSettled("the release of this server hosts a resource of that name")
        if hosted is not None and definition.means_the_same_as(hosted.definition):
            self._note_newer(hosted, definition)
            if hosted.is_settled and self._is_fresh:
                return None
            return await self._host_if_fresh(name, hosted)
        made = _Hosted(definition, self._make(definition), is_settled=False)
        try:
            return await self._host_if_fresh(name, made)
        except VersionUnsupported:
            if hosted is None or not definition.is_closing:
                raise
            # It cannot be served as its CRD defines it now, but it can be closed as it was.
            self._note_newer(hosted, definition)
            return await self._host_if_fresh(name, hosted)

    def _note_newer(self, hosted: _Hosted, definition: CustomResourceDefinition) -> None:
        """Record the newer CRD of an unchanged resource; the fence compares its revision."""
        origin = hosted.resource.origin
        assert origin is not None
        origin.note_newer(definition.revision)
        if definition.is_closing and not origin.is_closing:
            # No new objects are created; running watches continue to the end.
            origin.begin_closing()
            hosted.is_settled = False
            self._catalog.host(hosted.resource)

    async def _host_if_fresh(self, name: str, hosted: _Hosted) -> float | None:
        if not self._is_fresh:
            hosted.is_settled = False
            await self._registration.withdraw(hosted.resource, error=STALE)
            return None
        return await self._host(name, hosted)

    async def _host(self, name: str, hosted: _Hosted) -> float | None:
        """Register a resource, and serve it from the moment in which it may be written."""

        def opened() -> None:
            before = self._hosted.get(name)
            self._hosted[name] = hosted
            if before is None or before.resource is not hosted.resource:
                if before is not None:
                    self.replaced.emit(before.resource)
                # KEP-35 1.7: discovery shows the hash of the CRD's version from the same step on
                # KEP-2339 3.72: no lag between the version that is written and discovery
                self._catalog.host(hosted.resource)

        # KEP-2339 3.39: report a custom resource before it is served
        hosted.is_settled = await self._registration.register(hosted.resource, opened=opened)
        return None if hosted.is_settled else REQUEUE_SECONDS

    async def _end(self, name: str, hosted: _Hosted, *, is_gone: bool) -> None:
        """Remove a resource from the catalog, then withdraw its entry so that no server waits for
        it."""
        self._catalog.drop(hosted.resource.group, hosted.resource.plural)
        self.replaced.emit(hosted.resource)
        del self._hosted[name]
        self.removed.emit(name)
        await self._registration.withdraw(hosted.resource, is_gone=is_gone)
