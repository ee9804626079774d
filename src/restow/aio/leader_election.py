"""Leader election: of several processes, one works.

    async with elector.leading() as term:   # waits until it is the leader
        ...                                 # cancelled when it no longer is: LeadershipLost

The leader renews a record in a shared place, the lock. No clock of another process is trusted: a
leader has expired when its record did not change for the lease duration on the reader's own
monotonic clock, and a leader stops itself earlier, counted from before it sent the last renewal
that succeeded.

A process that was paused may act once before it notices. What must not happen twice needs a
precondition of its own; `term.check()` only makes the window small.

Not here: where the record is kept (a Lease: `restow.client.lease_lock`; a key of the store:
`restow.controllers.store_lock`), and what a leader does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from restow.aio.runtime import Runtime

__all__ = [
    "LeaderElector",
    "LeaderTiming",
    "Leadership",
    "LeadershipLost",
    "Lock",
    "LockConflict",
    "LockRecord",
    "LockUnavailable",
]

RELEASE_SECONDS_MAX: Final = 3.0
# As client-go: standbys try again after once to about twice the retry time.
_JITTER: Final = 1.2

logger = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """Another process leads now, or may."""


class LockConflict(Exception):
    """The record was changed since it was read."""


class LockUnavailable(Exception):
    """The record could not be read or written; a write may have happened all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """What a lock says. Without a holder there is no leader."""

    holder: str = ""
    lease_seconds: float = 0
    """How long standbys wait for the holder; zero: as long as they would hold it themselves."""
    transitions: int = 0
    """How often the leader has changed."""
    renewal: Hashable = None
    """Differs after each renewal."""
    handle: Any = field(default=None, compare=False)
    """What the lock needs to replace this very record; None: there is none yet."""


class Lock(Protocol):
    """Where the record of one election is kept. Writes are conditional on the record seen."""

    @property
    def name(self) -> str:
        """For log lines, with its kind: `lease kube-system/restow-trigger`."""

    @property
    def is_lost_when_deleted(self) -> bool:
        """Whether a leader whose record was deleted stops, and does not create it again."""

    async def read(self) -> LockRecord: ...

    async def write(self, seen: LockRecord, *, holder: str, lease_seconds: float) -> LockRecord:
        """Take or renew it. Raises LockConflict or LockUnavailable."""

    async def release(self, seen: LockRecord) -> None:
        """Free it, so that no standby waits for it to expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTiming:
    """The times of an election; the defaults are those of Kubernetes' own controllers."""

    lease_seconds: float = 15
    """How long standbys wait for a leader that does not renew, before they take over."""
    renew_seconds: float = 10.0
    """A leader that could not renew for this long stops."""
    retry_seconds: float = 2.0
    """Between attempts after a failure, and between renewals unless `interval_seconds` is given."""
    interval_seconds: float | None = None
    """Between renewals."""

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > _JITTER * self.retry_seconds > 0:
            raise ValueError(
                f"lease_seconds > renew_seconds > {_JITTER} * retry_seconds > 0 does not hold"
            )
        if not self.renew_seconds > self.renewal_seconds > 0:
            raise ValueError("renew_seconds > interval_seconds > 0 does not hold")

    @property
    def renewal_seconds(self) -> float:
        return self.retry_seconds if self.interval_seconds is None else self.interval_seconds

    @classmethod
    def of_lease(cls, lease_seconds: float) -> Self:
        """The other times in the same proportion to it."""
        factor = lease_seconds / cls().lease_seconds
        return cls(
            lease_seconds=lease_seconds,
            renew_seconds=cls().renew_seconds * factor,
            retry_seconds=cls().retry_seconds * factor,
        )


class Leadership:
    """One term of a leader, as that leader sees it."""

    def __init__(self, elector: LeaderElector, transitions: int) -> None:
        self.transitions = transitions
        """How often the leader had changed: grows with each leader."""
        self._elector = elector

    @property
    def is_held(self) -> bool:
        """Whether no other process can lead now."""
        return self._elector.is_leading

    def check(self) -> None:
        """Raise LeadershipLost unless it is held; call before each act that others must not do."""
        if not self.is_held:
            raise self._elector.lost()


