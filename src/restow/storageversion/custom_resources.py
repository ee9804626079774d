"""Custom resources of one server: each is registered as its definition says, then hosted.

All servers follow the definitions. When one comes or changes, a server makes a resource of it,
reports how it will write it, and in the very step in which that may be written hosts it: routes,
discovery and the hash follow. Until then the old one is served as before; no write of its own can
commit in the old version afterwards, because the fence is the report. When a definition is being
deleted, the report says that nothing new is created here; when it is gone, so is the report.

A server that cannot prove that it knows the newest definitions takes back what it has reported of
custom resources, so that the others need not wait for it. Not here: what a definition means
(`resources.custom`), how a registration is computed (`registration_planner`), who sets conditions
and deletes the instances (`resources.housekeeping`).
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
from restow.registry.reconcile_loops import work_off
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
"""Registrations of custom resources under way at a time."""
FIRST_SECONDS_MAX: Final = 15.0
"""So long a server that starts waits for all of them."""
MOVED_SECONDS: Final = 0.05
REQUEUE_SECONDS: Final = 0.5
UNREADABLE_SECONDS: Final = 5.0
"""Between two scans of raw values that this server cannot read."""
STALE: Final = "this server does not know whether its definition has changed"

logger = logging.getLogger(__name__)

Making = Callable[[CustomResourceDefinition], Resource]
"""Makes a resource of a definition."""


class CustomRegistrar(Protocol):
    """How a server reports what it writes."""

    async def register(self, resource: Resource, *, opened: Callable[[], None]) -> bool:
        """Report a resource and open it, calling `opened` in the same step.

        Whether it is written as it prefers; if not, others do not know that version yet.
        """

    async def withdraw(self, resource: Resource, *, error: str = "", is_gone: bool = False) -> None:
        """Write it no more, and take back what was reported; `error` says why.

        `is_gone`: its definition is no more, and so are its objects.
        """

    def written(self, group: str, plural: str) -> Collection[str]:
        """The versions, without the group, that servers say they write."""


class Unregistered:
    """For a server alone, which reports to nobody. Satisfies `CustomRegistrar`."""

    async def register(self, resource: Resource, *, opened: Callable[[], None]) -> bool:
        opened()
        return True

    async def withdraw(self, resource: Resource, *, error: str = "", is_gone: bool = False) -> None:
        return None

    def written(self, group: str, plural: str) -> Collection[str]:
        return ()


@dataclass(slots=True)
class _Hosted:
    """A custom resource that this server serves, and what it was made from."""

    definition: CustomResourceDefinition
    resource: Resource
    is_settled: bool


class CustomResources:
    """Keeps the catalogue of one server in step with the definitions."""

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
        """Emitted for each resource that is not served any more, or is served in another way."""
        self.removed: Final = EventChannel[[str]]()
        """Emitted with the name of each CRD that is gone."""
        self._mirror = Mirror(storage, runtime, (ROOT,))
        self._mirror.listeners.append(self._note)
        self._queue: WorkQueue[str] = runtime.work_queue("definition")
        self._hosted: dict[str, _Hosted] = {}
        """By the name of the definition."""
        self._errors: dict[str, str] = {}
        self._waiting: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)
        """Who wants to know when a definition was looked at again."""
        self._first: set[str] = set()
        """What was defined at the start and was not looked at yet."""
        self._began = asyncio.Event()
        self._is_reloading = False
        """Whether the store was replaced, and its CRDs are not known yet."""
        self._is_fresh = True
        self._confirmed_at = runtime.clock.monotonic()
        self._tasks: Tasks | None = None

    @property
    def has_begun(self) -> bool:
        """Whether all that was defined at the start, or when the store was replaced, was looked at:
        what is unknown now is so."""
        return self._began.is_set()

    async def start(self) -> None:
        """Follow the definitions: each custom resource is served when its own registration is done.

        Call it when this server has joined. Built-in resources are not waited for: a server that
        cannot register one of them serves custom resources all the same (KEP-2339, exception 5 of
        the write barrier).
        """
        clock = self._runtime.clock
        self._tasks = tasks = self._runtime.tasks("custom-resources", on_failure=lambda _: None)
        await self._mirror.start(tasks)
        self._confirmed_at = clock.monotonic()
        self._note_begun()
        for number in range(WORKERS):
            tasks.spawn_loop(f"worker {number}", work_off(self._queue, self._reconcile))

    async def wait_for_first(self) -> None:
        """Return when everything that was defined at the start is served, or takes too long."""
        try:
            async with self._runtime.clock.timeout(FIRST_SECONDS_MAX):
                await self._began.wait()
        except TimeoutError:
            logger.warning("%d custom resources are not served yet", len(self._first))

    def written(self, group: str, plural: str) -> Collection[str]:
        """The versions, without the group, that servers say they write."""
        return self._registration.written(group, plural)

    async def close(self) -> None:
        if self._tasks is not None:
            await self._tasks.close()

    # Being up to date.

    async def confirm(self, revision: Revision, *, seconds: float, stale_seconds: float) -> None:
        """Make sure that all definitions up to a revision are known; if they have not been for
        `stale_seconds`, take back what was reported."""
        if self._tasks is None:
            return  # nothing is served yet
        clock = self._runtime.clock
        asked_at = clock.monotonic()
        if await self._mirror.reach(revision, seconds=seconds):
            self._confirmed_at = asked_at
            if self._is_reloading:
                self._is_reloading = False
                self._first.update(self._known_names())
                self._note_begun()
                self._look_at_all()
            if not self._is_fresh:
                self._is_fresh = True
                logger.info("the definitions of custom resources are known again")
                self._look_at_all()
        elif self._is_fresh and clock.monotonic() - self._confirmed_at > stale_seconds:
            self._is_fresh = False
            logger.error("the definitions of custom resources are not known to be up to date")
            self._look_at_all()

    def store_replaced(self) -> None:
        """The store is another one: which CRDs it has is not known until `confirm` has reached a
        revision of it."""
        if self._tasks is not None:
            self._is_reloading = True
            self._began.clear()

    def register_all_again(self) -> None:
        """This server has another identity: nothing that it has reported counts."""
        for hosted in self._hosted.values():
            hosted.is_settled = False
        self._look_at_all()

    async def register_again(self, resource: Resource) -> None:
        """What was reported of a resource is gone: report it anew; returns when that was tried."""
        name = str(resource.kind.group_resource)
        if (hosted := self._hosted.get(name)) is not None:
            hosted.is_settled = False
            tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[name].append(tried)
            self._queue.add(name)
            await tried

    def report_changed(self, resource: GroupResource) -> None:
        """Another server has reported something: what waits for that may go on."""
        name = str(resource)
        hosted = self._hosted.get(name)
        if (hosted is not None and not hosted.is_settled) or name in self._errors:
            self._queue.add(name)

    def _look_at_all(self) -> None:
        """At what is hosted, and at what was defined while nothing could be."""
        for name in self._known_names():
            self._queue.add(name)

    def _known_names(self) -> Collection[str]:
        defined = [item.key.removeprefix(ROOT) for item in self._mirror.under(ROOT)]
        return dict.fromkeys((*self._hosted, *defined))

    def _note_begun(self) -> None:
        if not self._first and not self._is_reloading:
            self._began.set()

    # Definitions.

    def _note(self, key: Key, _item: Item | None) -> None:
        name = key.removeprefix(ROOT)
        if not self._began.is_set():
            self._first.add(name)
        self._queue.add(name)

    async def _reconcile(self, name: str) -> float | None:
        """Serve what a definition says now. Returns when to look again, if need be."""
        waiting = self._waiting.pop(name, [])
        try:
            again_seconds = await self._serve(name)
            self._errors.pop(name, None)
        except DefinitionMoved:
            again_seconds = MOVED_SECONDS  # the watch will tell more
        except (CoordinationError, StorageError, MachineryError) as error:
            if self._errors.get(name) != str(error):
                self._errors[name] = str(error)
                logger.warning("%s is not served as defined: %s", name, error)
            is_unreadable = isinstance(error, VersionUnsupported)
            again_seconds = UNREADABLE_SECONDS if is_unreadable else REQUEUE_SECONDS
        finally:
            for tried in waiting:
                if not tried.done():
                    tried.set_result(None)
            self._first.discard(name)
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
            # It cannot be served as it is defined now, but it can be closed as it was.
            self._note_newer(hosted, definition)
            return await self._host_if_fresh(name, hosted)

    def _note_newer(self, hosted: _Hosted, definition: CustomResourceDefinition) -> None:
        """The same resource of a newer definition: that is what is held against the store."""
        origin = hosted.resource.origin
        assert origin is not None
        origin.note_newer(definition.revision)
        if definition.is_closing and not origin.is_closing:
            # Nothing new is created; watches go on to the end.
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
        """Register it, and serve it from the moment in which it may be written."""

        def opened() -> None:
            before = self._hosted.get(name)
            self._hosted[name] = hosted
            if before is None or before.resource is not hosted.resource:
                if before is not None:
                    self.replaced.emit(before.resource)
                self._catalog.host(hosted.resource)

        hosted.is_settled = await self._registration.register(hosted.resource, opened=opened)
        return None if hosted.is_settled else REQUEUE_SECONDS

    async def _end(self, name: str, hosted: _Hosted, *, is_gone: bool) -> None:
        """Nobody finds it any more, then nobody waits for this server because of it."""
        self._catalog.drop(hosted.resource.group, hosted.resource.plural)
        self.replaced.emit(hosted.resource)
        del self._hosted[name]
        self.removed.emit(name)
        await self._registration.withdraw(hosted.resource, is_gone=is_gone)
