"""One migration, from its agreement to its proof: used by the controller and by the command line.

    first pass      rewrites every page, from the position of an earlier run
    proof pass      from the beginning, and it must change nothing; otherwise it is repeated, a few
                    times, for example because a CRD was edited meanwhile; not needed if the server
                    has verified a first pass that found nothing to rewrite
    confirmation    a fresh read: the servers' agreement was never interrupted
    proof           written to the migration, then the storedVersions of a CRD, then the success

The agreement and the migration object are watched during all passes. When either is lost, the page
in flight is cancelled, and nothing more is written. An object that fails does not stop the others:
it is listed in the status, and the migration fails after all others are done.

Two engines on one migration are harmless: rewriting is idempotent, and their writes to the
migration are conditional.

Not here: which migration is next (`controller`), how a page is done (`server_rewrite`,
`patch_rewrite`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from restow.aio import foremost
from restow.apimachinery.names import GroupVersionKind, GroupVersionResource
from restow.apimachinery.status import BadRequest, Gone, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apimachinery.version_hash import storage_version_hash
from restow.client import ApiClient, ConnectionFailed, ListOptions, Object, uid_of
from restow.migration.migration_objects import has_ended, marks_of
from restow.migration.migrator import agreement as agreements
from restow.migration.migrator.agreement import (
    BY_LOOSE,
    BY_SERVER,
    AgreementCheck,
    LeftAlone,
    NotAgreed,
)
from restow.migration.migrator.jobs import Job, RunEnd, RunListener, RunOutcome
from restow.migration.migrator.migration_watch import Followed, MigrationDeleted
from restow.migration.migrator.options import (
    FAILURES_NAMED_MAX,
    FAILURES_SHOWN_MAX,
    EngineOptions,
)
from restow.migration.migrator.passes import AgreementLost, ObjectFailure, PageDone, Pages
from restow.migration.migrator.position import PATCH, REWRITE, Position, Purpose
from restow.migration.migrator.progress import Progress
from restow.migration.migrator.rewrite_methods import choose_method
from restow.migration.migrator.status_writer import MigrationWriter, Proof, proves
from restow.migration.migrator.stored_versions import CrdSnapshot, note_definition, trim
from restow.migration.names import (
    POSITION_ANNOTATION,
    PROOF_ANNOTATION,
    REASON_AGREEMENT_LOST,
    REASON_COMPLETE,
    REASON_FAILED,
    REASON_LEFT_ALONE,
    REASON_NOT_PROVEN,
    REASON_OBJECTS_FAILED,
    REASON_PAUSED,
    REASON_PROVEN,
)
from restow.migration.records import record_of

MESSAGE_LENGTH_MAX: Final = 1_024
FAILURE_LENGTH_MAX: Final = 300
"""Limit of the text on one object in a message. The reason that a policy gives comes last in it."""

RESUME_POINTS_MAX: Final = 1_000
"""Limit of the interrupted migrations whose position is kept in memory; others start over."""

logger = logging.getLogger(__name__)

ResumePoint = tuple[Purpose, Position]
"""The last position in this process, and the purpose it is valid for."""


class Engine:
    """Runs migrations. Between runs it keeps only the positions of interrupted ones."""

    def __init__(self, client: ApiClient, *, options: EngineOptions | None = None) -> None:
        self._client = client
        self._options = options or EngineOptions()
        self._resume_points: dict[str, ResumePoint] = {}
        """By the uid of the migration."""

    async def run(self, job: Job, listener: RunListener | None = None) -> RunOutcome:
        """Run a migration, or resume it. Raises nothing that a server can cause."""
        followed: Followed | None = None
        run: _Run | None = None
        uid = "" if job.migration is None else uid_of(job.migration)
        resume_point = self._resume_points.pop(uid, None)
        try:
            if job.migration is not None and job.migration_api is not None:
                place = job.migration_api.resource
                followed = Followed(self._client, place, job.migration, options=self._options)
                current = await followed.read()
                if has_ended(current):
                    return RunOutcome(
                        ending=RunEnd.NOTHING, message="the migration has ended already"
                    )
            run = _Run(self._client, job, followed, self._options, listener or RunListener())
            run.resume_point = resume_point
            return await run.run()
        except MigrationDeleted as gone:
            return RunOutcome(ending=RunEnd.GONE, message=str(gone))
        except (StatusError, ConnectionFailed) as error:
            self._keep(uid, resume_point if run is None else run.resume_point)
            return RunOutcome(ending=RunEnd.INTERRUPTED, reason=REASON_FAILED, message=str(error))

    def _keep(self, uid: str, resume_point: ResumePoint | None) -> None:
        if uid and resume_point is not None:
            while len(self._resume_points) >= RESUME_POINTS_MAX:
                self._resume_points.pop(next(iter(self._resume_points)))
            self._resume_points[uid] = resume_point

    async def fail(
        self, migration: Object, place: GroupVersionResource, *, reason: str, message: str
    ) -> RunOutcome:
        """Mark a migration as failed that could not start, or was interrupted too often."""
        try:
            followed = Followed(self._client, place, migration, options=self._options)
            await followed.read()
            writer = MigrationWriter(self._client, followed, options=self._options)
            await writer.failed(reason, message[:MESSAGE_LENGTH_MAX])
        except MigrationDeleted as gone:
            return RunOutcome(ending=RunEnd.GONE, message=str(gone))
        except (StatusError, ConnectionFailed) as error:
            return RunOutcome(ending=RunEnd.INTERRUPTED, reason=REASON_FAILED, message=str(error))
        return RunOutcome(ending=RunEnd.FAILED, reason=reason, message=message)


def _is_final(error: BaseException) -> bool:
    """Whether a retry would fail again: the request is rejected, and not because of load."""
    return isinstance(error, StatusError) and error.code != 429 and error.code < 500


class _Run:
    """One running migration."""

    def __init__(
        self,
        client: ApiClient,
        job: Job,
        followed: Followed | None,
        options: EngineOptions,
        listener: RunListener,
    ) -> None:
        self._client = client
        self._job = job
        self._followed = followed
        self._options = options
        self._listener = listener
        self._clock = client.runtime.clock
        self._writer = (
            None if followed is None else MigrationWriter(client, followed, options=options)
        )
        self._failures: list[ObjectFailure] = []
        self._progress = Progress(now_seconds=self._clock.monotonic())
        self._position = Position()
        self.resume_point: ResumePoint | None = None
        """The position of an earlier run in this process; then the position of this one."""
        self._conflicts = 0
        self._restarts = 0
        self._is_verified = False
        """Whether the server has verified the pass whose last page was processed."""
        self._moment = ""
        """The epoch of all pages, if servers report one."""
        # Set by `run`, before anything else:
        self._agreement: AgreementCheck
        self._pages: Pages
        self._definition: CrdSnapshot | None = None

    async def run(self) -> RunOutcome:
        job = self._job
        migration: Object = {} if self._followed is None else self._followed.latest
        try:
            self._agreement = await agreements.begin(
                self._client,
                job.resource,
                record=record_of(marks_of(migration)),
                options=self._options,
            )
        except NotAgreed as error:
            return self._outcome(RunEnd.UNREADY, REASON_AGREEMENT_LOST, str(error))
        except LeftAlone as error:
            return await self._fail(RunEnd.FAILED, REASON_LEFT_ALONE, str(error))
        except AgreementLost as lost:
            return await self._fail(RunEnd.LOST, REASON_AGREEMENT_LOST, str(lost))
        self._moment = "" if self._agreement.epoch is None else str(self._agreement.epoch)
        self._pages = choose_method(
            self._client,
            job,
            self._agreement,
            migration=migration,
            options=self._options,
            in_flight=self._listener.in_flight,
        )
        self._definition = await note_definition(self._client, job.resource)
        return await self._run_followed(migration)

    async def _run_followed(self, migration: Object) -> RunOutcome:
        """Run the passes while watching the agreement and the migration object."""
        outcome: RunOutcome | None = None
        try:
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(self._agreement.follow(), name="agreement")]
                if self._followed is not None:
                    watching.append(group.create_task(self._followed.follow(), name="migration"))
                outcome = await self._work(migration)
                for task in watching:
                    task.cancel()
        except BaseExceptionGroup as found:
            error = foremost(found, MigrationDeleted, AgreementLost)
            if outcome is not None and outcome.ending is RunEnd.SUCCEEDED:
                return outcome  # the result is verified; a later change does not affect it
            # KEP-2339 3.43: the page in flight is cancelled, and the migration fails
            if isinstance(error, AgreementLost):
                return await self._fail(RunEnd.LOST, REASON_AGREEMENT_LOST, str(error))
            if _is_final(error):
                return await self._fail(RunEnd.FAILED, REASON_FAILED, str(error))
            raise error from None
        if outcome.ending is RunEnd.SUCCEEDED:
            return outcome
        return await self._fail(outcome.ending, outcome.reason, outcome.message)

    async def _work(self, migration: Object) -> RunOutcome:
        marks = marks_of(migration)
        resumed = self._resume(marks)
        (self._listener.resumed if resumed else self._listener.began)()
        if self._writer is not None:
            await self._writer.begin(self._position, self._purpose())
            await self._writer.running(self._progress, f"started{self._under_key()}")
        await self._count_objects()
        while True:
            is_renamed = await self._do_pass(resumed=resumed)
            # Any client may have written the counts of a resumed pass.
            is_proof = self._position.pass_number > 1 or (self._is_verified and not resumed)
            resumed = False
            counts, number = self._position.counts, self._position.pass_number
            if counts.failed and not is_renamed:
                return self._outcome(
                    RunEnd.FAILED, REASON_OBJECTS_FAILED, self._failures_text(counts.failed)
                )
            is_last = number > self._options.proof_passes_max
            if is_proof and not counts.rewritten and not counts.failed:
                if is_last or await self._is_defined_as_noted():
                    return await self._prove()
            elif is_last:
                message = (
                    f"{counts.rewritten} objects were found in another version"
                    f"{' or under another key' * bool(self._agreement.target_key)}"
                    f" in pass {number}"
                )
                return self._outcome(RunEnd.FAILED, REASON_NOT_PROVEN, message)
            self._position = self._position.next_pass()
            self.resume_point = (self._purpose(), self._position)
            self._progress.begin(self._position)
            await self._save(is_due=True)

    def _resume(self, marks: dict[str, str]) -> bool:
        """Continue at the position of an earlier run, if there is one for this purpose."""
        purpose = self._purpose()
        if self.resume_point is not None and self.resume_point[0] == purpose and purpose.mark:
            found: Position | None = self.resume_point[1]
        else:
            found = self._saved(marks, purpose)
        if found is None or found.is_first:
            return False
        self._position = found
        self._progress = Progress(found, now_seconds=self._clock.monotonic())
        return True

    def _saved(self, marks: dict[str, str], purpose: Purpose) -> Position | None:
        """The position in the annotations, for a run without a position in memory.

        A proof pass starts at its beginning, and an existing proof is verified by another pass: any
        client that may write migrations may have written either.
        """
        found = Position.of_text(marks.get(POSITION_ANNOTATION, ""), purpose)
        if found is None:
            return Position().next_pass() if self._is_proven_already(marks) else None
        return found.restart() if found.pass_number > 1 else found

    async def _do_pass(self, *, resumed: bool) -> bool:
        """Process the remaining pages of a pass. True if failed objects are not known by name."""
        unnamed = resumed and self._position.counts.failed > 0
        if not unnamed:
            self._failures.clear()
        while True:
            await self._wait_while_paused()
            done = await self._do_page()
            if done is None:
                unnamed = False
                continue
            self._position = self._position.behind(done)
            self._is_verified = done.is_verified
            self._note(done)
            if not done.token:
                return unnamed
            self.resume_point = (self._purpose(), self._position)
            await self._save()
            if self._writer is not None:
                await self._writer.progress(self._progress, self._failures)

    async def _do_page(self) -> PageDone | None:
        """Process one page; None if the pass must start over."""
        token = self._position.token
        try:
            done = await self._pages.page(token)
        except AgreementLost as lost:
            await self._check_conflict(lost)
            return await self._do_page()
        except (BadRequest, Gone) as error:
            if not token or self._restarts >= self._options.restarts_max:
                raise
            # The token is not valid any more: pages before it are processed again.
            logger.info("the pass starts over: %s", error.message)
            self._restarts += 1
            self._failures.clear()
            self._position = self._position.restart()
            self._progress.begin(self._position)
            return None
        except NotFound:
            if self._followed is not None:
                await self._followed.read()  # raises if the migration is deleted
            raise
        self._moment = self._moment or done.moment
        if done.moment and done.moment != self._moment:
            raise AgreementLost(f"the page was done in epoch {done.moment}, not in {self._moment}")
        self._conflicts = 0
        return done

    async def _check_conflict(self, lost: AgreementLost) -> None:
        """Check a conflict that one server reports: it alone may be stale, for a moment."""
        if self._followed is not None:
            await self._followed.read()
        await self._agreement.confirm()
        self._conflicts += 1
        if self._conflicts > self._options.conflicts_max:
            raise lost
        runtime = self._client.runtime
        backoff = self._options.retry_backoff
        await self._clock.sleep(backoff.delay_seconds(self._conflicts, runtime.randomness))

    async def _wait_while_paused(self) -> None:
        """Wait while the migration is paused."""
        followed, writer = self._followed, self._writer
        if followed is None or writer is None or not followed.is_paused:
            return
        self._listener.paused()
        await self._save(is_due=True)
        held = f"paused: {self._progress.text()}"
        await writer.running(self._progress, held, reason=REASON_PAUSED)
        await followed.wait_released()
        self._progress.skip_pause(self._clock.monotonic())
        self._listener.released()
        await writer.running(self._progress, self._progress.text())

    def _note(self, done: PageDone) -> None:
        room = FAILURES_SHOWN_MAX - len(self._failures)
        self._failures.extend(done.failures[:room])
        for failure in done.failures:
            self._listener.failed(failure)
        self._progress.note(done, self._position, now_seconds=self._clock.monotonic())
        self._listener.page(done, self._progress)

    async def _save(self, *, is_due: bool = False) -> None:
        if self._writer is not None:
            await self._writer.save(self._position, self._purpose(), is_due=is_due)

    async def _count_objects(self) -> None:
        """Estimate the number of objects with a list of one, if the server does the rewrite."""
        if not self._job.can_rewrite or self._progress.total is not None:
            return
        try:
            page = await self._client.list_page(
                self._job.resource.resource, options=ListOptions(limit=1), metadata_only=True
            )
        except (StatusError, ConnectionFailed) as error:
            # An object that cannot be decoded may break a list; the rewrite names it.
            logger.info("%s cannot be counted: %s", self._job.resource.group_resource, error)
            return
        if page.remaining is not None or not page.continue_token:
            self._progress.expect(len(page.items) + (page.remaining or 0))

    # Completion.

    async def _prove(self) -> RunOutcome:
        await self._agreement.confirm()
        counts = self._position.counts
        proof = Proof(
            target=self._agreement.target,
            mark=self._agreement.mark,
            by=self._agreement.by if self._position.pass_number > 1 else BY_SERVER,
            objects=counts.scanned,
            time=self._clock.wall(),
        )
        if self._writer is not None:
            await self._writer.prove(proof)
        return await self._conclude(proof)

    async def _conclude(self, proof: Proof) -> RunOutcome:
        """Complete a verified migration: trim the stored versions and write the success."""
        version = self._agreement.target_version and f" {self._agreement.target_version}"
        message = (
            f"all {proof.objects:,} objects are stored in the target version{version}"
            f"{self._under_key()},"
            f" {self._progress.rewritten:,} were rewritten"
        )
        message += await self._trim()
        reason = REASON_COMPLETE if self._agreement.by == BY_LOOSE else REASON_PROVEN
        if self._writer is not None:
            await self._writer.succeeded(reason, message, self._progress)
        return self._outcome(RunEnd.SUCCEEDED, reason, message, proof=proof)

    def _under_key(self) -> str:
        """Name the key if objects are encrypted: the key alone may have changed."""
        key = self._agreement.target_key
        return f", under the key {key}" if key else ""

    async def _is_defined_as_noted(self) -> bool:
        """Whether the CRD has not changed since the pass began. If it has, in any field, the new
        state is recorded, and the next pass verifies that."""
        before = self._definition
        if before is not None:
            self._definition = await note_definition(self._client, self._job.resource)
        return self._definition == before

    async def _trim(self) -> str:
        """Trim the stored versions of a CRD, if the result is verified; text for the message."""
        noted, resource = self._definition, self._job.resource
        if self._agreement.by == BY_LOOSE:
            return "; not proven: servers keep their agreement loosely, only a census can tell"
        if noted is None:
            return ""
        stored = storage_version_hash(
            GroupVersionKind.of(f"{resource.group}/{noted.storage_version}", resource.kind)
        )
        if self._agreement.target != stored:
            return f"; storedVersions is left as it is: {noted.storage_version} is not the target"
        try:
            why_not = await trim(self._client, noted)
        except StatusError as error:
            if not _is_final(error):
                raise  # the next run verifies it again, after the server has recovered
            why_not = str(error)
        if why_not:
            return f"; storedVersions is left as it is: {why_not}"
        return f"; storedVersions is {noted.storage_version}"

    async def _fail(self, ending: RunEnd, reason: str, message: str) -> RunOutcome:
        """Mark the migration as failed, even if the agreement is lost."""
        message = message[:MESSAGE_LENGTH_MAX]
        if self._writer is not None:
            await self._writer.failed(
                reason, message, progress=self._progress, failures=self._failures
            )
        return self._outcome(ending, reason, message)

    def _outcome(
        self, ending: RunEnd, reason: str, message: str, *, proof: Proof | None = None
    ) -> RunOutcome:
        counts = self._position.counts
        return RunOutcome(
            ending=ending,
            reason=reason,
            message=message,
            objects=counts.scanned,
            rewritten=self._progress.rewritten,
            failed=counts.failed,
            proof=proof,
        )

    def _failures_text(self, count: int) -> str:
        named = [
            f"{each.namespace}/{each.name}".lstrip("/")
            + f" ({each.reason}: {each.message[:FAILURE_LENGTH_MAX]})"
            for each in self._failures[:FAILURES_NAMED_MAX]
        ]
        more = ", …" if count > len(named) else ""
        return f"{count:,} objects could not be rewritten: {'; '.join(named)}{more}"

    def _purpose(self) -> Purpose:
        return Purpose(
            request_uid="" if self._followed is None else uid_of(self._followed.latest),
            resource=str(self._job.resource.group_resource),
            way=REWRITE if self._job.can_rewrite else PATCH,
            target=self._agreement.target,
            mark=self._agreement.mark,
        )

    def _is_proven_already(self, marks: dict[str, str]) -> bool:
        agreed, text = self._agreement, marks.get(PROOF_ANNOTATION, "")
        return bool(text) and proves(text, target=agreed.target, mark=agreed.mark)
