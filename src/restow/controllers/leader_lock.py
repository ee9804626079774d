"""One server at a time: a turn that one process holds and the others wait for.

The turn is a key that its holder renews. Another process takes it over when it has itself seen no
renewal for the whole duration; the holder stops its work some time before that could happen. A
clean stop gives the turn back at once. Nobody waits for a holder that is known to be gone, such as
the process that had this server's address before.

A process may be paused and act late in spite of all this, so whatever is done under a turn must be
guarded by what it has read. Not here: the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson

from restow.aio import Runtime
from restow.controllers.key_observations import KeyObservations
from restow.registry.stored_bytes import to_keep
from restow.storage.errors import StorageError
from restow.storage.interface import (
    Absent,
    Delete,
    Done,
    Guard,
    Item,
    Key,
    Outcome,
    Put,
    Refused,
    Revision,
    RevisionIs,
    Storage,
    Transaction,
    Unknown,
)

TURNS_PREFIX: Final = "/restow/turns/"
TURN_SECONDS: Final = 10.0
"""Shorter than the leases of servers: nothing but double work would come of a turn that is taken
too early, and until it is taken nobody collects, empties and makes what namespaces must have. Much
shorter would be more writes of servers that have nothing to do."""
RENEWALS_PER_TURN: Final = 2
# The share of the duration after which a holder without renewal stops, to be the first to know.
HOLD_SHARE: Final = 0.8
RETRY_SECONDS: Final = 0.5
RELEASE_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


class LeaderLock:
    """One named turn, as one process sees it."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        *,
        name: str,
        holder: str,
        seconds: float = TURN_SECONDS,
    ) -> None:
        self.name = name
        self._holder = holder  # of one process life, so that what carries it is surely our own
        self._storage = storage
        self._clock = runtime.clock
        self._randomness = runtime.randomness
        self._key = Key(TURNS_PREFIX + name)
        self._seconds = seconds
        self._renew_seconds = seconds / RENEWALS_PER_TURN
        self._sightings = KeyObservations(runtime.clock)
        self._beat = 0
        self._revision: Revision | None = None
        self._renewed_at = 0.0
        self.known_gone: frozenset[str] = frozenset()
        """Holders that need not be waited for."""

    @property
    def held(self) -> bool:
        """Whether this process holds the turn, as far as it knows."""
        return self._revision is not None

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Wait for the turn and work while it is held; return when the work has ended.

        Work is cancelled when the turn is lost, and begun anew when it is got back. An error of
        the work gives back the turn and is raised.
        """
        while True:
            await self._take()
            logger.info("this server has the turn %s", self.name)
            try:
                ended = await self._hold(work)
            finally:
                await self._release()
            if ended:
                return
            logger.warning("this server has lost the turn %s", self.name)

    # Getting it.

    async def _take(self) -> None:
        while True:
            try:
                seconds = await self.try_take()
            except StorageError as error:
                logger.debug("turn %s: %s", self.name, error)
                seconds = RETRY_SECONDS
            if self.held:
                return
            await self._clock.sleep(seconds)

    async def try_take(self) -> float:
        """Take the turn if it is free (see `held`); otherwise after how long to try again."""
        item = await self._storage.get(self._key)
        if item is None:
            guard: Guard = Absent(self._key)
        else:
            unchanged, holder = self._sightings.unchanged_seconds(item), _holder_of(item)
            is_free = holder == self._holder or holder in self.known_gone
            if not is_free and unchanged < self._seconds:
                # With a share of chance, so that those who wait do not all come at once.
                share = self._randomness.uniform(0.8, 1.0)
                return min(self._renew_seconds * share, self._seconds - unchanged)
            guard = RevisionIs(self._key, item.revision)
        sent_at = self._clock.monotonic()
        outcome = await self._storage.commit(self._renewal(guard))
        if isinstance(outcome, Done):
            self._held_since(outcome.revision, sent_at)
        # A write of unknown outcome is found by the next try, with our name on it.
        return RETRY_SECONDS

    # Holding it.

    async def _hold(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Work and renew; whether the work has ended by itself."""
        ended = asyncio.Event()
        failure: Exception | None = None

        async def working() -> None:
            nonlocal failure
            try:
                await work()
            except Exception as error:  # noqa: BLE001 - raised below, out of the group
                failure = error
            finally:
                ended.set()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(working(), name=f"turn/{self.name}")
            is_over = await self._renew_until(ended)
            task.cancel()
        if failure is not None:
            raise failure
        return is_over

    async def _renew_until(self, ended: asyncio.Event) -> bool:
        """Renew until the work has ended (True) or the turn is lost (False)."""
        while True:
            try:
                async with self._clock.timeout(self._renew_seconds):
                    await ended.wait()
            except TimeoutError:
                if not await self._renew():
                    return False
            else:
                return True

    async def _renew(self) -> bool:
        """Renew before others may think that we are gone; whether that has worked."""
        give_up_at = self._renewed_at + self._seconds * HOLD_SHARE
        while self._revision is not None:
            sent_at = self._clock.monotonic()
            renewal = self._renewal(RevisionIs(self._key, self._revision))
            outcome = await self._commit_until(renewal, give_up_at)
            match outcome:
                case Done(revision):
                    self._held_since(revision, sent_at)
                    return True
                case Refused(current=item) if item is not None and (
                    _holder_of(item) == self._holder
                ):
                    # A renewal of ours whose answer was lost.
                    self._revision = item.revision
                case Refused():
                    return False
                case Unknown() | None:
                    if self._clock.monotonic() + RETRY_SECONDS >= give_up_at:
                        return False
                    await self._clock.sleep(RETRY_SECONDS)
        return False

    async def _commit_until(self, transaction: Transaction, deadline: float) -> Outcome | None:
        try:
            async with self._clock.timeout(max(deadline - self._clock.monotonic(), 0)):
                return await self._storage.commit(transaction)
        except (StorageError, TimeoutError) as error:
            logger.debug("turn %s: %s", self.name, error)
            return None

    def _held_since(self, revision: Revision, sent_at: float) -> None:
        self._revision = revision
        self._renewed_at = sent_at

    def _renewal(self, guard: Guard) -> Transaction:
        self._beat += 1
        value = to_keep({"holder": self._holder, "beat": self._beat})
        return Transaction((guard,), (Put(self._key, value),))

    # Giving it back.

    async def _release(self) -> None:
        revision, self._revision = self._revision, None
        deadline = self._clock.monotonic() + RELEASE_SECONDS
        for _ in range(2):
            if revision is None:
                return
            release = Transaction((RevisionIs(self._key, revision),), (Delete(self._key),))
            outcome = await self._commit_until(release, deadline)
            revision = None
            if isinstance(outcome, Refused) and outcome.current is not None:
                is_ours = _holder_of(outcome.current) == self._holder
                revision = outcome.current.revision if is_ours else None


def _holder_of(item: Item) -> str:
    try:
        holder = orjson.loads(item.value)["holder"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
    return holder if isinstance(holder, str) else ""
