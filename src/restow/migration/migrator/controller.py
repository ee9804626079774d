"""The migrator: processes the migrations of a server, of whichever API it has.

    informers          one for each migration API that is served
    open migrations    the oldest of each resource, several resources concurrently
    engine             runs one; its outcome decides whether to retry

It is level-triggered and keeps only the state of running migrations: results are in the objects. It
deletes nothing.

Not here: how a migration runs (`engine`), leader election (the caller's).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from restow.aio import Runtime, TaskFailure
from restow.apimachinery.names import GroupResource, GroupVersion
from restow.apimachinery.status import NotFound
from restow.apimachinery.status_error import StatusError
from restow.client import (
    ApiClient,
    ApiResource,
    ConnectionFailed,
    Informer,
    Object,
    metadata_of,
    uid_of,
)
from restow.migration.event_sinks import EventSink, MigratorMetrics
from restow.migration.migration_objects import (
    MIGRATION_APIS,
    is_being_deleted,
    is_proven,
    marks_of,
    phase_of,
    ref_of,
    resource_of,
)
from restow.migration.migration_values import MigrationPhase
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import Job, RunEnd, RunListener, RunOutcome
from restow.migration.migrator.options import MigratorOptions
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.progress import Progress
from restow.migration.names import REASON_FAILED, REASON_NO_RESOURCE
from restow.migration.records import record_of
from restow.migration.remote_apis import find_remote

STARTED: Final = "MigrationStarted"
RESUMED: Final = "MigrationResumed"
ABORTED: Final = "MigrationAborted"
SUCCEEDED: Final = "MigrationSucceeded"
FAILED: Final = "MigrationFailed"

VERBS_OF_PATCHES: Final = frozenset({"list", "patch"})
REMEMBERED_MAX: Final = 10_000
"""Limit of the migrations with retry state: when they were first seen, when to retry."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Memory:
    """Retry state of a migration that is not finished."""

    first_seen_seconds: float
    not_before_seconds: float = 0.0
    tries: int = 0
    """Consecutive tries without a processed page."""


@dataclass(slots=True)
class _Running:
    """A migration that runs."""

    resource: GroupResource
    is_paused: bool = False


@dataclass(slots=True)
class _Api:
    """One migration API and its informer."""

    resource: ApiResource
    informer: Informer


@dataclass(frozen=True, slots=True)
class _Open:
    """A migration to process."""

    migration: Object
    api: ApiResource
    resource: GroupResource = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "resource", resource_of(self.migration))

    @property
    def uid(self) -> str:
        return uid_of(self.migration)

    @property
    def age(self) -> tuple[str, str]:
        """Sort key: the oldest first."""
        created = metadata_of(self.migration).get("creationTimestamp")
        return str(created), ref_of(self.migration).name


