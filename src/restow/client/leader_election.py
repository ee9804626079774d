"""Leader election by a Lease: of several processes, one works. client-go can take part in it.

    elector = LeaderElector(client, namespace="kube-system", name="migrator", identity=hostname)
    async with elector.leading() as term:   # waits until it is the leader
        ...                                 # cancelled when it no longer is: LeadershipLost

Nobody trusts another's clock: a lease is over when its record has not changed for its duration on
the reader's own monotonic clock, and a leader stops itself earlier, counted from before it sent the
last renewal that succeeded.

A process that stood still may act once before it notices. What must not happen twice needs a guard
in the object itself; `term.check()` only makes the window small.

Not here: what a leader does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

from restow.aio import Ids
from restow.apimachinery.status import AlreadyExists, Conflict, NotFound
from restow.apimachinery.status_error import StatusError
from restow.apis.resources import LEASES
from restow.client.client import ApiClient
from restow.client.errors import ClientError, ConnectionFailed, LeadershipLost
from restow.client.lease_record import LeaseRecord, micro_time, new_lease
from restow.client.objects import Object
from restow.client.retry_policy import NO_RETRY

__all__ = ["LeaderElector", "LeaderTiming", "Leadership", "unique_identity"]

RELEASE_SECONDS_MAX: Final = 3.0
# As client-go: those who wait look again after once to about twice the retry time.
_JITTER: Final = 1.2
# What a released lease says: free at once.
_RELEASED_SECONDS: Final = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTiming:
    """The times of an election; the defaults are those of Kubernetes' own controllers."""

    lease_seconds: int = 15
    """For so long others leave a leader alone that does not renew."""
    renew_seconds: float = 10.0
    """A leader that could not renew for so long stops."""
    retry_seconds: float = 2.0
    """Between attempts, and between renewals."""

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > _JITTER * self.retry_seconds > 0:
            raise ValueError(
                f"lease_seconds > renew_seconds > {_JITTER} * retry_seconds > 0 does not hold"
            )

    @classmethod
    def of_lease(cls, lease_seconds: int) -> Self:
        """The other times in the same proportion to it."""
        factor = lease_seconds / cls().lease_seconds
        return cls(
            lease_seconds=lease_seconds,
            renew_seconds=cls().renew_seconds * factor,
            retry_seconds=cls().retry_seconds * factor,
        )


class Leadership:
    """A time of leading, as the one who leads sees it."""

    def __init__(self, elector: LeaderElector, transitions: int) -> None:
        self.transitions = transitions
        """How often the lease had changed hands: grows with each leader."""
        self._elector = elector

    @property
    def is_held(self) -> bool:
        """Whether nobody else can lead now."""
        return self._elector.is_leading

    def check(self) -> None:
        """Raise LeadershipLost unless it is held; call before each act that others must not do."""
        if not self.is_held:
            raise self._elector.lost()


def unique_identity(name: str, ids: Ids) -> str:
    """The identity of one process, `<name>_<uid>`: no other process has it, before or after."""
    return f"{name}_{ids.uid()}"


