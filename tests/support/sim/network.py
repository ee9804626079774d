"""The network of a world: messages of processes, and faults on the way (`wires`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from restow.storage.continuity import Continuity
from restow.storage.errors import Compacted, FutureRevision, StorageError, StoreReplaced
from restow.storage.identity import IDENTITY_KEY, Mark, Seen, decode_record
from restow.storage.interface import (
    Batch,
    Done,
    Item,
    Outcome,
    Put,
    RangePage,
    Refused,
    Revision,
    Span,
    Transaction,
    Unknown,
    Watch,
)
from restow.storage.memory import MemoryStorage
from restow.storageversion.identity import SERVERS_PREFIX
from tests.support import wires
from tests.support.sim.loop import SimulatedLoop
from tests.support.sim.releases import GROUP
from tests.support.sim.store import Header, StreamEnded, WatchedStorage
from tests.support.wires import at_once

__all__ = ("GuardedWire", "Link", "OperatorWire", "StoreWire", "at_once")

QUICK_SECONDS: Final = 0.002
LEASE_SECONDS: Final = 15.0
"""The default of the servers of a world."""
_OBJECTS: Final = f"/registry/{GROUP}/"
REOPEN_SECONDS: Final = 0.1
T = TypeVar("T")


class Link(wires.Link):
    """The connection between two places of a world."""

    def __init__(self, loop: SimulatedLoop, seed: str, hits: Counter[str]) -> None:
        super().__init__(seed, hits, quick_seconds=QUICK_SECONDS)
        self.loop = loop

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback outside of all processes."""
        self.loop.call_later(seconds, callback, *args, context=self.loop.outside.context.copy())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StoreWire(wires.StoreWire):
    """One process's connection to the store, with the sender of each commit."""

    link: Link
    blocked: StoreReplaced | None = None
    """Why every call is rejected now; None if it is not."""

    def __init__(self, storage: WatchedStorage, link: Link, sender: str) -> None:
        super().__init__(storage, link)
        self._watched = storage
        self._sender = sender
        self._renewed_at = 0.0
        """When the last confirmed renewal of the sender's membership record was sent."""

    async def commit(self, transaction: Transaction) -> Outcome:
        began_at = self.link.loop.time()
        self._check_lease(transaction, began_at)
        outcome = await super().commit(transaction)
        if isinstance(outcome, Done) and _renews(transaction):
            self._renewed_at = max(self._renewed_at, began_at)
        return outcome

    def _check_lease(self, transaction: Transaction, now: float) -> None:
        """A server sends no object after the duration of its lease, which others measure from the
        arrival of the renewal."""
        if not any(write.key.startswith(_OBJECTS) for write in transaction.writes):
            return
        ledger, age_seconds = self._watched.ledger, now - self._renewed_at
        ledger.checked["G12"] += 1
        if age_seconds >= LEASE_SECONDS:
            ledger.problem(f"G12: {self._sender} wrote {age_seconds:.1f} s after its last renewal")

    def _commit(self, transaction: Transaction) -> Coroutine[Any, Any, Outcome]:
        return self._watched.commit_by(self._sender, transaction)

    def _range(
        self, span: Span, *, limit: int, revision: Revision | None, with_total: bool
    ) -> Coroutine[Any, Any, RangePage]:
        self._watched.is_listed(self._sender, span)
        return super()._range(span, limit=limit, revision=revision, with_total=with_total)


def _renews(transaction: Transaction) -> bool:
    """Whether a transaction writes the membership record of its sender."""
    return any(
        isinstance(write, Put) and write.key.startswith(SERVERS_PREFIX)
        for write in transaction.writes
    )


class OperatorWire(StoreWire):
    """An operator's connection to the store, bypassing all servers, like `restow store`."""

    def _check_lease(self, transaction: Transaction, now: float) -> None:
        """An operator has no lease."""

    def _commit(self, transaction: Transaction) -> Coroutine[Any, Any, Outcome]:
        return MemoryStorage.commit(self._watched, transaction)


