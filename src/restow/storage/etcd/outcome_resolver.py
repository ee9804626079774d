"""Determines the outcome of a commit whose reply was lost. See `session` for the method.

First the session is ended, so that the attempt can no longer be applied. Then the history is read,
from the last revision known before it was sent to the one that ended the session. If one of them is
exactly this transaction, it was applied. Two cases are ambiguous: a transaction that only deletes
and another one that deleted the same keys (outcome: Unknown), and two transactions with equal
values and guards, which leave equal states (outcome: Done).
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
    """One attempt to send a transaction."""

    transaction: Transaction
    before: Revision
    """The newest revision known before it was sent: if it was applied, then after this."""
    session: tuple[bytes, int]


class OutcomeResolver:
    """Reads until the outcome is known, or the deadline has passed."""

    def __init__(self, connection: EtcdConnection, reader: EtcdReader, session: Session) -> None:
        self._connection = connection
        self._reader = reader
        self._session = session

    async def resolve(
        self, attempt: Attempt, failed: EtcdCallFailed, deadline: float
    ) -> Done | Unknown | None:
        """Done, or Unknown, or None: it was not applied and never will be.

        Raises `StoreFull` if it was not applied because of the quota.
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
            return _unknown(failed, f"revision {found} may be another deletion of these keys")
        return Done(found)

    async def _settle(self, attempt: Attempt, failed: EtcdCallFailed, deadline: float) -> Revision:
        """Ensure that the attempt is not applied later; return the last revision it may have."""
        if failed.cause is EtcdFailureCause.FULL:
            # etcd itself replied, so it has finished the call; and no session can be ended now.
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
                    # Reads may be repeated; the caller's deadline ends the loop.
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
    """Whether these events are exactly the effect of the transaction."""
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