class MigratorController:
    """Processes migrations until it is cancelled."""

    def __init__(
        self,
        client: ApiClient,
        *,
        runtime: Runtime,
        options: MigratorOptions,
        recorder: EventSink,
        metrics: MigratorMetrics,
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._clock = runtime.clock
        self._options = options
        self._recorder = recorder
        self._metrics = metrics
        self._engine = Engine(client, options=options.engine)
        self._apis: list[_Api] = []
        self._running: dict[str, _Running] = {}
        self._memories: dict[str, _Memory] = {}
        self._look = asyncio.Event()

    async def run(self) -> NoReturn:
        """Start open migrations whenever something has changed, until cancelled."""
        failed: list[BaseException] = []

        def on_failure(failure: TaskFailure) -> None:
            failed.append(failure.error)
            self._look.set()

        async with self._runtime.tasks("migrator", on_failure=on_failure) as tasks:
            tasks.spawn("apis", self._find_apis(tasks.spawn))
            while True:
                self._look.clear()
                if failed:
                    # Without an informer migrations would be missed: the caller restarts this.
                    raise failed[0]
                for each in self._next():
                    self._running[each.uid] = _Running(each.resource)
                    tasks.spawn(f"{each.resource} {each.uid}", self._work(each))
                await self._wait()

    @property
    def is_synced(self) -> bool:
        """Whether the caches of all migration APIs are synced."""
        return bool(self._apis) and all(each.informer.is_synced for each in self._apis)

    async def _find_apis(self, spawn: Callable[[str, Coroutine[Any, Any, None]], object]) -> None:
        """Start informers for the migration APIs that the server has, now or later."""
        while True:
            try:
                found = await find_migration_apis(self._client)
            except (StatusError, ConnectionFailed) as error:
                logger.info("the migration APIs cannot be read: %s", error)
                found = []
            known = {each.resource.group for each in self._apis}
            for resource in found:
                if resource.group not in known:
                    informer = Informer(self._client, resource.resource)
                    informer.on_change(lambda _change: self._look.set())
                    self._apis.append(_Api(resource, informer))
                    spawn(f"informer of {resource.group}", informer.run())
            await self._clock.sleep(self._options.discovery_seconds)

    async def _wait(self) -> None:
        """Wait until something has changed, or until the next retry is due."""
        now = self._clock.monotonic()
        due = [each.not_before_seconds for each in self._memories.values()]
        later = [moment - now for moment in due if moment > now]
        try:
            async with self._clock.timeout(min(later) if later else None):
                await self._look.wait()
        except TimeoutError:
            pass

    # Scheduling.

    def _next(self) -> list[_Open]:
        """Return the migrations to start now."""
        known = self._open()
        self._forget(each.uid for each in known)
        now = self._clock.monotonic()
        busy = {each.resource for each in self._running.values()}
        places = self._options.resources_at_once
        places -= sum(not each.is_paused for each in self._running.values())
        chosen: list[_Open] = []
        for each in sorted(known, key=lambda found: found.age):
            memory = self._memories.setdefault(each.uid, _Memory(first_seen_seconds=now))
            is_due = memory.not_before_seconds <= now
            if len(chosen) < places and is_due and each.resource not in busy:
                busy.add(each.resource)
                chosen.append(each)
        return chosen

    def _open(self) -> list[_Open]:
        return [
            _Open(migration, each.resource)
            for each in self._apis
            for migration in each.informer.objects()
            if is_open(migration)
        ]

    def _forget(self, uids: Iterable[str]) -> None:
        """Drop the retry state of finished migrations, and keep the rest within the limit."""
        kept = set(uids) | self._running.keys()
        self._memories = {uid: each for uid, each in self._memories.items() if uid in kept}
        while len(self._memories) > REMEMBERED_MAX:
            self._memories.pop(next(iter(self._memories)))

    # One migration.

    async def _work(self, found: _Open) -> None:
        began = self._clock.monotonic()
        label = str(found.resource)
        try:
            outcome, label = await self._try(found)
            self._conclude(found, outcome, label, seconds=self._clock.monotonic() - began)
        except Exception:  # the edge of a task: logged with its name, and retried
            logger.exception("the migration %s failed unexpectedly", ref_of(found.migration).name)
            self._retry_later(found.uid)
        finally:
            self._metrics.remaining(label, None)
            self._metrics.in_flight(label, 0)
            self._running.pop(found.uid, None)
            self._look.set()

    async def _try(self, found: _Open) -> tuple[RunOutcome, str]:
        place, migration = found.api.resource, found.migration
        try:
            resource = await find_resource(self._client, found.resource)
            is_remote = resource is not None and bool(
                await find_remote(self._client, resource.resource.group_version)
            )
        except (StatusError, ConnectionFailed) as error:
            message = str(error)
            return await self._interrupted(found, message), str(found.resource)
        if resource is None:
            return await self._unknown(found), str(found.resource)
        label = label_of(resource)
        job = Job(
            resource=resource, migration=migration, migration_api=found.api, is_remote=is_remote
        )
        missing = VERBS_OF_PATCHES - resource.verbs
        if missing and not job.can_rewrite:
            message = f"{found.resource} has no verb {', '.join(sorted(missing))}"
            failed = await self._engine.fail(
                migration, place, reason=REASON_FAILED, message=message
            )
            return failed, label
        outcome = await self._engine.run(job, self._listener(found, label))
        if outcome.ending is RunEnd.INTERRUPTED:
            outcome = await self._interrupted(found, outcome.message)
        return outcome, label

    async def _unknown(self, found: _Open) -> RunOutcome:
        """Wait before failing: a new resource takes a moment to appear in discovery."""
        message = f"the server has no resource {found.resource}"
        since = self._clock.monotonic() - self._memory(found.uid).first_seen_seconds
        if since < self._options.unknown_resource_seconds:
            return RunOutcome(ending=RunEnd.UNREADY, reason=REASON_NO_RESOURCE, message=message)
        return await self._engine.fail(
            found.migration, found.api.resource, reason=REASON_NO_RESOURCE, message=message
        )

    async def _interrupted(self, found: _Open, message: str) -> RunOutcome:
        if self._memory(found.uid).tries < self._options.interruptions_max:
            return RunOutcome(ending=RunEnd.INTERRUPTED, reason=REASON_FAILED, message=message)
        return await self._engine.fail(
            found.migration, found.api.resource, reason=REASON_FAILED, message=message
        )

    def _listener(self, found: _Open, label: str) -> RunListener:
        running, metrics = self._running[found.uid], self._metrics

        def began() -> None:
            self._record_event(found, STARTED, f"the migration of {found.resource} has started")

        def resumed() -> None:
            self._record_event(found, RESUMED, f"the migration of {found.resource} has resumed")

        def page(done: PageDone, progress: Progress) -> None:
            self._memory(found.uid).tries = 0
            metrics.page(label, done)
            metrics.remaining(label, progress.remaining)

        def failed(failure: ObjectFailure) -> None:
            metrics.object_failed(label, failure.reason)

        def paused() -> None:
            running.is_paused = True
            self._look.set()  # another migration may start

        def released() -> None:
            running.is_paused = False

        def in_flight(count: int) -> None:
            metrics.in_flight(label, count)

        return RunListener(
            began=began,
            resumed=resumed,
            page=page,
            failed=failed,
            paused=paused,
            released=released,
            in_flight=in_flight,
        )

    def _conclude(self, found: _Open, outcome: RunOutcome, label: str, *, seconds: float) -> None:
        message = outcome.message
        match outcome.ending:
            case RunEnd.SUCCEEDED:
                self._metrics.ended(label, "Succeeded", seconds)
                self._record_event(found, SUCCEEDED, message)
            case RunEnd.FAILED:
                self._metrics.ended(label, "Failed", seconds)
                self._record_event(found, FAILED, message, is_warning=True)
            case RunEnd.LOST:
                self._metrics.ended(label, "Aborted", seconds)
                self._record_event(found, ABORTED, message, is_warning=True)
            case RunEnd.GONE:
                self._metrics.ended(label, "Aborted", seconds)
                self._record_event(found, ABORTED, message)
            case RunEnd.UNREADY | RunEnd.INTERRUPTED:
                logger.info("%s is retried: %s", ref_of(found.migration).name, message)
        # The informer may still show a finished migration as open: back off as well.
        self._retry_later(found.uid)

    def _retry_later(self, uid: str) -> None:
        memory = self._memory(uid)
        delay = self._options.migration_retry_backoff.delay_seconds(
            memory.tries, self._runtime.randomness
        )
        memory.tries += 1
        memory.not_before_seconds = self._clock.monotonic() + delay

    def _memory(self, uid: str) -> _Memory:
        now = self._clock.monotonic()
        return self._memories.setdefault(uid, _Memory(first_seen_seconds=now))

    def _record_event(
        self, found: _Open, reason: str, message: str, *, is_warning: bool = False
    ) -> None:
        self._recorder.event(found.migration, reason, message, is_warning=is_warning)


def is_open(migration: Object) -> bool:
    """Whether a migration needs processing."""
    if is_being_deleted(migration):
        return False
    match phase_of(migration):
        case MigrationPhase.PENDING | MigrationPhase.RUNNING:
            return True
        case MigrationPhase.SUCCEEDED:
            # Another migrator's: it is not verified yet, and the trigger waits for that.
            return not is_proven(migration) and record_of(marks_of(migration)) is not None
        case MigrationPhase.FAILED:
            return False


def label_of(resource: ApiResource) -> str:
    """The label of a resource in metrics; in the core group it begins with a slash."""
    return f"{resource.group}/{resource.version}, Resource={resource.name}"


async def find_migration_apis(client: ApiClient) -> list[ApiResource]:
    """Return the migration APIs of a server, each group once."""
    found: dict[str, ApiResource] = {}
    for wanted in MIGRATION_APIS:
        if wanted.group in found:
            continue
        try:
            listed = await client.resources(wanted.group_version)
        except NotFound:
            continue
        for each in listed:
            if each.name == wanted.resource and {"list", "watch"} <= each.verbs:
                found[wanted.group] = each
    return list(found.values())


async def find_resource(client: ApiClient, wanted: GroupResource) -> ApiResource | None:
    """Find a resource in the preferred version of its group, or in the first that has it."""
    for group in await client.groups():
        if group.name != wanted.group:
            continue
        others = [version for version in group.versions if version != group.preferred]
        for version in (group.preferred, *others):
            for each in await client.resources(GroupVersion(group.name, version)):
                if each.name == wanted.resource:
                    return each
    return None