class LeaderElector:
    """One candidate. A restarted process is another candidate, so its identity must be unique."""

    def __init__(
        self, lock: Lock, runtime: Runtime, *, identity: str, timing: LeaderTiming | None = None
    ) -> None:
        self.runtime = runtime
        self.identity = identity
        self.timing = timing or LeaderTiming()
        self._gone: frozenset[str] = frozenset()
        self._lock = lock
        self._clock = runtime.clock
        self._record = LockRecord()
        self._is_current = False
        """Whether the record is what the lock says, unless another process has changed it."""
        self._observed_at: float | None = None
        self._leads_until: float | None = None
        self._trouble = ""
        """The error that was logged last."""

    def note_gone(self, holders: frozenset[str]) -> None:
        """These holders have ended: their lease need not expire."""
        self._gone = holders

    @property
    def is_leading(self) -> bool:
        """Whether this candidate leads, by its own clock."""
        return self._leads_until is not None and self._clock.monotonic() < self._leads_until

    @property
    def holder(self) -> str:
        """The leader that was observed last; empty: none."""
        return self._record.holder

    def lost(self) -> LeadershipLost:
        """The error of a leader that is none any more."""
        now = f"; now it is {self.holder}" if self.holder not in {"", self.identity} else ""
        return LeadershipLost(f"{self.identity} does not hold the {self._lock.name} any more{now}")

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership]:
        """Wait for the lock and hold it during the block; then release it, so that no standby
        waits. If it is lost, the block is cancelled and LeadershipLost raised."""
        scope = asyncio.timeout(None)
        try:
            await self._acquire()
            logger.info("%s holds the %s", self.identity, self._lock.name)
            async with scope, self.runtime.tasks(f"leader/{self._lock.name}") as tasks:
                tasks.spawn("renew", self._keep(scope))
                yield Leadership(self, self._record.transitions)
        except TimeoutError:
            if not scope.expired():
                raise
            raise self.lost() from None
        finally:
            await self._release()

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Work whenever this process leads; return when the work has ended by itself.

        The work is cancelled when the lock is lost, and started again with the next term. An error
        of the work releases the lock and is raised.
        """
        while True:
            try:
                async with self.leading():
                    await work()
                return
            except LeadershipLost:
                continue

    async def _acquire(self) -> None:
        while True:
            try:
                async with self._clock.timeout(self.timing.renew_seconds):
                    await self._try()
            except TimeoutError:
                logger.warning("no answer about the %s", self._lock.name)
            # A late answer may be about a lease that has expired already.
            if self.is_leading:
                return
            self._leads_until = None
            await self._clock.sleep(self._standby_seconds())

    def _standby_seconds(self) -> float:
        """How long to wait before the next attempt: at most until the observed lease expires."""
        timing = self.timing
        remaining = self._expires_in_seconds()
        seconds = timing.retry_seconds if remaining <= 0 else timing.renewal_seconds
        seconds += self.runtime.randomness.uniform(0, _JITTER * timing.retry_seconds)
        return seconds if remaining <= 0 else min(seconds, remaining)

    async def _keep(self, scope: asyncio.Timeout) -> None:
        """Renew as long as it can be done in time; then end the block."""
        try:
            await self._clock.sleep(self.timing.renewal_seconds)
            while await self._renew():
                await self._clock.sleep(self.timing.renewal_seconds)
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
        """One renewal, retried until the deadline; False if another process leads."""
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
        """Take or renew the lock, if it is free or ours."""
        try:
            return await self._take_or_renew()
        except LockConflict:
            pass  # another process was faster: read again
        except LockUnavailable as error:
            self._log(str(error))
        return False

    def _log(self, trouble: str) -> None:
        """Repetitions of the same error only at debug level."""
        level = logging.DEBUG if trouble == self._trouble else logging.WARNING
        self._trouble = trouble
        logger.log(level, "the %s: %s", self._lock.name, trouble)

    async def _take_or_renew(self) -> bool:
        if not self._is_current:
            self._observe(await self._lock.read())
        if self._expires_in_seconds() > 0:
            return False
        is_renewal = self._leads_until is not None
        if is_renewal and not self._record.holder and self._lock.is_lost_when_deleted:
            return False
        # Until it is answered, the record is unknown: also if this is cancelled.
        self._is_current = False
        sent_at = self._clock.monotonic()
        record = await self._lock.write(
            self._record, holder=self.identity, lease_seconds=self.timing.lease_seconds
        )
        self._observe(record)
        self._is_current = True
        self._leads_until = sent_at + self.timing.renew_seconds
        return True

    def _observe(self, record: LockRecord) -> None:
        if self._observed_at is None or record != self._record:
            self._observed_at = self._clock.monotonic()
        self._record = record

    def _expires_in_seconds(self) -> float:
        """How long the lock is still another's, by our clock; zero or less: it may be taken."""
        record = self._record
        is_free = record.holder in {"", self.identity} or record.holder in self._gone
        if is_free or self._observed_at is None:
            return 0.0
        # A record without a duration is respected for as long as ours would be.
        seconds = record.lease_seconds or self.timing.lease_seconds
        return self._observed_at + seconds - self._clock.monotonic()

    async def _release(self) -> None:
        """Release the lock if it is ours for sure; otherwise it expires."""
        was_leading, self._leads_until = self.is_leading, None
        if not was_leading:
            return
        try:
            async with self._clock.timeout(RELEASE_SECONDS_MAX):
                if not self._is_current:  # a renewal was cut short, perhaps after it was done
                    self._observe(await self._lock.read())
                self._is_current = False
                if self._record.holder == self.identity:
                    await self._lock.release(self._record)
                    self._record = LockRecord()
        except (LockConflict, LockUnavailable, TimeoutError) as error:
            logger.info("the %s expires by itself: %s", self._lock.name, error)
