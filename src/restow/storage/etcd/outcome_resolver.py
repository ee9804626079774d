"""Finding out what became of a commit whose reply was lost. See `session` for the idea.

First the attempt is made impossible, then the history is read: all revisions from the last one
known before it was sent to the one that ended it. If one of them is exactly this transaction, it
happened. Two things cannot be told apart: a transaction that only deletes from another's
deletion of the same keys (answer: Unknown), and two transactions with equal values and guards,
which leave equal states (answer: Done).
"""

from __future__ import annotations

from typing import NamedTuple

from restow.storage.checks import holds
from restow.storage.errors import StorageError
from restow.storage.etcd.connection import EtcdConnection
from restow.storage.etcd.errors import EtcdCallFailed, EtcdFailureCause, translate
from restow.storage.etcd.reader import EtcdReader
from restow.storage.etcd.session import Session
from restow.storage.etcd.stream import EventStream
from restow.storage.feed import RevisionEvents
from restow.storage.interface import Done, Put, Revision, Transaction, Unknown


class Attempt(NamedTuple):
    """One sending of a transaction."""

    transaction: Transaction
    before: Revision
    """The newest revision known before it was sent: it can only have happened after this."""
    session: tuple[bytes, int]


class OutcomeResolver:
    """Reads until it is known what happened, or the time is up."""

    def __init__(self, connection: EtcdConnection, reader: EtcdReader, session: Session) -> None:
        self._connection = connection
        self._reader = reader
        self._session = session

    async def resolve(
        self, attempt: Attempt, failed: EtcdCallFailed, deadline: float
    ) -> Done | Unknown | None:
        """Done, or Unknown, or None: it has not happened and never will.

        Raises `StoreFull` when that is what kept it from happening.
        """
        clock = self._connection.runtime.clock
        try:
            async with clock.timeout(deadline - clock.monotonic()):
                upto = await self._settle(attempt, failed, deadline)
                found = await self._search(attempt, upto)
        except TimeoutError:
            return _unknown(failed, "the time to find out is up")
        except (EtcdCallFailed, StorageError) as error:
            return _unknown(failed, str(error))
        if found is None:
            if failed.cause is EtcdFailureCause.FULL:
                raise translate(failed) from failed
            return None
        if not any(isinstance(write, Put) for write in attempt.transaction.writes):
            return _unknown(failed, f"revision {found} deleted the same, but for whom?")
        return Done(found)

    async def _settle(self, attempt: Attempt, failed: EtcdCallFailed, deadline: float) -> Revision:
        """See to it that nothing can happen any more, and say up to where it may have."""
        if failed.cause is EtcdFailureCause.FULL:
            # This was etcd's answer, so its work on it is over; and no session can be ended now.
            return await self._reader.revision()
        clock = self._connection.runtime.clock
        return await self._session.end(
            attempt.session, timeout_seconds=deadline - clock.monotonic()
        )

    async def _search(self, attempt: Attempt, upto: Revision) -> Revision | None:
        """The revision that is this attempt, among those after `before` and up to `upto`."""
        position = attempt.before
        stream: EventStream | None = None
        try:
            while position < upto:
                try:
                    if stream is None:
                        stream = await EventStream.open(self._connection, after=position)
                    entries = await stream.read()
                except EtcdCallFailed:
                    # Reading may be repeated at will; the caller's clock ends it.
                    if stream is not None:
                        stream.close()
                        stream = None
                    await self._connection.runtime.clock.sleep(0.05)
                    continue
                for entry in entries:
                    if entry.revision <= upto and _is_of(entry, attempt.transaction):
                        return entry.revision
                position = entries[-1].revision
            return None
        finally:
            if stream is not None:
                stream.close()


def _is_of(entry: RevisionEvents, transaction: Transaction) -> bool:
    """Whether these events are what the transaction would have done."""
    events = {event.key: event for event in entry.events}
    for write in transaction.writes:
        event = events.pop(write.key, None)
        if isinstance(write, Put):
            if event is None or event.value != write.value:
                return False
        elif event is not None and event.value is not None:
            return False
    if events:
        return False
    before = {event.key: event.previous for event in entry.events}
    return all(
        holds(guard, before[guard.key]) for guard in transaction.guards if guard.key in before
    )


def _unknown(failed: EtcdCallFailed, why: str) -> Unknown:
    return Unknown(f"the reply was lost ({failed.details}), and reading did not settle it: {why}")
