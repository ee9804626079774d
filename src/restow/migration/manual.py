"""Manual migrations: one resource, now, whether or not controllers run.

    read the agreement -> all stored in the target? -> create a migration -> wait for it -> narrow

If controllers run, the migrator processes the migration, and this module only watches it. If none
run, the engine runs here, and the rules of the trigger create the migration and update the
StorageState of this resource. On a server without a migration API the objects are migrated as well,
and the result is recorded in a ConfigMap.

Not here: how progress is displayed (the command line).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Final, Self

from restow.aio import Backoff, retry
from restow.apimachinery.names import GroupResource, GroupVersionResource
from restow.apimachinery.status import Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.encryption_keys import IDENTITY
from restow.apis.resources import IN_TREE_GROUP, LEASES, STATES
from restow.apis.storage_scan import STORAGE_SCANS
from restow.client import (
    ApiClient,
    ApiResource,
    ClientError,
    ConnectionFailed,
    DiscoveredResources,
    Object,
    uid_of,
)
from restow.client.lease_record import LeaseRecord
from restow.migration.event_sinks import NO_RECORDER, NO_TRIGGER_METRICS
from restow.migration.manual_notes import Note, Notes
from restow.migration.migration_objects import (
    condition,
    has_ended,
    is_being_deleted,
    is_proven,
    mapping,
    marks_of,
    phase_of,
    resource_of,
    seen,
    text,
)
from restow.migration.migration_values import MigrationPhase
from restow.migration.migrator import agreement as agreements
from restow.migration.migrator.agreement import BY_LOOSE, AgreementCheck, LeftAlone, NotAgreed
from restow.migration.migrator.engine import Engine
from restow.migration.migrator.jobs import Job, RunEnd, RunListener, RunOutcome
from restow.migration.migrator.migration_watch import Followed, MigrationDeleted
from restow.migration.migrator.options import EngineOptions
from restow.migration.migrator.passes import AgreementLost
from restow.migration.migrator.rewrite_methods import choose_method, failures_of
from restow.migration.names import (
    MIGRATOR_LEASE,
    NAMESPACE_DEFAULT,
    PAUSED_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_OBJECTS_FAILED,
    TRIGGER_LEASE,
)
from restow.migration.records import record_of
from restow.migration.remote_apis import find_remote
from restow.migration.store_scan import ScanFailed, StoreScan, scan_store, version_hash
from restow.migration.times import read_time
from restow.migration.trigger.migration_rules import has_failed_last
from restow.migration.trigger.observations import state_seen
from restow.migration.trigger.options import TriggerOptions, TriggerSource
from restow.migration.trigger.reconciler import Known, Reconciler, read_state
from restow.migration.trigger.sources import (
    NotKnownYet,
    Sources,
    eligible_resources,
    has_storage_versions,
    served_migration_apis,
)
from restow.migration.trigger.storage_version_watch import Behind, StorageVersionWatch

REQUEST_KIND: Final = "StorageVersionMigration"
POLL_SECONDS: Final = 0.25
RUNS_MAX: Final = 5
"""Maximum number of times that an interrupted run is resumed."""
RETRY_BACKOFF: Final = Backoff(initial_seconds=0.5, factor=2, max_seconds=10, jitter=0.5)
RECONCILES_MAX: Final = 6
TRIGGER_SECONDS_MAX: Final = 10.0
"""How long a trigger in another process may take to create a new migration."""
NOT_YET: Final = (StatusError, ClientError, Behind, NotKnownYet)

logger = logging.getLogger(__name__)


class ManualOutcome(Enum):
    """The result of one resource."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    """Nothing has changed since the last run, or an aggregated server stores the resource."""
    FAILED = "failed"
    ABORTED = "aborted"
    """The servers' agreement changed, or the migration was deleted."""
    NOT_AGREED = "not agreed"
    """Servers do not agree on a version: the migration was not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualResult:
    """The result of one resource, with counts of its objects."""

    resource: str
    verdict: ManualOutcome
    message: str
    objects: int = 0
    rewritten: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMigrationOptions:
    namespace: str = NAMESPACE_DEFAULT
    """Namespace of the leases and of the ConfigMap."""
    is_forced: bool = False
    """Whether to migrate resources that have not changed since their last migration too."""
    engine: EngineOptions = field(default_factory=EngineOptions)


class ManualMigration:
    """Migrates single resources. An async context manager: leaving it ends its watches."""

    def __init__(
        self,
        client: ApiClient,
        found: DiscoveredResources,
        *,
        bulk: ApiClient,
        options: ManualMigrationOptions,
    ) -> None:
        """`bulk` sends the many small requests of a migration, on its own connections."""
        self._client = client
        self._bulk = bulk
        self._options = options
        self._clock = client.runtime.clock
        self._eligible = eligible_resources(found)
        served = {each.resource: each for each in found.resources}
        self._migration_apis = [served[each] for each in served_migration_apis(found)]
        self._has_states = STATES in served
        self._scans = STORAGE_SCANS in served
        self._scan: StoreScan | str | None = None
        """The scan of the raw values, or why it failed; None: not scanned yet."""
        self._notes = Notes(client, namespace=options.namespace)
        self._tasks = client.runtime.tasks("migrate")
        self._reconciler: Reconciler | None = None
        self._following: StorageVersionWatch | None = None
        if self._has_states and self._migration_apis and has_storage_versions(found):
            self._following = StorageVersionWatch(client, on_change=lambda _: None)
            self._reconciler = self._make_reconciler(self._following)

    def _make_reconciler(self, following: StorageVersionWatch) -> Reconciler:
        """The rules of the trigger, by StorageVersions alone: manual migrations do not poll."""
        settings = TriggerOptions(source=TriggerSource.STORAGE_VERSION)
        sources = Sources(self._client, settings, tasks=self._tasks, is_leader=lambda: True)
        sources.follow(following)
        reconciler = Reconciler(
            self._client,
            sources,
            settings,
            tasks=self._tasks,
            recorder=NO_RECORDER,
            metrics=NO_TRIGGER_METRICS,
            census=None,
        )
        reconciler.use_apis([each.resource for each in self._migration_apis])
        return reconciler

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        if self._following is not None:
            self._tasks.spawn("storage versions", self._following.run())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._tasks.__aexit__(exc_type, error, traceback)

    # One resource.

    async def migrate(
        self,
        resource: ApiResource,
        *,
        listener: RunListener | None = None,
        on_migration: Callable[[Object], None] = lambda _: None,
    ) -> ManualResult:
        """Migrate a resource, or return why not.

        `on_migration` is called with each state of a migration that another process runs.
        Raises a StatusError or ClientError when the server cannot be read.
        """
        name = resource.group_resource
        try:
            agreed = await agreements.begin(
                self._client, resource, record=None, options=self._options.engine
            )
        except NotAgreed as error:
            return _result(name, ManualOutcome.NOT_AGREED, str(error))
        except LeftAlone as error:
            return _result(name, ManualOutcome.SKIPPED, str(error))
        if not self._options.is_forced:
            why = await self._why_done(name, agreed)
            if why:
                return _result(name, ManualOutcome.SKIPPED, why)
        if not self._migration_apis:
            outcome = await self._run(Job(resource=resource), listener)
            await self._note(name, outcome)
            return _result_of(name, outcome)
        # KEP-2343 4.24: start a migration by hand
        api, migration = await self._find_or_create(resource)
        is_remote = bool(await find_remote(self._client, resource.resource.group_version))
        job = Job(resource=resource, migration=migration, migration_api=api, is_remote=is_remote)
        ended = None
        if not await self._is_led(MIGRATOR_LEASE):
            ended = await self._run(job, listener)
        if ended is None or ended.ending is RunEnd.NOTHING:
            # Another process runs it, or has finished it, and has written the result.
            result = await self._follow(job, agreed, on_migration, listener or RunListener())
        else:
            result = _result_of(name, ended)
        if result.verdict is ManualOutcome.SUCCEEDED:
            await self._reconcile(name)
        return result

    async def migrations(self, resource: GroupResource) -> list[tuple[ApiResource, Object]]:
        """List the migrations of a resource that are not being deleted, with their API."""
        return [
            (api, each)
            for api in self._migration_apis
            async for each in self._client.items(api.resource)
            if resource_of(each) == resource and not is_being_deleted(each)
        ]

    async def pause(self, resource: GroupResource, *, is_paused: bool) -> list[str]:
        """Pause or resume all open migrations of a resource; return their names."""
        mark = "true" if is_paused else None
        names = []
        for api, each in await self._open(resource):
            name = text(mapping(each, "metadata"), "name")
            metadata = {"uid": uid_of(each), "annotations": {PAUSED_ANNOTATION: mark}}
            await self._client.patch(api.resource, name, {"metadata": metadata})
            names.append(name)
        return names

    async def cancel(self, resource: GroupResource) -> list[str]:
        """Delete all open migrations of a resource; return their names."""
        names = []
        for api, each in await self._open(resource):
            await self._delete(api.resource, each)
            names.append(text(mapping(each, "metadata"), "name"))
        return names

    async def _open(self, resource: GroupResource) -> list[tuple[ApiResource, Object]]:
        found = await self.migrations(resource)
        return [(api, each) for api, each in found if not has_ended(each)]

    # Is there anything to do?

    async def _why_done(self, resource: GroupResource, agreed: AgreementCheck) -> str:
        """Return why there is nothing to do; empty if there may be something."""
        if not agreed.target:
            return ""
        if has_failed_last(seen(each) for _, each in await self.migrations(resource)):
            return ""  # whatever is recorded, some objects could not be rewritten
        if self._has_states:
            state = await read_state(self._client, resource)
            known = None if state is None else state_seen(state)
            wanted = (agreed.target,), (agreed.target_key or IDENTITY,)
            if known is not None and (known.status.persisted, known.status.keys) == wanted:
                return await self._why_stored(resource, agreed)
            if known is not None and known.is_verified_by_servers:
                return ""  # where servers verify, the proof in a migration is no evidence
        proofs = [
            Note.of_text(marks_of(r)[PROOF_ANNOTATION]) for _, r in await self._ended(resource)
        ]
        if not self._migration_apis:
            proofs.append(await self._notes.read(resource))
        for proof in proofs:
            if proof is None or proof.by == BY_LOOSE:
                continue
            # KEP-35 1.13: skip what has not changed since its last migration
            if (proof.target, proof.mark) == (agreed.target, agreed.mark):
                return f"its storage version has not changed since it was migrated ({proof.time})"
        return ""

    async def _why_stored(self, resource: GroupResource, agreed: AgreementCheck) -> str:
        """The reason why nothing is to be done, given a narrowed state; empty if values differ."""
        key = f", under the key {agreed.target_key}" if agreed.target_key else ""
        text = f"all objects are stored as {agreed.target_version or agreed.target}{key}"
        if not self._scans:
            return f"{text}, by its StorageState"
        if self._scan is None:
            try:
                self._scan = await scan_store(self._client)
            except ScanFailed as error:
                self._scan = str(error)
        if isinstance(self._scan, str):
            return f"{text}, by its StorageState; the store could not be scanned: {self._scan}"
        rows = self._scan.rows_of(resource)
        is_done = all(
            version_hash(row) == agreed.target and row.encryption_key == agreed.target_key
            for row in rows
        )
        return f"{text} ({sum(row.values for row in rows):,} values checked)" if is_done else ""

    async def _ended(self, resource: GroupResource) -> list[tuple[ApiResource, Object]]:
        found = await self.migrations(resource)
        return [
            (api, each)
            for api, each in found
            if phase_of(each) is MigrationPhase.SUCCEEDED and is_proven(each)
        ]

    async def _note(self, resource: GroupResource, outcome: RunOutcome) -> None:
        if outcome.proof is None:
            return
        try:
            await self._notes.write(resource, Note.of_text(outcome.proof.to_text()))
        except (StatusError, ConnectionFailed) as error:
            logger.warning("the migration of %s could not be recorded: %s", resource, error)

    # The migration.

    async def _find_or_create(self, resource: ApiResource) -> tuple[ApiResource, Object]:
        """Return an open migration: an existing one, one of the trigger's rules, or a plain one."""
        name = resource.group_resource
        if self._reconciler is not None:
            await self._delete_failed(name)  # the trigger would wait before it tries again
            await self._reconcile(name)
        elif self._has_states and await self._is_led(TRIGGER_LEASE):
            await self._retry_elsewhere(name)
        found = await self._open(name)
        if found:
            # Prefer one of the trigger's: it accepts only these as evidence.
            return next((e for e in found if record_of(marks_of(e[1])) is not None), found[0])
        api = self._migration_apis[0]
        return api, await self._client.create(
            api.resource, _plain_migration(resource, api.resource)
        )

    async def _retry_elsewhere(self, resource: GroupResource) -> None:
        """Delete the failed migration, so that a trigger in another process creates a new one
        without waiting for its backoff."""
        if not await self._delete_failed(resource):
            return
        try:
            async with self._clock.timeout(TRIGGER_SECONDS_MAX):
                while not await self._open(resource):
                    await self._clock.sleep(POLL_SECONDS)
        except TimeoutError:
            logger.info("the trigger has not created a new migration of %s yet", resource)

    async def _delete_failed(self, resource: GroupResource) -> int:
        """Delete the trigger's failed migrations; return their number."""
        failed = [
            (api, each)
            for api, each in await self.migrations(resource)
            if record_of(marks_of(each)) is not None and phase_of(each) is MigrationPhase.FAILED
        ]
        for api, each in failed:
            await self._delete(api.resource, each)
        return len(failed)

    async def _delete(self, api: GroupVersionResource, migration: Object) -> None:
        try:
            name = text(mapping(migration, "metadata"), "name")
            await self._client.delete(api, name, uid=uid_of(migration))
        except (NotFound, Conflict):
            pass  # it is deleted already, or replaced by another of the same name

    async def _reconcile(self, resource: GroupResource) -> None:
        """Run the rules of the trigger for a resource until there is nothing left to do."""
        reconciler, found = self._reconciler, self._eligible.get(resource)
        if reconciler is None or found is None:
            return
        known = Known(found)
        try:
            await retry(
                lambda: reconciler.reconcile(known),
                retry_on=NOT_YET,
                backoff=RETRY_BACKOFF,
                attempts_max=RECONCILES_MAX,
                clock=self._clock,
                randomness=self._client.runtime.randomness,
            )
        except NOT_YET as error:
            logger.warning("the state of %s could not be brought up to date: %s", resource, error)

    # The work.

    async def _is_led(self, name: str) -> bool:
        """Whether a controller runs in another process, by its lease."""
        try:
            lease = await self._client.get(LEASES, name, namespace=self._options.namespace)
        except StatusError:
            return False
        record = LeaseRecord.read(lease)
        renewed = read_time(record.renew_time)
        if renewed is None or not record.holder:
            return False
        return (self._clock.wall() - renewed).total_seconds() < record.lease_seconds

    async def _run(self, job: Job, listener: RunListener | None) -> RunOutcome:
        engine = Engine(self._bulk, options=self._options.engine)
        randomness = self._client.runtime.randomness
        outcome = await engine.run(job, listener)
        for number in range(RUNS_MAX - 1):
            if outcome.ending is not RunEnd.INTERRUPTED:
                break
            await self._clock.sleep(RETRY_BACKOFF.delay_seconds(number, randomness))
            outcome = await engine.run(job, listener)
        return outcome

    async def _follow(
        self,
        job: Job,
        agreed: AgreementCheck,
        on_migration: Callable[[Object], None],
        listener: RunListener,
    ) -> ManualResult:
        assert job.migration is not None
        assert job.migration_api is not None
        resource, place = job.resource.group_resource, job.migration_api.resource
        followed = Followed(self._client, place, job.migration, options=self._options.engine)
        try:
            await followed.read()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(followed.follow(), name="migration")
                while not has_ended(followed.latest):
                    on_migration(followed.latest)
                    await self._clock.sleep(POLL_SECONDS)
                watching.cancel()
        except (MigrationDeleted, BaseExceptionGroup) as found:
            if isinstance(found, BaseExceptionGroup) and found.subgroup(MigrationDeleted) is None:
                raise
            return _result(resource, ManualOutcome.ABORTED, "the migration was deleted")
        why = condition(followed.latest, "Failed") or {}
        if text(why, "reason") == REASON_OBJECTS_FAILED:
            await self._name_failures(job, agreed, listener)
        return _result_of_migration(resource, followed.latest)

    async def _name_failures(self, job: Job, agreed: AgreementCheck, listener: RunListener) -> None:
        """Report every object that failed: the status names only some, another pass finds all."""
        assert job.migration is not None
        options = self._options.engine
        pages = choose_method(self._bulk, job, agreed, migration=job.migration, options=options)
        try:
            async for failure in failures_of(pages):
                listener.failed(failure)
        except (AgreementLost, StatusError, ConnectionFailed) as error:
            logger.warning("some failed objects could not be listed: %s", error)


