"""Rewrite through the API: every object of a page gets a small conditional patch.

Satisfies `Pages`, on any Kubernetes server. Many patches are in flight at once, within the adaptive
limit of `pace`. Workers take objects from the page until it is empty; the next page is listed while
the last of them are in flight.

A conflict proves nothing: the writer may be a server with another storage version. The object is
read and rewritten again, even if it was recreated meanwhile.

Not here: positions, agreement, passes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from restow.aio import Backoff, Runtime
from restow.apimachinery.status import StatusError
from restow.client import NO_RETRY, ApiClient, ApiResource, ConnectionFailed, ConnectionLimits
from restow.migration.migrator.object_list import Listed, ObjectList
from restow.migration.migrator.object_writer import ObjectRef, ObjectWriter
from restow.migration.migrator.pace import Pace, PaceOptions
from restow.migration.migrator.passes import ObjectFailure, PageDone
from restow.migration.migrator.write_errors import (
    CONFLICTS_MAX,
    Means,
    WriteClass,
    classify,
    message_of,
    reason_of,
)

FIELD_MANAGER: Final = "restow-migrator"
# For the other connections of the process: leases, status, watches that are opened again.
CONNECTIONS_BESIDE: Final = 16
RETRY_BACKOFF: Final = Backoff(initial_seconds=0.1, factor=2, max_seconds=5, jitter=0.5)
CONFLICT_BACKOFF: Final = Backoff(initial_seconds=0.01, factor=2, max_seconds=1, jitter=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchOptions:
    """Limits that a user may set."""

    page_objects: int = 500
    in_flight_max: int = 64
    objects_per_second: float | None = None
    """None: no limit but the adaptive one."""
    field_manager: str = FIELD_MANAGER

    def __post_init__(self) -> None:
        if self.page_objects < 1:
            raise ValueError("page_objects must be at least 1")
        self.pace()

    def pace(self) -> PaceOptions:
        return PaceOptions(
            in_flight_max=self.in_flight_max, requests_per_second=self.objects_per_second
        )


def connections_for(options: PatchOptions, *, resources: int = 1) -> ConnectionLimits:
    """Return connection limits for a client that migrates `resources` resources concurrently.

    All connections are kept alive: a new one costs more than several patches.
    """
    count = options.in_flight_max * resources + CONNECTIONS_BESIDE
    return ConnectionLimits(requests_max=count, kept_max=count)


@dataclass(slots=True)
class _Work:
    """The state of the current page."""

    refs: deque[ObjectRef]
    workers: int = 0
    has_listed_next: bool = False
    rewritten: int = 0
    unchanged: int = 0
    settled: int = 0
    failures: list[ObjectFailure] = field(default_factory=list)


class PatchRewrite:
    """Rewrites one resource with patches, one page at a time. The pace is kept across pages."""

    def __init__(
        self,
        client: ApiClient,
        resource: ApiResource,
        *,
        runtime: Runtime,
        options: PatchOptions,
        in_flight: Callable[[int], None] | None = None,
        is_dry_run: bool = False,
    ) -> None:
        """`in_flight` is called with the number of objects being written, when it changes."""
        # Rejections report the server's load: they are handled here, not in the client.
        client = client.with_retry(NO_RETRY)
        self._listing = ObjectList(client, resource, runtime=runtime, limit=options.page_objects)
        self._writer = ObjectWriter(
            client, resource, field_manager=options.field_manager, is_dry_run=is_dry_run
        )
        self._pace = Pace(options.pace())
        self._clock = runtime.clock
        self._randomness = runtime.randomness
        self._in_flight = in_flight
        self._next: tuple[str, Listed] | None = None

    async def page(self, token: str) -> PageDone:
        """See `Pages`. The result has all failures of the page."""
        found, self._next = self._next, None
        if found is not None and found[0] == token:
            listed = found[1]
        else:
            listed = await self._listing.page(token)
        work = _Work(deque(listed.refs))
        try:
            async with asyncio.TaskGroup() as group:
                self._start_workers(group, work, listed.token)
        except BaseExceptionGroup as errors:
            raise _first_error(errors) from None
        finally:
            self._note_in_flight(0)
        return PageDone(
            token=listed.token,
            scanned=len(listed.refs),
            rewritten=work.rewritten,
            unchanged=work.unchanged,
            settled=work.settled,
            failed=len(work.failures),
            failures=tuple(work.failures),
            remaining=listed.remaining,
        )

    def _start_workers(self, group: asyncio.TaskGroup, work: _Work, next_token: str) -> None:
        """Start as many workers as the concurrency limit allows and the page needs."""
        missing = min(self._pace.limit - work.workers, len(work.refs))
        for _ in range(missing):
            work.workers += 1
            group.create_task(self._work(group, work, next_token), name="migrator/patch")
        if missing > 0:
            self._note_in_flight(work.workers)

    async def _work(self, group: asyncio.TaskGroup, work: _Work, next_token: str) -> None:
        while work.refs and work.workers <= self._pace.limit:
            await self._settle(work.refs.popleft(), work)
            if work.workers < self._pace.limit:
                self._start_workers(group, work, next_token)
        work.workers -= 1
        self._note_in_flight(work.workers)
        if next_token and not work.refs and not work.has_listed_next:
            work.has_listed_next = True
            await self._list_next(next_token)

    async def _list_next(self, token: str) -> None:
        """List the next page ahead; if that fails, `page` lists it again and reports the error."""
        try:
            self._next = (token, await self._listing.page_once(token))
        except (StatusError, ConnectionFailed):
            self._next = None

    async def _settle(self, ref: ObjectRef, work: _Work) -> None:
        """Write one object, with retries. Raises an error that affects more than this object."""
        conflicts = failures = 0
        must_read = False
        while True:
            try:
                await self._wait_for_pace()
                if must_read:
                    ref, must_read = await self._writer.read(ref), False
                is_new = await self._timed_write(ref)
            except (StatusError, ConnectionFailed) as error:
                verdict = self._classified(error)
                if verdict.means is Means.GONE:
                    work.settled += 1
                    return
                is_conflict = verdict.means is Means.CONFLICT
                conflicts, failures = conflicts + is_conflict, failures + (not is_conflict)
                if not _has_tries(verdict, conflicts, failures):
                    if verdict.means is Means.STOP or verdict.is_about_server:
                        raise
                    work.failures.append(_failure(ref, error))
                    return
                must_read = must_read or is_conflict
            else:
                _count(work, is_new=is_new, has_moved=conflicts > 0)
                return
            backoff = CONFLICT_BACKOFF if is_conflict else RETRY_BACKOFF
            await self._clock.sleep(
                backoff.delay_seconds(conflicts + failures - 1, self._randomness)
            )

    async def _timed_write(self, ref: ObjectRef) -> bool:
        begin = self._clock.monotonic()
        is_new = await self._writer.write(ref)
        now = self._clock.monotonic()
        self._pace.answered(now, seconds=now - begin)
        return is_new

    def _classified(self, error: StatusError | ConnectionFailed) -> WriteClass:
        """Classify an error; if it reports load, reduce the pace for all workers."""
        verdict = classify(error)
        if verdict.is_load:
            self._pace.refused(self._clock.monotonic(), wait_seconds=verdict.wait_seconds)
        return verdict

    async def _wait_for_pace(self) -> None:
        """Wait until a request may be sent."""
        wait_seconds = self._pace.reserve(self._clock.monotonic())
        while wait_seconds > 0:
            await self._clock.sleep(wait_seconds)
            # A rejection may have paused all workers meanwhile.
            wait_seconds = self._pace.paused_seconds(self._clock.monotonic())

    def _note_in_flight(self, count: int) -> None:
        if self._in_flight is not None:
            self._in_flight(count)


def _has_tries(verdict: WriteClass, conflicts: int, failures: int) -> bool:
    match verdict.means:
        case Means.CONFLICT:
            return conflicts <= CONFLICTS_MAX
        case Means.RETRY:
            return failures < verdict.attempts_max
        case _:
            return False


def _count(work: _Work, *, is_new: bool, has_moved: bool) -> None:
    if is_new:
        work.rewritten += 1
    elif has_moved:
        work.settled += 1
    else:
        work.unchanged += 1


def _failure(ref: ObjectRef, error: StatusError | ConnectionFailed) -> ObjectFailure:
    return ObjectFailure(
        namespace=ref.namespace, name=ref.name, reason=reason_of(error), message=message_of(error)
    )


def _first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error, if all of them mean that the page failed; otherwise the whole group."""
    _, others = errors.split((StatusError, ConnectionFailed))
    first = errors.exceptions[0]
    return errors if others is not None or isinstance(first, BaseExceptionGroup) else first