class GuardedWire(StoreWire, Continuity):
    """A connection to a store that can be replaced: satisfies `identity.IdentifiedStorage`, as the
    driver for etcd does. The production code compares each reply with those before it."""

    places = (None, None)

    def __init__(self, storage: WatchedStorage, link: Link, sender: str) -> None:
        StoreWire.__init__(self, storage, link, sender)
        Continuity.__init__(self)
        self._shown = Header(0, 0)
        """The newest revision that was seen, and of which cluster."""
        self.has_seen_another = False
        """Whether a reply has shown that the store was replaced, or went back; whatever the
        production code has concluded."""
        self.replacements.subscribe(self._end_watches)
        self._answered: dict[int, Header] = {}
        """The header of the reply to each transaction that has arrived."""
        self._watches: dict[_GuardedWatch, None] = {}

    def another(self) -> GuardedWire:
        """Another connection of the same process to the store."""
        return GuardedWire(self._watched, self.link, self._sender)

    # Reads.

    async def _read(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self.check_usable()
        before, shown = self.newest, self.newest_shown

        async def answer() -> tuple[T, Header]:
            return await work(), self._watched.header

        try:
            found, header = await super()._read(answer)
        except FutureRevision:
            await self.revision()  # it may have gone back
            raise
        self.show(header, at_least=shown)
        self.note(header, before=before)
        return found

    def show(self, header: Header, *, at_least: int) -> None:
        """A reply has arrived, which must be at or above a revision."""
        cluster_id, revision = self._shown
        self.has_seen_another |= header.revision < at_least
        self.has_seen_another |= cluster_id not in (0, header.cluster_id)
        self._shown = Header(cluster_id or header.cluster_id, max(revision, header.revision))

    def remember(self, mark: Mark) -> None:
        """What the server before this one has seen of the store, if no other was accepted since."""
        if self._watched.ledger.accepted_at is None:
            self._shown = Header(int(mark.cluster_id, 16), mark.revision)

    def accepted(self) -> None:
        """An operator has accepted the store as it is."""
        self._shown, self.has_seen_another = Header(0, 0), False

    @property
    def newest_shown(self) -> int:
        return self._shown.revision

    async def revision(self) -> Revision:
        expected = self.identity

        async def answer() -> tuple[Item | None, Revision]:
            found = await self._watched.get(IDENTITY_KEY)
            return found, await self._watched.revision()

        item, revision = await self._read(answer)
        record = decode_record(None if item is None else item.value)
        self.check_identity(record, expected=expected)
        return revision

    def revision_now(self) -> Revision | None:
        self.check_usable()
        return None

    # Writes.

    def _commit(self, transaction: Transaction) -> Coroutine[Any, Any, Outcome]:
        async def commit() -> Outcome:
            outcome = await StoreWire._commit(self, transaction)
            self._answered[id(transaction)] = self._watched.header
            return outcome

        return commit()

    async def commit(self, transaction: Transaction) -> Outcome:
        self.check_usable()
        before = self.newest, self.newest_shown
        return self._settle(transaction, await StoreWire.commit(self, transaction), *before)

    def _settle(
        self, transaction: Transaction, outcome: Outcome, before: Revision, shown: int
    ) -> Outcome:
        """Evaluate the reply to a transaction as the driver for etcd does."""
        header = self._answered.pop(id(transaction), None)
        if header is None or isinstance(outcome, Unknown):
            return outcome
        assert isinstance(outcome, Done | Refused)
        header = Header(header.cluster_id, outcome.revision)
        puts = isinstance(outcome, Done) and any(isinstance(e, Put) for e in transaction.writes)
        self.show(header, at_least=shown + puts)
        if isinstance(outcome, Refused):
            self.note(header, before=before)
            return outcome
        try:
            self.note_commit(header, transaction, before=before)
        except StoreReplaced as error:
            return Unknown(str(error))
        return outcome

    # Watches.

    def watch(self, span: Span, *, after: Revision) -> Watch:
        watch = _GuardedWatch(self, span, after)
        self._watches[watch] = None
        if self.replaced is not None:
            watch.fail(self.replaced)
        return watch

    def open_stream(self, span: Span, after: Revision) -> Watch:
        """A watch of the current store."""
        with suppress(StoreReplaced):
            self.check_cluster(self._watched.header)
        return self._watched.watch(span, after=after)

    def was_streamed(self, revision: Revision) -> None:
        """Record a revision that a watch has delivered."""
        self._shown = Header(self._shown.cluster_id, max(self._shown.revision, revision))
        self.saw(revision)

    def forget(self, watch: _GuardedWatch) -> None:
        self._watches.pop(watch, None)

    def _end_watches(self, error: StorageError) -> None:
        for watch in list(self._watches):
            watch.fail(error)

    # Methods that the guard calls on a driver.

    @property
    def blocked(self) -> StoreReplaced | None:  # type: ignore[override]
        return self.replaced

    async def look(self) -> Seen:
        async def answer() -> tuple[Item | None, Header]:
            return await self._watched.get(IDENTITY_KEY), self._watched.header

        item, header = await super()._read(answer)
        record = decode_record(None if item is None else item.value)
        return Seen(record, Revision(header.revision), cluster_id=f"{header.cluster_id:x}")

    def block(self, problem: StoreReplaced | str) -> None:
        Continuity.block(self, str(problem))

    def unblock(self, seen: Seen) -> None:
        self.resume(seen)
        self._end_watches(Compacted(seen.revision))


class _GuardedWatch:
    """A watch that resumes where it was when its stream ends, as those of etcd do."""

    def __init__(self, wire: GuardedWire, span: Span, after: Revision) -> None:
        self._wire = wire
        self._span = span
        self._began = wire.link.streams
        self._position = after
        self._expected: list[Revision] = []
        self._error: StorageError | None = None
        self._held: Batch | None = None
        self._stream = wire.open_stream(span, after)

    def __aiter__(self) -> _GuardedWatch:
        return self

    async def __anext__(self) -> Batch:
        while self._held is None:
            self._check()
            try:
                self._held = await self._stream.__anext__()
            except StreamEnded:
                await self._open_again()
        await self._wire.link.flow(self._began, self._span)
        self._check()
        batch, self._held = self._held, None
        self._position = max(self._position, batch.revision)
        self._wire.was_streamed(batch.revision)
        self._expected = [each for each in self._expected if each > batch.revision]
        return batch

    async def _open_again(self) -> None:
        """Open a stream of the current store, when it is known to be the same store."""
        while True:
            self._check()
            try:
                await self._wire.revision()
                break
            except StorageError:
                await self._wire.link.sleep(REOPEN_SECONDS)
        self._check()
        self._stream = self._wire.open_stream(self._span, self._position)
        for revision in self._expected:
            self._stream.expect(revision)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def expect(self, revision: Revision) -> None:
        self._expected.append(revision)
        self._stream.expect(revision)

    def fail(self, error: StorageError) -> None:
        """End the watch with an error."""
        self._error = error
        self._wire.forget(self)
        self._stream.fail(error)  # type: ignore[attr-defined]

    async def close(self) -> None:
        self._wire.forget(self)
        await self._stream.close()