class LeaderElector:
    """One candidate. A restarted process is another candidate, so its identity must be unique."""

    def __init__(
        self,
        client: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        is_unique: bool = False,
        timing: LeaderTiming | None = None,
    ) -> None:
        """Without `is_unique` the identity is made so (`unique_identity`)."""
        self.runtime = client.runtime
        self.namespace = namespace
        self.name = name
        self.identity = identity if is_unique else unique_identity(identity, self.runtime.ids)
        self.timing = timing or LeaderTiming()
        # Its own loop tries again, with a look at the clock.
        self._client = client.with_retry(NO_RETRY)
        self._clock = self.runtime.clock
        self._lease: Object | None = None
        """The lease as it is, if nobody has changed it since; None is: read it first."""
        self._record = LeaseRecord()
        self._observed_at: float | None = None
        self._leads_until: float | None = None
        self._trouble = ""
        """What was last wrong."""

    @property
    def is_leading(self) -> bool:
        """Whether this candidate leads, by its own clock."""
        return self._leads_until is not None and self._clock.monotonic() < self._leads_until

    @property
    def holder(self) -> str:
        """Who was seen to hold the lease last; empty for nobody."""
        return self._record.holder

    def lost(self) -> LeadershipLost:
        """The error of a leader that is none any more."""
        now = f"; now it is {self.holder}" if self.holder not in {"", self.identity} else ""
        return LeadershipLost(
            f"{self.identity} does not hold the lease {self.namespace}/{self.name} any more{now}"
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership]:
        """Wait for the lease and hold it during the block; then give it up, so that others need
        not wait. If it is lost, the block is cancelled and LeadershipLost raised."""
        scope = asyncio.timeout(None)
        try:
            await self._acquire()
            logger.info("%s leads %s/%s", self.identity, self.namespace, self.name)
            async with scope, self.runtime.tasks(f"leader/{self.name}") as tasks:
                tasks.spawn("renew", self._keep(scope))
                yield Leadership(self, self._record.transitions)
        except TimeoutError:
            if not scope.expired():
                raise
            raise self.lost() from None
        finally:
            await self._release()

    async def _acquire(self) -> None:
        timing = self.timing
        while True:
            try:
                async with self._clock.timeout(timing.renew_seconds):
                    await self._try()
            except TimeoutError:
                logger.warning("no answer about the lease %s/%s", self.namespace, self.name)
            # A late answer may be about a lease that is over already.
            if self.is_leading:
                return
            self._leads_until = None
            stretch = self.runtime.randomness.uniform(0, _JITTER * timing.retry_seconds)
            await self._clock.sleep(timing.retry_seconds + stretch)

    async def _keep(self, scope: asyncio.Timeout) -> None:
        """Renew as long as it can be done in time; then end the block."""
        try:
            await self._clock.sleep(self.timing.retry_seconds)
            while await self._renew():
                await self._clock.sleep(self.timing.retry_seconds)
        except asyncio.CancelledError:
            raise  # the block has ended by itself
        except BaseException:
            self._end(scope)
            raise
        self._end(scope)

    def _end(self, scope: asyncio.Timeout) -> None:
        self._leads_until = None
        logger.warning("%s", self.lost())
        scope.reschedule(asyncio.get_running_loop().time())

    async def _renew(self) -> bool:
        """One renewal, tried until the time is over; False if another leads."""
        if self._leads_until is None:
            return False
        try:
            async with self._clock.timeout(self._leads_until - self._clock.monotonic()):
                while not await self._try():
                    if self._record.holder != self.identity:
                        return False
                    await self._clock.sleep(self.timing.retry_seconds)
        except TimeoutError:
            return False
        return self.is_leading

    async def _try(self) -> bool:
        """Take or renew the lease, if it is free or ours."""
        try:
            return await self._take_or_renew()
        except (AlreadyExists, Conflict):
            pass  # somebody was faster: look again
        except (StatusError, ConnectionFailed) as error:
            self._tell(str(error))
        return False

    def _tell(self, trouble: str) -> None:
        """Once; while it is the same trouble again and again, only to those who look closely."""
        level = logging.DEBUG if trouble == self._trouble else logging.WARNING
        self._trouble = trouble
        logger.log(level, "the lease %s/%s: %s", self.namespace, self.name, trouble)

    async def _take_or_renew(self) -> bool:
        is_new = False
        lease = self._lease
        if lease is None:
            try:
                lease = await self._client.get(LEASES, self.name, namespace=self.namespace)
            except NotFound:
                lease, is_new = new_lease(self.namespace, self.name), True
            self._observe(LeaseRecord.read(lease))
        if not self._is_free():
            return False
        # Until it is answered, nobody knows what the lease says: also if this is cancelled.
        self._lease = None
        sent_at = self._clock.monotonic()
        changed = self._next_record(is_new=is_new).written_to(lease)
        if is_new:
            lease = await self._client.create(LEASES, changed, namespace=self.namespace)
        else:
            lease = await self._client.update(LEASES, changed, namespace=self.namespace)
        self._observe(LeaseRecord.read(lease))
        self._lease = lease
        self._leads_until = sent_at + self.timing.renew_seconds
        return True

    def _observe(self, record: LeaseRecord) -> None:
        if self._observed_at is None or record != self._record:
            self._record, self._observed_at = record, self._clock.monotonic()

    def _is_free(self) -> bool:
        record = self._record
        if record.holder in {"", self.identity} or self._observed_at is None:
            return True
        # A record without a duration is left alone for as long as ours would be.
        seconds = record.lease_seconds or self.timing.lease_seconds
        return self._clock.monotonic() >= self._observed_at + seconds

    def _next_record(self, *, is_new: bool) -> LeaseRecord:
        now = micro_time(self._clock.wall())
        if self._record.holder == self.identity:
            acquired, transitions = self._record.acquire_time, self._record.transitions
        else:
            acquired = now
            transitions = 0 if is_new else self._record.transitions + 1
        return LeaseRecord(
            holder=self.identity,
            lease_seconds=self.timing.lease_seconds,
            acquire_time=acquired,
            renew_time=now,
            transitions=transitions,
        )

    async def _release(self) -> None:
        """Give the lease up, if it is surely ours; otherwise it runs out by itself."""
        was_leading, self._leads_until = self.is_leading, None
        if not was_leading:
            return
        try:
            async with self._clock.timeout(RELEASE_SECONDS_MAX):
                await self._write_free()
        except (StatusError, ClientError, TimeoutError) as error:
            logger.info("the lease %s/%s runs out by itself: %s", self.namespace, self.name, error)

    async def _write_free(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:  # a renewal was cut short, perhaps after it was done
            lease = await self._client.get(LEASES, self.name, namespace=self.namespace)
            if LeaseRecord.read(lease).holder != self.identity:
                return
        now = micro_time(self._clock.wall())
        free = LeaseRecord(
            lease_seconds=_RELEASED_SECONDS,
            acquire_time=now,
            renew_time=now,
            transitions=self._record.transitions,
        )
        await self._client.update(LEASES, free.written_to(lease), namespace=self.namespace)
        self._observe(free)