def _plain_migration(resource: ApiResource, api: GroupVersionResource) -> Object:
    wanted = {"group": resource.group, "resource": resource.name}
    if api.group != IN_TREE_GROUP:
        wanted["version"] = resource.version
    return {
        "apiVersion": f"{api.group}/{api.version}",
        "kind": REQUEST_KIND,
        "metadata": {"generateName": f"{resource.group_resource}-"},
        "spec": {"resource": wanted},
    }


def _result(resource: GroupResource, verdict: ManualOutcome, message: str) -> ManualResult:
    return ManualResult(resource=str(resource), verdict=verdict, message=message)


def _result_of(resource: GroupResource, outcome: RunOutcome) -> ManualResult:
    verdict = {
        RunEnd.SUCCEEDED: ManualOutcome.SUCCEEDED,
        RunEnd.LOST: ManualOutcome.ABORTED,
        RunEnd.GONE: ManualOutcome.ABORTED,
        RunEnd.UNREADY: ManualOutcome.NOT_AGREED,
    }.get(outcome.ending, ManualOutcome.FAILED)
    return ManualResult(
        resource=str(resource),
        verdict=verdict,
        message=outcome.message,
        objects=outcome.objects,
        rewritten=outcome.rewritten,
        failed=outcome.failed,
    )


def _result_of_migration(resource: GroupResource, migration: Object) -> ManualResult:
    kind = "Failed" if phase_of(migration) is MigrationPhase.FAILED else "Succeeded"
    progress = mapping(mapping(migration, "status"), "progress")
    counts = {
        name: value if isinstance(value := progress.get(name), int) else 0
        for name in ("scanned", "rewritten", "failed")
    }
    return ManualResult(
        resource=str(resource),
        verdict=ManualOutcome.FAILED if kind == "Failed" else ManualOutcome.SUCCEEDED,
        message=text(condition(migration, kind) or {}, "message"),
        objects=counts["scanned"],
        rewritten=counts["rewritten"],
        failed=counts["failed"],
    )
