"""Leader election: one of several processes does the work.

    async with elector.leading() as term:   # waits until it is the leader
        ...                                 # cancelled on loss of the lock: LeadershipLost

The leader renews a record in a shared lock. Clocks of other processes are not trusted: a leader has
expired when its record did not change for the lease duration on the observer's own monotonic clock,
and a leader stops itself earlier, counted from before it sent the last successful renewal.

A process that was paused may act once more before it detects the loss. Actions that must not happen
twice need a precondition of their own; `term.check()` only shortens that time.

Not here: where the record is stored (a Lease: `restow.client.lease_lock`; a key of the store:
`restow.controllers.store_lock`), and the work of a leader.
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
    """Another process is the leader now, or may be."""


class LockConflict(Exception):
    """The record has changed since it was read."""


class LockUnavailable(Exception):
    """The record could not be read or written; a write may have succeeded nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """The contents of a lock. Without a holder there is no leader."""

    holder: str = ""
    lease_seconds: float = 0
    """How long standbys wait for the holder; zero: their own lease duration."""
    transitions: int = 0
    """The number of changes of the leader."""
    renewal: Hashable = None
    """A value that differs after each renewal."""
    handle: Any = field(default=None, compare=False)
    """Identifies this version of the record for a conditional write; None: no record exists."""


class Lock(Protocol):
    """Stores the record of one election. Writes are conditional on the record that was read."""

    @property
    def name(self) -> str:
        """The name in log messages, with the kind: `lease kube-system/restow-trigger`."""

    @property
    def is_lost_when_deleted(self) -> bool:
        """Whether a leader whose record was deleted stops instead of creating it again."""

    async def read(self) -> LockRecord: ...

    async def write(self, seen: LockRecord, *, holder: str, lease_seconds: float) -> LockRecord:
        """Acquire or renew the lock. Raises LockConflict or LockUnavailable."""

    async def release(self, seen: LockRecord) -> None:
        """Release the lock, so that standbys need not wait until it expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTiming:
    """The durations of an election; the defaults are those of Kubernetes' controllers."""

    lease_seconds: float = 15
    """How long standbys wait for a leader that does not renew, before they take over."""
    renew_seconds: float = 10.0
    """A leader that could not renew the lock for this long stops."""
    retry_seconds: float = 2.0
    """Interval of attempts after a failure, and of renewals unless `interval_seconds` is given."""
    interval_seconds: float | None = None
    """Interval of renewals."""

    def __post_init__(self) -> None:
        if not self.lease_seconds > self.renew_seconds > _JITTER * self.retry_seconds > 0:
            raise ValueError(
                f"lease_seconds > renew_seconds > {_JITTER} * retry_seconds > 0 is required"
            )
        if not self.renew_seconds > self.renewal_seconds > 0:
            raise ValueError("renew_seconds > interval_seconds > 0 is required")

    @property
    def renewal_seconds(self) -> float:
        return self.retry_seconds if self.interval_seconds is None else self.interval_seconds

    @classmethod
    def of_lease(cls, lease_seconds: float) -> Self:
        """Return timing for a lease duration, with the default proportions."""
        factor = lease_seconds / cls().lease_seconds
        return cls(
            lease_seconds=lease_seconds,
            renew_seconds=cls().renew_seconds * factor,
            retry_seconds=cls().retry_seconds * factor,
        )


class Leadership:
    """One term of a leader."""

    def __init__(self, elector: LeaderElector, transitions: int) -> None:
        self.transitions = transitions
        """The number of changes of the leader before this term: increases with each leader."""
        self._elector = elector

    @property
    def is_held(self) -> bool:
        """Whether no other process can be the leader now."""
        return self._elector.is_leading

    def check(self) -> None:
        """Raise LeadershipLost unless the term is held; call before each exclusive action."""
        if not self.is_held:
            raise self._elector.lost()


