"""The trigger controller: discovers resources, and reconciles each of them periodically.

    discovery -> resources and APIs
    watches (StorageVersions, StorageStates, migrations) -> enqueue a resource
    workers -> reconcile it (`reconciler`), and enqueue it again: when the rules require it, when a
               watch sees a change, or after a third of a polling period

Watches only enqueue; every reconciliation reads its input itself. After a rejected or failed write
the resource is retried with backoff, without delaying others. Several controllers at once are
harmless, because every write is conditional.

Not here: leader election, and the rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from restow.aio import Backoff, Runtime, TaskFailure, Tasks, WorkQueue
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status_error import StatusError
from restow.apis.resources import STATES
from restow.client import (
    ApiClient,
    ClientError,
    ConnectionFailed,
    DiscoveredResources,
    Informer,
    Object,
    ObjectChange,
    RetryPolicy,
)
from restow.migration.event_sinks import (
    NO_RECORDER,
    NO_TRIGGER_METRICS,
    EventSink,
    TriggerMetrics,
)
from restow.migration.migration_objects import resource_of
from restow.migration.trigger.by_reports import DuplicateReporter
from restow.migration.trigger.observations import resource_of_state, state_name
from restow.migration.trigger.options import TriggerOptions
from restow.migration.trigger.reconciler import CensusOf, Known, Reconciler
from restow.migration.trigger.sources import (
    ConnectTo,
    NotKnownYet,
    SourceMissing,
    Sources,
    eligible_resources,
    has_storage_versions,
    served_migration_apis,
)
from restow.migration.trigger.storage_version_watch import Behind, StorageVersionWatch

DISCOVERY_SECONDS_MIN: Final = 5.0
"""Minimum interval between two reads of discovery, however many unknown resources appear."""
DISCOVERY_BACKOFF: Final = Backoff(initial_seconds=1, factor=2, max_seconds=600, jitter=0.5)
LEADERSHIP_SECONDS: Final = 1.0
RETRY_BACKOFF: Final = Backoff(initial_seconds=0.2, factor=2, max_seconds=60, jitter=0.5)
# Retries that would block a worker are left to the queue, which retries with backoff.
RETRY_POLICY: Final = RetryPolicy(attempts_max=2, wait_seconds_max=2.0)

_REFUSALS: Final = frozenset({404, 409, 422})

logger = logging.getLogger(__name__)


def _always() -> bool:
    return True


class TriggerController:
    """The trigger controller. Only the leader runs it, except a local one, which always runs."""

    def __init__(
        self,
        client: ApiClient,
        *,
        runtime: Runtime,
        settings: TriggerOptions,
        recorder: EventSink = NO_RECORDER,
        metrics: TriggerMetrics = NO_TRIGGER_METRICS,
        is_leader: Callable[[], bool] = _always,
        connect_to: ConnectTo | None = None,
        census: CensusOf | None = None,
    ) -> None:
        self._client = client.with_retry(RETRY_POLICY)
        self._runtime = runtime
        self._settings = settings
        self._recorder = recorder
        self._metrics = metrics
        self._is_leader = is_leader
        self._connect_to = connect_to
        self._census = census
        self._running: _Run | None = None

    @property
    def resources(self) -> tuple[GroupResource, ...]:
        """The resources that are tracked now."""
        return () if self._running is None else tuple(self._running.known)

    def wake(self) -> None:
        """Reconcile all resources now, as a new leader does."""
        if self._running is not None:
            self._running.wake_all()

    async def run(self) -> None:
        """Run until cancelled. Raises SourceMissing if the server lacks a needed API."""
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_failure(failure: TaskFailure) -> None:
            if not failed.done():
                failed.set_exception(failure.error)

        tasks = self._runtime.tasks("trigger", on_failure=on_failure)
        sources = Sources(
            self._client,
            self._settings,
            tasks=tasks,
            is_leader=self._is_leader,
            connect_to=self._connect_to,
        )
        reconciler = Reconciler(
            self._client,
            sources,
            self._settings,
            tasks=tasks,
            recorder=self._recorder,
            metrics=self._metrics,
            census=self._census,
        )
        run = self._running = _Run(
            self._client,
            self._settings,
            runtime=self._runtime,
            tasks=tasks,
            sources=sources,
            reconciler=reconciler,
            metrics=self._metrics,
            is_leader=self._is_leader,
        )
        try:
            async with tasks:
                run.start()
                await failed
        finally:
            self._running = None
            run.queue.close()
            await sources.close()


class _Run:
    """One run of the controller, without state of earlier runs."""

    def __init__(
        self,
        client: ApiClient,
        settings: TriggerOptions,
        *,
        runtime: Runtime,
        tasks: Tasks,
        sources: Sources,
        reconciler: Reconciler,
        metrics: TriggerMetrics,
        is_leader: Callable[[], bool],
    ) -> None:
        self._client = client
        self._settings = settings
        self._runtime = runtime
        self._tasks = tasks
        self._sources = sources
        self._reconciler = reconciler
        self._metrics = metrics
        self._is_leader = is_leader
        self._watched: set[GroupVersionResource] = set()
        self._unknown_seen = asyncio.Event()
        self._awaited = ""
        self.known: dict[GroupResource, Known] = {}
        self.queue: WorkQueue[GroupResource] = WorkQueue(
            "trigger",
            clock=runtime.clock,
            randomness=runtime.randomness,
            retry_backoff=RETRY_BACKOFF,
        )

    def start(self) -> None:
        self._tasks.spawn("discovery", self._discover())
        for number in range(self._settings.workers):
            self._tasks.spawn(f"worker {number}", self._work())
        if self._is_leader is not _always:
            self._tasks.spawn("leadership", self._watch_leadership())

    def wake_all(self) -> None:
        for resource in self.known:
            self.queue.add(resource)

    # Discovery.

    async def _discover(self) -> None:
        """Read discovery periodically: early if it was incomplete, or if a resource is unknown.

        Nothing is reconciled before the first complete read: a source that is only missing from an
        incomplete discovery must not count as missing.
        """
        is_checked, failures = False, 0
        while True:
            wait_seconds = self._settings.reconcile_seconds
            try:
                # KEP-2343 4.10: read discovery periodically
                found = await self._client.discover()
                is_told = self._is_discovered(found, is_first=not is_checked)
                is_checked = is_checked or is_told
                if is_checked:
                    await self._sources.count_servers()
                    self._take(found, has_apis=is_told)
                failures = failures + 1 if found.failures else 0
            except (StatusError, ConnectionFailed) as error:
                logger.warning("discovery could not be read: %s", error)
                failures += 1
            if failures:
                backoff_seconds = DISCOVERY_BACKOFF.delay_seconds(
                    failures - 1, self._runtime.randomness
                )
                wait_seconds = min(wait_seconds, backoff_seconds)
            await self._pause(wait_seconds)

    def _is_discovered(self, found: DiscoveredResources, *, is_first: bool) -> bool:
        """Whether discovery is complete enough to choose the sources. An API that was served before
        may be missing from a server that is starting: this is an error only at first."""
        try:
            return self._sources.check(found)
        except SourceMissing as error:
            if is_first:
                raise
            logger.warning("keeping the APIs found before: %s", error)
            return False

    async def _pause(self, seconds: float) -> None:
        clock = self._runtime.clock
        shortest = min(seconds, DISCOVERY_SECONDS_MIN)
        await clock.sleep(shortest)
        try:
            async with clock.timeout(seconds - shortest):
                await self._unknown_seen.wait()
        except TimeoutError:
            pass
        self._unknown_seen.clear()

    def _take(self, found: DiscoveredResources, *, has_apis: bool) -> None:
        """Track the resources in discovery; those of groups that could not be read stay."""
        now = eligible_resources(found)
        kept = {
            name
            for name, each in self.known.items()
            if each.found.name.group_version in found.failures
        }
        for name in self.known.keys() - now.keys() - kept:
            del self.known[name]
        new = [name for name in now if name not in self.known]
        for name, each in now.items():
            self.known.setdefault(name, Known(each)).renew(each)
        if has_apis:
            apis = served_migration_apis(found)
            self._reconciler.use_apis(apis)
            self._watch_apis(found, apis)
        for name in new:
            self.queue.add(name)

    def _watch_apis(
        self, found: DiscoveredResources, migration_apis: Sequence[GroupVersionResource]
    ) -> None:
        """Start watches on newly served APIs. Without watches there is only polling."""
        if self._sources.lacks_watch and has_storage_versions(found):
            watch = StorageVersionWatch(self._client, on_change=self._wake)
            self._sources.follow(watch)
            self._tasks.spawn("storage versions", watch.run())
        served = {each.resource: each.verbs for each in found.resources}
        for api in (STATES, *migration_apis):
            if api not in self._watched and "watch" in served.get(api, ()):
                self._watched.add(api)
                # KEP-2343 4.16: an informer on migrations
                informer = Informer(self._client, api)
                of = resource_of_state if api == STATES else resource_of
                informer.on_change(partial(self._on_change, of))
                self._tasks.spawn(f"informer {api}", informer.run())

    def _on_change(self, of: Callable[[Object], GroupResource], change: ObjectChange) -> None:
        for each in (change.old, change.new):
            if each is not None:
                self._wake(of(each))

    def _wake(self, resource: GroupResource) -> None:
        if resource in self.known:
            self.queue.add(resource)
        else:
            self._unknown_seen.set()

    async def _watch_leadership(self) -> None:
        """Reconcile all resources on becoming the leader; drop the memories on losing it."""
        was_leader = False
        while True:
            is_leader = self._is_leader()
            if was_leader and not is_leader and not self._settings.is_local:
                for each in self.known.values():
                    each.memories.clear()
            if is_leader and not was_leader:
                self.wake_all()
            was_leader = is_leader
            await self._runtime.clock.sleep(LEADERSHIP_SECONDS)

    # Workers.

    async def _work(self) -> None:
        while True:
            resource = await self.queue.get()
            try:
                await self._reconcile(resource)
            finally:
                self.queue.done(resource)

    async def _reconcile(self, resource: GroupResource) -> None:
        """Reconcile one resource; any error is logged and retried with backoff."""
        known = self.known.get(resource)
        if known is None:
            self.queue.forget(resource)
            return
        if not self._settings.is_local and not self._is_leader():
            self.queue.forget(resource)
            return
        early_seconds = known.not_before_seconds - self._runtime.clock.monotonic()
        if early_seconds > 0:
            self.queue.add_after(resource, early_seconds)
            return
        try:
            wait_seconds = await self._reconciler.reconcile(known)
        except Exception as error:  # noqa: BLE001 - the edge of a task: logged with its name
            self._note(resource, error)
            self.queue.retry(resource)
        else:
            self.queue.forget(resource)
            self.queue.add_after(resource, wait_seconds)
            self._count_states()

    def _note(self, resource: GroupResource, error: Exception) -> None:
        if isinstance(error, NotKnownYet):
            # All resources wait for the same thing: it is logged once.
            level = logging.DEBUG if str(error) == self._awaited else logging.INFO
            self._awaited = str(error)
            logger.log(level, "%s waits: %s", resource, error)
            return
        if isinstance(error, StatusError) and error.code in _REFUSALS:
            logger.info("%s was changed concurrently: %s", resource, error)
            return
        self._metrics.failed(state_name(resource))
        if isinstance(error, StatusError | ClientError | Behind | DuplicateReporter):
            logger.warning("reconciling %s failed, retrying: %s", resource, error)
        else:
            logger.error("reconciling %s failed, retrying", resource, exc_info=error)

    def _count_states(self) -> None:
        told = [each.is_agreed for each in self.known.values() if each.is_agreed is not None]
        self._metrics.states(agreed=sum(told), split=len(told) - sum(told))