class LeaderElector:
    """One candidate. A restarted process is a new candidate, so the identity must be unique."""

    def __init__(
        self, lock: Lock, runtime: Runtime, *, identity: str, timing: LeaderTiming | None = None
    ) -> None:
        self.runtime = runtime
        self.identity = identity
        self.timing = timing or LeaderTiming()
        self._ended: frozenset[str] = frozenset()
        self._lock = lock
        self._clock = runtime.clock
        self._record = LockRecord()
        self._is_current = False
        """Whether the record is the current one, unless another process has changed it."""
        self._observed_at: float | None = None
        self._leads_until: float | None = None
        self._last_error = ""
        """The last error that was logged."""

    def note_gone(self, holders: frozenset[str]) -> None:
        """Record that these holders have ended, so that their lease need not expire."""
        self._ended = holders

    @property
    def is_leading(self) -> bool:
        """Whether this candidate is the leader, by its own clock."""
        return self._leads_until is not None and self._clock.monotonic() < self._leads_until

    @property
    def holder(self) -> str:
        """The leader that was observed last; empty: none."""
        return self._record.holder

    def lost(self) -> LeadershipLost:
        """Return the error for a leader that has lost the lock."""
        now = f"; the holder is now {self.holder}" if self.holder not in {"", self.identity} else ""
        return LeadershipLost(f"{self.identity} no longer holds the {self._lock.name}{now}")

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership]:
        """Wait for the lock and hold it during the block; then release it, so that standbys need
        not wait. If the lock is lost, the block is cancelled and LeadershipLost raised."""
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
        """Run the work whenever this process is the leader; return when the work ends by itself.

        The work is cancelled when the lock is lost, and started again in the next term. An error of
        the work releases the lock and is raised.
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
                    await self._try_once()
            except TimeoutError:
                logger.warning("timeout while reading or writing the %s", self._lock.name)
            # A late response may be about a lease that has expired already.
            if self.is_leading:
                return
            self._leads_until = None
            await self._clock.sleep(self._standby_seconds())

    def _standby_seconds(self) -> float:
        """Return the delay of the next attempt: at most until the observed lease expires."""
        timing = self.timing
        remaining = self._expires_in_seconds()
        seconds = timing.retry_seconds if remaining <= 0 else timing.renewal_seconds
        seconds += self.runtime.randomness.uniform(0, _JITTER * timing.retry_seconds)
        return seconds if remaining <= 0 else min(seconds, remaining)

    async def _keep(self, scope: asyncio.Timeout) -> None:
        """Renew the lock while that succeeds in time; then end the block."""
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
        """Renew once, retrying until the deadline; return False if another process is the
        leader."""
        if self._leads_until is None:
            return False
        try:
            async with self._clock.timeout(self._leads_until - self._clock.monotonic()):
                while not await self._try_once():
                    if self._record.holder != self.identity:
                        return False
                    await self._clock.sleep(self.timing.retry_seconds)
        except TimeoutError:
            return False
        return self.is_leading

    async def _try_once(self) -> bool:
        """Acquire or renew the lock, if it is free or held by this candidate."""
        try:
            return await self._take_or_renew()
        except LockConflict:
            pass  # changed by another process: read it again
        except LockUnavailable as error:
            self._log(str(error))
        return False

    def _log(self, error: str) -> None:
        """Log an error as a warning; repetitions at debug level."""
        level = logging.DEBUG if error == self._last_error else logging.WARNING
        self._last_error = error
        logger.log(level, "the %s: %s", self._lock.name, error)

    async def _take_or_renew(self) -> bool:
        if not self._is_current:
            self._observe(await self._lock.read())
        if self._expires_in_seconds() > 0:
            return False
        is_renewal = self._leads_until is not None
        if is_renewal and not self._record.holder and self._lock.is_lost_when_deleted:
            return False
        # Until the response arrives, the record is unknown, also after a cancellation.
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
        """Return the seconds until the lock of another holder expires; zero or less: it is free."""
        record = self._record
        is_free = record.holder in {"", self.identity} or record.holder in self._ended
        if is_free or self._observed_at is None:
            return 0.0
        # A record without a duration is respected for our own lease duration.
        seconds = record.lease_seconds or self.timing.lease_seconds
        return self._observed_at + seconds - self._clock.monotonic()

    async def _release(self) -> None:
        """Release the lock if it is certainly held by this candidate; otherwise it expires."""
        was_leading, self._leads_until = self.is_leading, None
        if not was_leading:
            return
        try:
            async with self._clock.timeout(RELEASE_SECONDS_MAX):
                if not self._is_current:  # a renewal was interrupted and may have succeeded
                    self._observe(await self._lock.read())
                self._is_current = False
                if self._record.holder == self.identity:
                    await self._lock.release(self._record)
                    self._record = LockRecord()
        except (LockConflict, LockUnavailable, TimeoutError) as error:
            logger.info("could not release the %s; it will expire: %s", self._lock.name, error)
